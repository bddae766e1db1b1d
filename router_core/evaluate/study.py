"""`steproute evaluate`: another policy's value from a store, or a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steproute.budget import Budget
from steproute.errors import StoreError
from steproute.evaluate.direct import crossfitted
from steproute.evaluate.estimators import Estimate, doubly_robust, expected_effective, ips, per_decision_ips, snips
from steproute.evaluate.overlap import OverlapError, check_overlap
from steproute.evaluate.replay import Choice, Replay, replay
from steproute.models import ModelPool
from steproute.policies import Policy, make_policy

Floats = npt.NDArray[np.float64]

LEAST_ESS = 50.0
MOST_UNSEEN = 0.05
GAIN, FINAL = "gain", "final"


@dataclass(frozen=True)
class Evaluation:
    """What a log says about a policy."""

    policy: str
    reward: str
    decisions: int
    tasks: int
    logged: float
    """Mean reward of a decision under the policy that ran."""
    logged_task: float
    """The same of a task."""
    unseen: float
    """Share of what the new policy would do that the log could never have done."""
    estimates: tuple[Estimate, ...]
    """IPS, SNIPS and DR of one decision."""
    task: Estimate | None
    """Value of a task by per-decision IPS; None = refused, see `refused`."""
    refused: str
    skipped: int

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        found: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "policy",
                "reward",
                "decisions",
                "tasks",
                "logged",
                "logged_task",
                "unseen",
                "refused",
                "skipped",
            )
        }
        for item in (*self.estimates, *([self.task] if self.task else [])):
            found[item.name] = {
                "value": item.value,
                "low": item.low,
                "high": item.high,
                "ess": item.ess,
                "n": item.n,
            }
        return found

    def text(self) -> str:
        """A few lines for people."""
        lines = [
            f"policy {self.policy}, reward {self.reward}: {self.decisions} decisions of {self.tasks} tasks"
            + (f", {self.skipped} left out" if self.skipped else ""),
            f"  {'what ran':<10} {self.logged:.4f} a decision, {self.logged_task:.4f} a task",
        ]
        lines += [
            f"  {item.name:<10} {item.value:.4f}  [{item.low:.4f}, {item.high:.4f}]  effective sample size {item.ess:.0f} of {item.n}"
            for item in self.estimates
        ]
        item = self.task
        if item is not None:
            lines.append(
                f"  {'per task':<10} {item.value:.4f}  [{item.low:.4f}, {item.high:.4f}]  effective sample size {item.ess:.0f} of {item.n}"
            )
        else:
            lines.append(f"  {'per task':<10} refused: {self.refused}")
        return "\n".join(lines)


def evaluate(
    store: str | Path,
    policy: str | Mapping[str, Any] | Policy,
    *,
    pool: ModelPool | None = None,
    budget: Budget | None = None,
    reward: str = GAIN,
    explore: float = 0.0,
    least_ess: float = LEAST_ESS,
    most_unseen: float = MOST_UNSEEN,
) -> Evaluation:
    """What a policy would have been worth on the tasks of a store.

    Args:
        store: path of a SQLite file, or a PostgreSQL URL. It is only read.
        policy: the new policy, see `make_policy`; a fresh one.
        pool: its models; None = those of the log, without prices.
        budget: limits and targets it scores by.
        reward: `gain` (observed progress of each decision), `final` (the task's final reward), or a resource such as `usd`.
        explore: the uniform share it is to be run with.
        least_ess: least effective sample size of an estimate, as it is to be expected.
        most_unseen: most that may be spent of the new policy's choices on what the log could never have done.

    Returns:
        Estimates with intervals.

    Raises:
        ConfigError: unknown policy, models the pool lacks, a log without propensities.
        StoreError: no such store, an empty one, or nothing in it has this reward.
        OverlapError: the log says too little about this policy.
    """
    made = make_policy(policy)
    return assess(replay(store, made, pool, budget, explore), made.name, reward, str(store), least_ess, most_unseen)


def assess(found: Replay, name: str, reward: str, where: str, least_ess: float, most_unseen: float) -> Evaluation:
    """Estimates from a replay; see `evaluate`."""
    value = _reader(found, reward)
    kept = [item for item in found.choices if value(item) is not None]
    free = [item for item in kept if item.free]
    if len({item.task for item in free}) < 2:
        raise StoreError(
            f"store {where}: {len(free)} decisions of {len({item.task for item in free})} tasks have the reward {reward!r}; "
            "allowed: two tasks or more, observed and finished, and a reward that they have (gain, final, usd, seconds, …)"
        )
    rewards = np.array([value(item) for item in free], dtype=np.float64)
    weights = _weights(free)
    unseen = float(np.mean([item.wanted[item.logged <= 0].sum() for item in free]))
    check_overlap(expected_effective(*_moments(free)), len(free), unseen, least_ess, most_unseen, name)
    tasks = _codes([item.task for item in free])
    taken, wanted = _predictions(free, tasks, rewards)
    along = _along(kept, value, reward == FINAL)
    codes = _codes([item.task for item in kept])
    whole = per_decision_ips(codes, _weights(kept), along)
    refused = ""
    try:
        ess = expected_effective(*(_product(codes, moment) for moment in _moments(kept)))
        check_overlap(ess, whole.n, 0.0, least_of_tasks(least_ess, whole.n), 1.0, name, "tasks")
    except OverlapError as error:
        refused = str(error)
    return Evaluation(
        policy=name,
        reward=reward,
        decisions=len(free),
        tasks=whole.n,
        logged=float(rewards.mean()),
        logged_task=float(along.sum()) / whole.n,
        unseen=unseen,
        estimates=(
            ips(tasks, weights, rewards),
            snips(tasks, weights, rewards),
            doubly_robust(tasks, weights, rewards, taken, wanted),
        ),
        task=None if refused else whole,
        refused=refused,
        skipped=found.skipped + len(found.choices) - len(kept),
    )


def least_of_tasks(least_ess: float, n: int) -> float:
    """Least effective sample size for the value of a task: as of decisions, but for few tasks half of them."""
    return min(least_ess, 0.5 * n)


def _reader(found: Replay, reward: str) -> Callable[[Choice], float | None]:
    if reward == GAIN:
        return lambda item: item.gain if item.gain is not None else 0.0 if item.answered else None
    if reward == FINAL:
        return lambda item: found.rewards.get(item.task)
    return lambda item: item.spent.get(reward) if item.answered else None


def _along(kept: Sequence[Choice], value: Callable[[Choice], float | None], only_last: bool) -> Floats:
    """Reward of each decision towards the value of its task: a final reward is had once, at the last one."""
    rewards = np.array([value(item) or 0.0 for item in kept])
    if only_last:
        last = {item.task: index for index, item in enumerate(kept)}
        rewards[[index for index, item in enumerate(kept) if last[item.task] != index]] = 0.0
    return rewards


def _weights(kept: Sequence[Choice]) -> Floats:
    return np.array([item.wanted[item.chosen] / item.logged[item.chosen] if item.free else 1.0 for item in kept])


def _moments(kept: Sequence[Choice]) -> tuple[Floats, Floats]:
    """E[w] and E[w²] of each decision over what the log could have done: Σ π(a) and Σ π(a)²/p(a); shape (n,) each."""
    first, second = np.ones(len(kept)), np.ones(len(kept))
    for i, item in enumerate(kept):
        if item.free:
            seen = item.logged > 0
            first[i] = item.wanted[seen].sum()
            second[i] = (item.wanted[seen] ** 2 / item.logged[seen]).sum()
    return first, second


def _product(codes: npt.NDArray[np.int64], values: Floats) -> Floats:
    """Product over the decisions of each task, shape (tasks,)."""
    found = np.ones(int(codes.max()) + 1)
    np.multiply.at(found, codes, values)
    return found


def _predictions(kept: Sequence[Choice], tasks: npt.NDArray[np.int64], rewards: Floats) -> tuple[Floats, Floats]:
    sizes = np.array([len(item.models) for item in kept])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    asked = np.repeat(np.arange(len(kept)), sizes)
    coarse = _codes([name for item in kept for name in item.models])
    fine = _codes(["\n".join((*item.group, name)) for item in kept for name in item.models])
    row = starts + np.array([item.chosen for item in kept])
    guesses = crossfitted(tasks, coarse, fine, row, rewards, asked)
    chances = np.concatenate([item.wanted for item in kept])
    wanted: Floats = np.bincount(asked, weights=chances * guesses, minlength=len(kept)).astype(np.float64)
    return guesses[row], wanted


def _codes(names: Sequence[str]) -> npt.NDArray[np.int64]:
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)
