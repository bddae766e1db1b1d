"""`python -m steproute.benchmarks.simulator.degraded`: the simulated workload, whose strongest model silently gets worse.

The value of a task is 1 if it is solved, less what its calls are worth; regret per task is what the best single model gets from
the same tasks and the same draws, less what the router got.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from steproute.benchmarks.simulator.drift import interval
from steproute.benchmarks.simulator.play import play
from steproute.benchmarks.simulator.view import DOMAIN, PartsView
from steproute.benchmarks.simulator.world import ARMS, KINDS, World
from steproute.benchmarks.statistics import mean_interval
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
}


def values(policy: Any, seed: int, before: int, after: int, drifts: bool) -> Floats:
    """Value of every task of a run, in order.

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
    return np.array([won - CALL * calls for part in parts for won, calls in zip(part.success, part.calls, strict=True)])


def main(
    seeds: Annotated[int, typer.Option(min=2, help="Runs per variant and world.")] = 16,
    before: Annotated[int, typer.Option(min=200, help="Tasks before the change.")] = 200,
    after: Annotated[int, typer.Option(min=100, help="Tasks after it.")] = 200,
) -> None:
    """Let the strongest model silently degrade, and print when regret is back."""
    best = {
        drifts: np.array(
            [
                np.append(
                    values(BEST_BEFORE, seed, before, after, drifts)[:before],
                    values(BEST_AFTER if drifts else BEST_BEFORE, seed, before, after, drifts)[before:],
                )
                for seed in range(seeds)
            ]
        )
        for drifts in (True, False)
    }
    worth = float(best[True][:, :before].mean())
    plain: Floats | None = None
    for name, settings in VARIANTS.items():
        policy = {"name": "pacer", **settings}
        runs = best[True] - np.array([values(policy, seed, before, after, True) for seed in range(seeds)])
        calm = np.array([values(policy, seed, before, after, False) for seed in range(seeds)]).mean(axis=1)
        plain = calm if plain is None else plain
        cost = mean_interval((100 * (plain - calm) / worth).tolist())
        old = mean_interval(runs[:, before - 100 : before].mean(axis=1).tolist())
        last = mean_interval(runs[:, -100:].mean(axis=1).tolist())
        found = interval(runs, before, 0.1, worth)
        steps = " ".join(f"{runs[:, at : at + 25].mean():.3f}" for at in range(before, before + after, 25))
        sys.stdout.write(
            f"{name}: regret per task {old[0]:.3f} ± {old[2]:.3f} before; within 10 % of the old value after {found[0]:.0f} "
            f"({found[1]:.0f} to {found[2]:.0f}) tasks; last 100 tasks {last[0]:.3f} ± {last[2]:.3f}\n"
            f"    by 25 tasks after the change: {steps}\n"
            f"    no change at all: cost {cost[0]:+.2f} ± {cost[2]:.2f} % of the value\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    typer.run(main)
