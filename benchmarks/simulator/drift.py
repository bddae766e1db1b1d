"""`python -m steproute.benchmarks.simulator.drift`: how long a router takes to recover when its best model silently degrades.

Five models serve four kinds of tasks through a whole `Router`; what each is worth on each kind is known, so regret is exact:
the best model's chance of success less the chosen one's. After `before` tasks the best model of most kinds gets worse, under
the same name and price; other scenarios let a weak model get better, or the best one recover.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import repeat
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer

from steproute.benchmarks.statistics import mean_interval
from steproute.ledger import Evidence, Outcome, Task
from steproute.models import Model
from steproute.policies.pacer import Pacer
from steproute.router import Router

Floats = npt.NDArray[np.float64]

KINDS = ("code", "math", "search", "prose")
CHANCES: Mapping[str, tuple[float, ...]] = {
    "best": (0.88, 0.85, 0.84, 0.62),
    "second": (0.70, 0.66, 0.70, 0.60),
    "writer": (0.50, 0.45, 0.55, 0.80),
    "small": (0.45, 0.40, 0.50, 0.50),
    "tiny": (0.25, 0.20, 0.30, 0.35),
}
"""Chance of success of one call, per kind."""
WORSE = 0.45
"""What the best model's chances shrink to, as a factor."""
CHECKS = 9
WINDOW = 50
"""Tasks whose regret is averaged."""

BETTER = 0.45
"""What the small model's chances grow by, in the scenario `rise`."""

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "stationary": {},
    "memory 150": {"capability": {"memory": 150}},
    "page-hinkley": {"change": {"detector": "page-hinkley"}},
    "adwin": {"change": {"detector": "adwin"}},
    "shiryaev-roberts": {"change": {"detector": "shiryaev-roberts"}},
    "again 150": {"change": {"detector": "shiryaev-roberts", "again": 150}},
    "horizon 1000": {"change": {"detector": "shiryaev-roberts"}, "horizon": 1000},
    "told": {},
}
"""Settings of `pacer`. `told` is no policy but a bound: at the change it is told, at once, what the best model is worth now."""
TOLD = 10
"""Observations per kind that this is worth."""


def fall(chances: dict[str, float], since: int, after: int) -> None:
    """The best model gets worse, for good."""
    chances["best"] *= WORSE


def rise(chances: dict[str, float], since: int, after: int) -> None:
    """The small model becomes the best."""
    chances["small"] = min(chances["small"] + BETTER, 0.97)


def back(chances: dict[str, float], since: int, after: int) -> None:
    """The best model gets worse, and is itself again after half of the tasks that follow."""
    if since < after // 2:
        chances["best"] *= WORSE


SCENARIOS: Mapping[str, Callable[[dict[str, float], int, int], None]] = {"fall": fall, "rise": rise, "back": back}


class Run(NamedTuple):
    """What came of one run."""

    regret: Floats
    """Expected regret per task, in order."""
    alarms: int
    """Changes that were declared."""


def run(variant: str, seed: int, before: int, after: int, scenario: str) -> Run:
    """Play one run.

    Args:
        variant: a name in `VARIANTS`.
        seed: of tasks, successes and the router; the same draws for every variant.
        before: tasks until the change.
        after: tasks from then on.
        scenario: a name in `SCENARIOS`; empty = every model stays what it is.
    """
    router = Router(
        [Model(name, price="free") for name in CHANCES],
        policy={"name": "pacer", "verify": False, **VARIANTS[variant]},
        seed=seed,
        on_error="raise",
    )
    policy = router.policy
    assert isinstance(policy, Pacer)
    rng = np.random.default_rng([seed, 7])
    found = np.empty(before + after)
    for index in range(before + after):
        kind, luck = int(rng.integers(len(KINDS))), float(rng.random())
        chances = {name: given[kind] for name, given in CHANCES.items()}
        if scenario and index >= before:
            SCENARIOS[scenario](chances, index - before, after)
            if variant == "told" and index == before:
                tell(policy)
        task = Task(id=f"t{index}", goal="", dimension=KINDS[kind])
        decision = router.decide(task, step="0", prompt_tokens=100)
        name = decision.model.name
        solved = luck < chances[name]
        evidence = [Evidence(source="test", score=float(solved), count=CHECKS)]
        router.observe(decision, Outcome(call_id=task.id, prompt_tokens=100, completion_tokens=50), evidence=evidence)
        router.finish(task.id, success=solved)
        found[index] = max(chances.values()) - chances[name]
    return Run(found, sum(policy.state()["changes"]["found"].values()))


def tell(policy: Pacer) -> None:
    """Replace what is known of the best model by what it is worth after its fall."""
    policy.capability.forget("best")
    for kind, chance in zip(KINDS, CHANCES["best"], strict=True):
        for _ in range(TOLD):
            policy.capability.observe((kind,), "best", chance * WORSE)


def recovery(curve: Floats, before: int, old: float, slack: float) -> float:
    """Tasks from the change until regret is back, on average over `WINDOW` tasks that follow; infinite if it never is.

    Args:
        curve: regret per task, averaged over runs.
        before: index of the change.
        old: regret per task before it.
        slack: how much above `old` counts as back.
    """
    for start in range(before, len(curve) - WINDOW + 1):
        if curve[start : start + WINDOW].mean() <= old + slack:
            return float(start - before)
    return float("inf")


def old_level(before: int) -> slice:
    """The tasks before a change whose regret is the old level: the last 200, or the later half of fewer than 400."""
    return slice(max(before - 200, before // 2), before)


def beyond_bar(runs: Floats, before: int, start: int = 150) -> tuple[float, float]:
    """Regret in the `WINDOW` tasks from `start` after a change on, less 1.1 times the old level of the same run.

    Args:
        runs: regret, shape (runs, tasks).
        before: index of the change.
        start: tasks since.

    Returns:
        Mean over runs, and half the width of its 95 % interval; below 0 = regret is back within 10 %.
    """
    later = runs[:, before + start : before + start + WINDOW].mean(axis=1)
    found = mean_interval((later - 1.1 * runs[:, old_level(before)].mean(axis=1)).tolist())
    return found[0], found[2]


def interval(runs: Floats, before: int, slack: float, reward: float, draws: int = 400) -> tuple[float, float, float]:
    """Recovery time of the averaged runs, and its 95 % bootstrap interval over runs.

    Args:
        runs: shape (runs, tasks).
        before: index of the change.
        slack: as a share of the old regret; of the old reward where `reward` is above 0.
        reward: mean reward per task before the change; 0 = the slack is a share of the old regret.
        draws: bootstrap samples.
    """
    rng = np.random.default_rng(0)

    def once(sample: Floats) -> float:
        curve = sample.mean(axis=0)
        old = float(curve[old_level(before)].mean())
        return recovery(curve, before, old, slack * (reward or old))

    drawn = sorted(once(runs[rng.integers(len(runs), size=len(runs))]) for _ in range(draws))
    return once(runs), drawn[int(0.025 * draws)], drawn[int(0.975 * draws) - 1]


def study(
    names: Sequence[str], seeds: range, before: int, after: int, scenario: str = "fall", jobs: int = 1
) -> dict[str, Any]:
    """Every variant in the changing and in the stationary world; plain JSON values."""
    found: dict[str, Any] = {}
    plain: list[float] | None = None
    reward = float(np.mean([max(given) for given in zip(*CHANCES.values(), strict=True)]))
    with ProcessPoolExecutor(jobs) as pool:
        for name in names:
            play = partial(run, name)
            moved = list(pool.map(play, seeds, repeat(before), repeat(after), repeat(scenario)))
            calm = list(pool.map(play, seeds, repeat(before), repeat(after), repeat("")))
            runs = np.array([item.regret for item in moved])
            still = [float(item.regret.mean()) for item in calm]
            plain = plain or still
            cost = [100 * (mine - other) / reward for mine, other in zip(still, plain, strict=True)]
            rows = [np.mean(runs[:, at : at + 50]) for at in range(before, before + after, 50)]
            found[name] = {
                "old_regret": mean_interval(runs[:, old_level(before)].mean(axis=1).tolist())[::2],
                "recovery": interval(runs, before, 0.1, 0.0),
                "recovery_of_reward": interval(runs, before, 0.1, reward),
                "beyond_bar": beyond_bar(runs, before),
                "after": [round(float(value), 4) for value in rows],
                "first_200": mean_interval(runs[:, before : before + 200].sum(axis=1).tolist())[::2],
                "last_200": mean_interval(runs[:, -200:].mean(axis=1).tolist())[::2],
                "stationary_regret": mean_interval(still)[::2],
                "stationary_cost_pct": mean_interval(cost)[::2],
                "stationary_alarms_per_1000": 1000 * sum(item.alarms for item in calm) / (len(calm) * (before + after)),
            }
    return found


def main(
    seeds: Annotated[int, typer.Option(min=2, help="Runs per variant and world.")] = 40,
    seed_base: Annotated[int, typer.Option(min=0, help="First seed.")] = 0,
    before: Annotated[int, typer.Option(min=200, help="Tasks before the change.")] = 500,
    after: Annotated[int, typer.Option(min=200, help="Tasks after it.")] = 400,
    scenario: Annotated[str, typer.Option(help=", ".join(SCENARIOS))] = "fall",
    only: Annotated[str, typer.Option(help="Comma-separated variants.")] = ",".join(VARIANTS),
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Let the best model silently degrade, and print when regret is back."""
    names = [name.strip() for name in only.split(",")]
    for name in names:
        if name not in VARIANTS:
            raise typer.BadParameter(f"only: seen {name!r}; allowed: {', '.join(VARIANTS)}")
    if scenario not in SCENARIOS:
        raise typer.BadParameter(f"scenario: seen {scenario!r}; allowed: {', '.join(SCENARIOS)}")
    logging.getLogger("steproute").setLevel(logging.ERROR)
    found = study(names, range(seed_base, seed_base + seeds), before, after, scenario, jobs)
    if as_json:
        given = {"seeds": seeds, "seed_base": seed_base, "before": before, "after": after, "scenario": scenario}
        sys.stdout.write(json.dumps({**given, "variants": found}, indent=1) + "\n")
        return
    for name, row in found.items():
        old, last, still, cost, first, bar = (
            row[key]
            for key in (
                "old_regret",
                "last_200",
                "stationary_regret",
                "stationary_cost_pct",
                "first_200",
                "beyond_bar",
            )
        )
        sys.stdout.write(
            f"{name}: regret per task {old[0]:.4f} ± {old[1]:.4f} before; within 10 % of it after {_span(row['recovery'])} tasks, "
            f"within 10 % of the old reward after {_span(row['recovery_of_reward'])}; last 200 tasks {last[0]:.4f} ± {last[1]:.4f}\n"
            f"    by 50 tasks after the change: {' '.join(f'{value:.3f}' for value in row['after'])}; "
            f"first 200 together {first[0]:.1f} ± {first[1]:.1f}\n"
            f"    in tasks 151 to 200 less 1.1 times the old: {bar[0]:+.4f} ± {bar[1]:.4f}\n"
            f"    no change at all: regret {still[0]:.4f} ± {still[1]:.4f}, cost {cost[0]:+.2f} ± {cost[1]:.2f} % of the reward, "
            f"{row['stationary_alarms_per_1000']:.2f} false alarms per 1000 tasks\n"
        )


def _span(found: tuple[float, float, float]) -> str:
    return f"{found[0]:.0f} ({found[1]:.0f} to {found[2]:.0f})"


if __name__ == "__main__":
    typer.run(main)
