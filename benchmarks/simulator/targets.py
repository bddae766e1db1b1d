"""`python -m steproute.benchmarks.simulator.targets`: several long-run targets at once, and the front that V traces."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from steproute.benchmarks.simulator.play import Played, play
from steproute.benchmarks.simulator.view import DOMAIN, PartsView
from steproute.benchmarks.simulator.world import ARMS, World
from steproute.budget import Budget, Limit, Tail
from steproute.models import Price
from steproute.router import Router

CASES: Mapping[str, Budget] = {
    "four resources": Budget(
        energy_j=Limit(target=9000), usd=Limit(target=0.0055), seconds=Limit(target=39), tokens=Limit(target=11_500)
    ),
    "late tasks": Budget(
        energy_j=Limit(target=9300),
        seconds=Limit(target=41),
        tokens=Limit(target=12_000),
        tail=Tail(slo_s=85, per="task"),
    ),
    "late calls and carbon": Budget(
        energy_j=Limit(target=9300),
        usd=Limit(target=0.0058),
        carbon_g=Limit(target=1.05),
        tail=Tail(slo_s=11),
        grid=[(50.0 * i, 300.0 + 200.0 * (i % 2)) for i in range(4000)],
    ),
    "too tight": Budget(
        energy_j=Limit(target=8500), usd=Limit(target=0.005), seconds=Limit(target=35), tokens=Limit(target=10_500)
    ),
}
"""Targets that bind at once. The last set could be held by one model of the pool, for every task."""
WORTHS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
WORTH_OF_JOULE = 1e-4


@dataclass(frozen=True)
class Kept:
    """One target after all tasks."""

    resource: str
    ratio: float
    """What was spent on average over the target."""
    owed: float
    """The queue at the end, in targets."""


def router(budget: Budget, seed: int, V: float = 1.0) -> Router:
    """The default policy on the simulated pool, with prices that rise with size."""
    models = [
        arm.model.model_copy(update={"price": Price(input=0.02 * arm.size_b, output=0.08 * arm.size_b)}) for arm in ARMS
    ]
    views = {DOMAIN: PartsView()}
    return Router(models, budget, {"name": "pacer", "V": V}, views=views, seed=seed, on_error="raise")


def held(budget: Budget, seed: int, tasks: int) -> tuple[list[Kept], Played]:
    """Play tasks under targets.

    Returns:
        One entry per target, and the tasks.
    """
    made = router(budget, seed)
    spent = _Sums(made)
    played = play(made, World(seed), tasks)
    found = []
    for name, limit in made.accounts.limits.items():
        if limit.target is not None:
            units = tasks if limit.per == "task" else spent.sums["calls"]
            ratio = spent.sums.get(name, 0.0) / units / limit.target
            found.append(Kept(name, ratio, made.accounts.queues[name] / limit.target))
    return found, played


def front(seeds: int, tasks: int, warmup: int) -> list[tuple[float, float, float]]:
    """V, share of solved tasks, joules per task; means over seeds after the warm-up."""
    rows = []
    for worth in WORTHS:
        runs = []
        for seed in range(seeds):
            made = router(Budget(energy_j=Limit(value=WORTH_OF_JOULE)), seed, worth)
            world = World(seed)
            play(made, world, warmup)
            runs.append(play(made, world, tasks - warmup, start=warmup))
        solved = float(np.mean([np.mean(run.success) for run in runs]))
        rows.append((worth, solved, float(np.mean([np.mean(run.energy_j) for run in runs]))))
    return rows


class _Sums:
    """Adds up what tasks spend, as the router's `finish` says."""

    def __init__(self, made: Router):
        self.sums: dict[str, float] = {}
        self._close = made.accounts.close
        made.accounts.close = self.close  # type: ignore[method-assign]

    def close(self, task: str) -> Mapping[str, float]:
        """`Accounts.close`, and what it returned is added up."""
        spent = self._close(task)
        for name, amount in spent.items():
            self.sums[name] = self.sums.get(name, 0.0) + amount
        return spent


def main(
    tasks: Annotated[int, typer.Option(min=20, help="Tasks per run under targets.")] = 2000,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per set of targets.")] = 1,
    sweep: Annotated[int, typer.Option(min=0, help="Seeds of the sweep over V; 0 = none.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Hold several targets at once, then trace quality against energy by V."""
    out = sys.stdout.write
    cases = []
    for name, budget in CASES.items():
        for seed in range(seeds):
            found, played = held(budget, seed, tasks)
            solved = float(np.mean(played.success))
            targets = {item.resource: {"ratio": item.ratio, "owed": item.owed} for item in found}
            cases.append({"case": name, "seed": seed, "solved": solved, "targets": targets})
            if not as_json:
                parts = ", ".join(f"{item.resource} {item.ratio:.3f}" for item in found)
                worst = max(item.ratio for item in found)
                verdict = "held" if worst <= 1.02 else f"not held ({100 * (worst - 1):.1f} % over)"
                out(f"{name}, seed {seed}, {tasks} tasks: solved {solved:.3f}; spent/target: {parts}: {verdict}\n")
    rows = front(sweep, 250, 100) if sweep else []
    if as_json:
        points = [{"V": worth, "solved": solved, "energy_j": joules} for worth, solved, joules in rows]
        out(json.dumps({"tasks": tasks, "cases": cases, "front": points}, indent=1) + "\n")
        return
    for worth, solved, joules in rows:
        out(f"V {worth:g}: solved {solved:.3f}, {joules:.0f} J per task\n")


if __name__ == "__main__":
    typer.run(main)
