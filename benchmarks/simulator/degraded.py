"""`python -m steproute.benchmarks.simulator.degraded`: the simulated workload, whose strongest model silently gets worse.

The value of a task is 1 if it is solved, less what its calls are worth; regret per task is what the best single model gets from
the same tasks and the same draws, less what the router got.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import repeat
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer

from steproute.benchmarks.simulator.drift import beyond_bar, interval, old_level
from steproute.benchmarks.simulator.play import play
from steproute.benchmarks.simulator.view import DOMAIN, PartsView
from steproute.benchmarks.simulator.world import ARMS, KINDS, World
from steproute.benchmarks.statistics import mean_interval
from steproute.policies.pacer import Pacer
from steproute.router import Router

Floats = npt.NDArray[np.float64]

STRONGEST, FALL = "alpha-32b", 1.6
"""Which model gets worse, and by how much: it then is about as able as the one of 3 billion parameters."""
BEST_BEFORE, BEST_AFTER = "fixed:alpha-32b", "fixed:beta-27b"
CALL = 0.02
"""What a call is worth, in solved tasks."""
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "stationary": {},
    "page-hinkley": {"change": {"detector": "page-hinkley"}},
    "adwin": {"change": {"detector": "adwin"}},
    "shiryaev-roberts": {"change": {"detector": "shiryaev-roberts"}},
}


class Run(NamedTuple):
    """What came of one run."""

    value: Floats
    """Of every task, in order."""
    alarms: int
    """Changes that were declared."""


def run(policy: Any, seed: int, before: int, after: int, drifts: bool) -> Run:
    """Play one run.

    Args:
        policy: as `Router` takes it.
        seed: of the world and the router.
        before: tasks until the change.
        after: tasks from then on.
        drifts: whether there is one.
    """
    models = [arm.model.model_copy(update={"size_b": None}) for arm in ARMS]
    router = Router(models, policy=policy, views={DOMAIN: PartsView()}, seed=seed, on_error="raise")
    world = World(seed)
    parts = [play(router, world, before)]
    if drifts:
        for kind in KINDS:
            world.ability[STRONGEST][kind] -= FALL
    parts.append(play(router, world, after, start=before))
    value = np.array(
        [won - CALL * calls for part in parts for won, calls in zip(part.success, part.calls, strict=True)]
    )
    learnt = router.policy
    return Run(value, sum(learnt.state()["changes"]["found"].values()) if isinstance(learnt, Pacer) else 0)


def main(
    seeds: Annotated[int, typer.Option(min=2, help="Runs per variant and world.")] = 16,
    seed_base: Annotated[int, typer.Option(min=0, help="First seed.")] = 0,
    before: Annotated[int, typer.Option(min=200, help="Tasks before the change.")] = 200,
    after: Annotated[int, typer.Option(min=200, help="Tasks after it.")] = 200,
    only: Annotated[str, typer.Option(help="Comma-separated variants.")] = ",".join(VARIANTS),
    fresh: Annotated[bool, typer.Option("--fresh", help="Also play a world that is changed from the start.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
) -> None:
    """Let the strongest model silently degrade, and print when regret is back."""
    names = [name.strip() for name in only.split(",")]
    for name in names:
        if name not in VARIANTS:
            raise typer.BadParameter(f"only: seen {name!r}; allowed: {', '.join(VARIANTS)}")
    logging.getLogger("steproute").setLevel(logging.ERROR)
    with ProcessPoolExecutor(jobs) as pool:

        def play(policy: Any, drifts: bool) -> list[Run]:
            order = range(seed_base, seed_base + seeds)
            return list(pool.map(partial(run, policy), order, repeat(before), repeat(after), repeat(drifts)))

        best = np.array([item.value for item in play(BEST_BEFORE, True)])
        best[:, before:] = np.array([item.value for item in play(BEST_AFTER, True)])[:, before:]
        plain: Floats | None = None
        for name in names:
            policy = {"name": "pacer", **VARIANTS[name]}
            moved, still = play(policy, True), play(policy, False)
            calm = np.array([item.value.mean() for item in still])
            plain = calm if plain is None else plain
            alarms = 1000 * sum(item.alarms for item in still) / (seeds * (before + after))
            report(name, best, np.array([item.value for item in moved]), before, plain - calm, alarms)
        if fresh:
            order, length = range(seed_base, seed_base + seeds), before + after
            level(
                *(
                    list(pool.map(partial(run, policy), order, repeat(0), repeat(length), repeat(True)))
                    for policy in (BEST_AFTER, "pacer")
                )
            )


def report(name: str, best: Floats, value: Floats, before: int, cost: Floats, alarms: float) -> None:
    """Print what became of one variant.

    Args:
        name: of the variant.
        best: value per task of the best single model, shape (runs, tasks).
        value: the same of the router.
        before: index of the change.
        cost: per run, value per task that watching cost where nothing changed.
        alarms: per 1000 tasks where nothing changed.
    """
    runs, worth = best - value, float(best[:, :before].mean())
    lost = mean_interval((100 * cost / worth).tolist())
    old = mean_interval(runs[:, old_level(before)].mean(axis=1).tolist())
    first = mean_interval(runs[:, before : before + 200].sum(axis=1).tolist())
    found, bar = interval(runs, before, 0.1, worth), beyond_bar(runs, before)
    steps = " ".join(f"{runs[:, at : at + 25].mean():.3f}" for at in range(before, runs.shape[1], 25))
    sys.stdout.write(
        f"{name}: regret per task {old[0]:.4f} ± {old[2]:.4f} before; within 10 % of the old value after {found[0]:.0f} "
        f"({found[1]:.0f} to {found[2]:.0f}) tasks\n"
        f"    by 25 tasks after the change: {steps}; first 200 together {first[0]:.1f} ± {first[2]:.1f}\n"
        f"    in tasks 151 to 200 less 1.1 times the old: {bar[0]:+.4f} ± {bar[1]:.4f}\n"
        f"    no change at all: cost {lost[0]:+.2f} ± {lost[2]:.2f} % of the value, {alarms:.2f} false alarms per 1000 tasks\n"
    )
    sys.stdout.flush()


def level(best: list[Run], routed: list[Run]) -> None:
    """Print the regret of a router that never knew another world: what is left to get back to."""
    runs = np.array([item.value for item in best]) - np.array([item.value for item in routed])
    spans = ((0, 50), (50, 100), (100, 200), (150, 200), (200, runs.shape[1]))
    rows = [(start, end, mean_interval(runs[:, start:end].mean(axis=1).tolist())) for start, end in spans]
    sys.stdout.write(
        "changed from the start: regret per task "
        + ", ".join(f"{row[0]:.4f} ± {row[2]:.4f} in tasks {start + 1} to {end}" for start, end, row in rows)
        + "\n"
    )


if __name__ == "__main__":
    typer.run(main)
