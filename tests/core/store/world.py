"""A small deterministic world: a host with no memory of its own, which goes on wherever its router is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from doubles import FakeClock

from steproute import Budget, Decision, Evidence, Limit, Model, Outcome, Price, Router, Task
from steproute.store import Store

MODELS = {"small": (0.2, 1.0), "middle": (1.0, 8.0), "large": (5.0, 70.0)}
SKILL = {"small": 0.35, "middle": 0.6, "large": 0.85}
STEPS = 4


def models() -> list[Model]:
    return [Model(name, price=Price(input=p, output=3 * p), size_b=size) for name, (p, size) in MODELS.items()]


def make(store: Any, policy: Any = "pacer", **options: Any) -> Router:
    given: dict[str, Any] = {
        "budget": Budget(usd=0.05, seconds=Limit(target=2.0, value=0.01)),
        "seed": 7,
        "explore": 0.1,
        "on_error": "raise",
        "clock": FakeClock(),
    }
    return Router(models(), policy=policy, store=store, **{**given, **options})


def chance(*names: object) -> float:
    """A number in [0, 1) that hangs on the names alone."""
    digest = hashlib.blake2b("/".join(map(str, names)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def tasks(n: int) -> list[Task]:
    return [
        Task(id=f"task-{i}", goal=f"secret goal {i}", domain="code", dimension=f"kind-{i % 3}", source=f"s{i % 2}")
        for i in range(n)
    ]


def outcome(decision: Decision) -> tuple[Outcome, list[Evidence]]:
    """What a call returns: it hangs on task, step and model; now and then it fails."""
    task, step, name = decision.task, decision.step, decision.model.name
    call = f"{task}/{step}/{decision.attempt}/{name}"
    if chance(call, "fails") < 0.06:
        return Outcome(call_id=call, error="503 secret reason", seconds=0.2), []
    score = float(chance(task, step, name) < SKILL[name])
    found = Outcome(
        call_id=call, prompt_tokens=800, completion_tokens=100 + int(100 * chance(call)), seconds=1 + chance(call, "s")
    )
    return found, [
        Evidence(source="syntax", score=1.0),
        Evidence(source="examples", score=score, count=4, detail="why"),
    ]


def step(router: Router, task: Task, extra: Mapping[str, Any] | None = None) -> Decision:
    """The next step of a task, to its answer."""
    key = str(len(found.steps)) if (found := router.ledger(task.id)) is not None else "0"
    while True:
        text = f"secret text {key} of kind {task.dimension}"
        decision = router.decide(task, "coder", step=key, prompt_tokens=800, max_tokens=300, text=text, extra=extra)
        result, evidence = outcome(decision)
        router.observe(decision, result, output=f"secret output {key}", evidence=evidence)
        if result.error is None:
            if chance(task.id, key, "late") < 0.2:
                router.report(task.id, [Evidence(source="judge", score=0.8)], decision)
            return decision


def run(router: Router, n: int, extra: Mapping[str, Any] | None = None) -> Iterator[tuple[str, str, int, str, float]]:
    """Every task to its end, one after the other; yields what was decided: task, step, attempt, model, propensity."""
    for task in tasks(n):
        if router.ended(task.id):
            continue
        while router.ledger(task.id) is None or len(router.ledger(task.id).steps) < STEPS:  # type: ignore[union-attr]
            decision = step(router, task, extra)
            yield decision.task, decision.step, decision.attempt, decision.model.name, decision.propensity
        success = chance(task.id, "end") < 0.5
        router.finish(task.id, success=success)


def crash(router: Router) -> None:
    """The process is gone: what was not committed is lost, the system frees its locks."""
    router._log.connection.close()  # type: ignore[union-attr]


def store(path: Any, **more: Any) -> Store:
    return Store(path, **more)
