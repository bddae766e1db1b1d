"""`python -m steproute.benchmarks.simulator.credit`: whether crediting steps with the final result teaches faster than not.

The simulated workload is played twice. *Checked*: every call's tests and the state of every part are seen, as `play` shows them.
*Blind*: the host says nothing about a step, only at the end whether the task succeeded.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import numpy as np
import typer

from steproute.benchmarks.simulator.play import play, role_of
from steproute.benchmarks.simulator.view import DOMAIN, PartsView
from steproute.benchmarks.simulator.world import ARMS, World
from steproute.benchmarks.statistics import mean_interval
from steproute.ledger import Outcome, Task
from steproute.router import Router

RULES = ("none", "uniform", "progress")
HOSTS = ("checked", "blind")


def outcomes(host: str, rule: str, seed: int, tasks: int) -> tuple[float, float]:
    """Play one run.

    Args:
        host: `checked` or `blind`.
        rule: of delayed credit.
        seed: of the world and the router.
        tasks: how many.

    Returns:
        Share of tasks solved, and calls per task.
    """
    views = {DOMAIN: PartsView()} if host == "checked" else {}
    router = Router(
        [arm.model.model_copy(update={"size_b": None}) for arm in ARMS],  # sizes would tell which model is strong
        policy={"name": "pacer", "credit": rule},
        views=views,
        seed=seed,
        on_error="raise",
    )
    world = World(seed)
    if host == "checked":
        played = play(router, world, tasks)
        return float(np.mean(played.success)), float(np.mean(played.calls))
    return _blind(router, world, tasks)


def _blind(router: Router, world: World, tasks: int) -> tuple[float, float]:
    found = []
    for index in range(tasks):
        job = world.job(index)
        task = Task(id=job.name, goal=f"task {index}", dimension="simulated")
        while not job.over:
            role, tokens = role_of(job), world.prompt_tokens(job)
            decision = router.decide(task, role, step=str(job.calls), prompt_tokens=tokens)
            effect = world.call(job, index, decision.model.name)
            outcome = Outcome(
                call_id=f"{job.name}-{job.calls}",
                prompt_tokens=effect.prompt_tokens,
                completion_tokens=effect.completion_tokens,
                seconds=effect.seconds,
            )
            router.observe(decision, outcome, output=f"output {job.calls} of {job.name}")
        router.finish(job.name, success=job.success)
        found.append((job.success, job.calls))
    solved, calls = np.mean(found, axis=0)
    return float(solved), float(calls)


def study(hosts: tuple[str, ...], seeds: int, tasks: int) -> dict[str, Any]:
    """Tasks solved and calls per task, per host and rule, and the differences from no credit, paired by seed; plain JSON values."""
    found: dict[str, Any] = {}
    for host in hosts:
        runs = {rule: np.array([outcomes(host, rule, seed, tasks) for seed in range(seeds)]) for rule in RULES}
        for rule, table in runs.items():
            gap = table - runs["none"]
            found[f"{host}, {rule}"] = {
                "solved %": mean_interval((100 * table[:, 0]).tolist())[::2],
                "calls": mean_interval(table[:, 1].tolist())[::2],
                "more solved than with none, points": mean_interval((100 * gap[:, 0]).tolist())[::2],
                "more calls": mean_interval(gap[:, 1].tolist())[::2],
            }
    return found


def main(
    seeds: Annotated[int, typer.Option(min=2, help="Runs per host and rule, paired.")] = 20,
    tasks: Annotated[int, typer.Option(min=20, help="Tasks per run.")] = 150,
    host: Annotated[str, typer.Option(help="checked, blind or both.")] = "both",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare the rules of delayed credit, and print means with 95 % intervals over seeds."""
    if host not in (*HOSTS, "both"):
        raise typer.BadParameter(f"host: seen {host!r}; allowed: {', '.join(HOSTS)}, both")
    found = study(HOSTS if host == "both" else (host,), seeds, tasks)
    if as_json:
        sys.stdout.write(json.dumps({"seeds": seeds, "tasks": tasks, "rules": found}, indent=1) + "\n")
        return
    for name, row in found.items():
        parts = [f"{key} {value[0]:.2f} ± {value[1]:.2f}" for key, value in row.items()]
        sys.stdout.write(f"{name}: {'; '.join(parts)}\n")


if __name__ == "__main__":
    typer.run(main)
