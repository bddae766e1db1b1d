"""`python -m steproute.benchmarks.simulator.drift`: how long a router takes to recover when its best model silently degrades.

Five models serve four kinds of tasks through a whole `Router`; what each is worth on each kind is known, so regret is exact:
the best model's chance of success less the chosen one's. After `before` tasks the best model of most kinds gets worse, under
the same name and price.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from steproute.benchmarks.statistics import mean_interval
from steproute.ledger import Evidence, Outcome, Task
from steproute.models import Model
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

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "stationary": {},
    "memory 150": {"capability": {"memory": 150}},
    "page-hinkley": {"change": {"detector": "page-hinkley"}},
    "adwin": {"change": {"detector": "adwin"}},
}


def regrets(settings: Mapping[str, Any], seed: int, before: int, after: int, drifts: bool) -> Floats:
    """Play one run.

    Args:
        settings: of `pacer`.
        seed: of tasks, successes and the router; the same draws for every variant.
        before: tasks until the change.
        after: tasks from then on.
        drifts: False = the best model stays what it is.

    Returns:
        Expected regret per task, in order.
    """
    router = Router(
        [Model(name, price="free") for name in CHANCES],
        policy={"name": "pacer", "verify": False, **settings},
        seed=seed,
        on_error="raise",
    )
    rng = np.random.default_rng([seed, 7])
    found = np.empty(before + after)
    for index in range(before + after):
        kind, luck = int(rng.integers(len(KINDS))), float(rng.random())
        chances = {name: given[kind] for name, given in CHANCES.items()}
        if drifts and index >= before:
            chances["best"] *= WORSE
        task = Task(id=f"t{index}", goal="", dimension=KINDS[kind])
        decision = router.decide(task, step="0", prompt_tokens=100)
        name = decision.model.name
        solved = luck < chances[name]
        evidence = [Evidence(source="test", score=float(solved), count=CHECKS)]
        router.observe(decision, Outcome(call_id=task.id, prompt_tokens=100, completion_tokens=50), evidence=evidence)
        router.finish(task.id, success=solved)
        found[index] = max(chances.values()) - chances[name]
    return found


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
        old = float(curve[max(before - 200, before // 2) : before].mean())
        return recovery(curve, before, old, slack * (reward or old))

    drawn = sorted(once(runs[rng.integers(len(runs), size=len(runs))]) for _ in range(draws))
    return once(runs), drawn[int(0.025 * draws)], drawn[int(0.975 * draws) - 1]


def study(names: Sequence[str], seeds: int, before: int, after: int) -> dict[str, Any]:
    """Every variant in the drifting and in the stationary world; plain JSON values."""
    found: dict[str, Any] = {}
    still = {}
    for name in names:
        runs = np.array([regrets(VARIANTS[name], seed, before, after, True) for seed in range(seeds)])
        calm = np.array([regrets(VARIANTS[name], seed, before, after, False) for seed in range(seeds)])
        still[name] = calm.mean(axis=1)
        reward = float(np.mean([max(given) for given in zip(*CHANCES.values(), strict=True)]))
        rows = [np.mean(runs[:, at : at + 50]) for at in range(before, before + after, 50)]
        cost = (still[name] - still.get("stationary", still[name])) / reward
        found[name] = {
            "old_regret": mean_interval(runs[:, before - 200 : before].mean(axis=1).tolist())[::2],
            "recovery": interval(runs, before, 0.1, 0.0),
            "recovery_of_reward": interval(runs, before, 0.1, reward),
            "after": [round(float(value), 4) for value in rows],
            "last_200": mean_interval(runs[:, -200:].mean(axis=1).tolist())[::2],
            "stationary_regret": mean_interval(still[name].tolist())[::2],
            "stationary_cost_pct": mean_interval((100 * cost).tolist())[::2],
        }
    return found


def main(
    seeds: Annotated[int, typer.Option(min=2, help="Runs per variant and world.")] = 40,
    before: Annotated[int, typer.Option(min=200, help="Tasks before the change.")] = 500,
    after: Annotated[int, typer.Option(min=200, help="Tasks after it.")] = 400,
    only: Annotated[str, typer.Option(help="Comma-separated variants.")] = ",".join(VARIANTS),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Let the best model silently degrade, and print when regret is back."""
    names = [name.strip() for name in only.split(",")]
    for name in names:
        if name not in VARIANTS:
            raise typer.BadParameter(f"only: seen {name!r}; allowed: {', '.join(VARIANTS)}")
    found = study(names, seeds, before, after)
    if as_json:
        sys.stdout.write(
            json.dumps({"seeds": seeds, "before": before, "after": after, "variants": found}, indent=1) + "\n"
        )
        return
    for name, row in found.items():
        old, last, still, cost = (
            row[key] for key in ("old_regret", "last_200", "stationary_regret", "stationary_cost_pct")
        )
        sys.stdout.write(
            f"{name}: regret per task {old[0]:.4f} ± {old[1]:.4f} before; within 10 % of it after {_span(row['recovery'])} tasks, "
            f"within 10 % of the old reward after {_span(row['recovery_of_reward'])}; last 200 tasks {last[0]:.4f} ± {last[1]:.4f}\n"
            f"    by 50 tasks after the change: {' '.join(f'{value:.3f}' for value in row['after'])}\n"
            f"    no change at all: regret {still[0]:.4f} ± {still[1]:.4f}, cost {cost[0]:+.2f} ± {cost[1]:.2f} % of the reward\n"
        )


def _span(found: tuple[float, float, float]) -> str:
    return f"{found[0]:.0f} ({found[1]:.0f} to {found[2]:.0f})"


if __name__ == "__main__":
    typer.run(main)
