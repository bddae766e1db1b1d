"""Plays simulated tasks through a real router: decide, observe, finish."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from steproute.benchmarks.simulator.summary import summarise_job
from steproute.benchmarks.simulator.view import DOMAIN
from steproute.benchmarks.simulator.world import Job, World
from steproute.ledger import Evidence, Ledger, Outcome, Subtask, Task
from steproute.router import Router


@dataclass
class Played:
    """What came of the tasks, one entry per task, in order."""

    success: list[bool] = field(default_factory=list)
    energy_j: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    share: Counter[str] = field(default_factory=Counter)
    """Calls per model."""


def play(router: Router, world: World, tasks: int, start: int = 0) -> Played:
    """Run tasks one after the other.

    Args:
        router: it learns as it goes.
        world: the workload.
        tasks: how many.
        start: index of the first.
    """
    played = Played()
    for index in range(start, start + tasks):
        job = world.job(index)
        ledger = Ledger(
            task=Task(id=job.name, goal=f"task {index}", domain=DOMAIN, dimension="simulated"),
            subtasks=[Subtask(id=str(number)) for number in range(len(job.parts) + 1)],
        )
        while not job.over:
            step(router, world, job, index, ledger, played)
        spent = router.finish(job.name, success=job.success)
        played.success.append(job.success)
        played.energy_j.append(spent.get("energy_j", 0.0))
        played.seconds.append(spent.get("seconds", 0.0))
        played.calls.append(job.calls)
    return played


def step(router: Router, world: World, job: Job, index: int, ledger: Ledger, played: Played) -> None:
    """One worker call."""
    decision = router.decide(
        ledger,
        role_of(job),
        step=str(job.calls),
        prompt_tokens=world.prompt_tokens(job),
        text=summarise_job(world, job, index),
    )
    name = decision.model.name
    played.share[name] += 1
    effect = world.call(job, index, name)
    for subtask, part in zip(ledger.subtasks, job.parts, strict=False):
        subtask.status = "done" if part.done else "failed" if part.cause else "todo"
    ledger.subtasks[-1].status = "done" if job.integrated else "todo"
    evidence = [Evidence(source="syntax", score=float(effect.parses))]
    if effect.parses:
        evidence.append(Evidence(source="execution", score=float(effect.runs)))
    if effect.runs:
        evidence.append(Evidence(source="examples", score=effect.tests, count=job.tests))
    router.observe(
        decision,
        Outcome(
            call_id=f"{job.name}-{job.calls}",
            prompt_tokens=effect.prompt_tokens,
            completion_tokens=effect.completion_tokens,
            seconds=effect.seconds,
            energy_j=effect.energy_j,
            energy_source="simulated",
        ),
        output=f"{name} wrote this in call {job.calls} of {job.name}. " * 8,
        evidence=evidence,
    )


def role_of(job: Job) -> str:
    """The worker that the coordinator sends: a coder, a fixer after a failure, an integrator at the end."""
    part = job.current
    if part is None:
        return "integrator"
    return "fixer" if part.cause else "coder"
