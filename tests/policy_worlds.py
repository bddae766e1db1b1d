"""A tiny world where the right answer is known: two kinds of task, each with a model that is good at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from doubles import free, router

from steproute import Evidence, Model, Outcome, Router, Task

GOOD: Mapping[str, str] = {"maths": "a", "code": "b"}
CHANCES = (0.85, 0.25)
TEXTS: Mapping[str, str] = {
    "maths": "integrate the polynomial and simplify the fraction number {}",
    "code": "write a python function that sorts a list of records, ticket {}",
}


def learner(policy: object, models: Sequence[Model] | None = None, seed: int = 0, **options: object) -> Router:
    return router(list(models or free("a", "b", "c")), policy=policy, seed=seed, **options)


def play(
    steps: Router,
    tasks: int,
    seed: int = 0,
    good: Mapping[str, str] = GOOD,
    text: bool = False,
    finish: bool = True,
    start: int = 0,
) -> list[tuple[str, str]]:
    """Tasks of one step each; (dimension, model chosen) of every one."""
    rng = np.random.default_rng(seed)
    chosen = []
    for i in range(start, start + tasks):
        dimension = str(rng.choice(sorted(good)))
        decision = steps.decide(
            Task(id=f"{seed}-{i}", dimension=dimension),
            role="solver",
            prompt_tokens=1000,
            text=TEXTS[dimension].format(i) if text else None,
        )
        chosen.append((dimension, decision.model.name))
        solved = rng.random() < CHANCES[0 if good[dimension] == decision.model.name else 1]
        evidence = [Evidence(source="tests", score=float(solved), count=8)]
        steps.observe(decision, Outcome(prompt_tokens=1000), output=str(i), evidence=evidence)
        if finish:
            steps.finish(decision.task, success=bool(solved))
    return chosen


def hits(chosen: Sequence[tuple[str, str]], good: Mapping[str, str] = GOOD) -> float:
    """Share of tasks that went to their good model."""
    return sum(good[dimension] == name for dimension, name in chosen) / len(chosen)
