"""Stand-ins used across the core's tests: a clock that is set by hand, small pools, policies that do as told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from steproute import Model, Outcome, Price, Router
from steproute.policies import Feedback, Scores, StepContext


class FakeClock:
    """Seconds that pass only when told."""

    def __init__(self, now: float = 1000.0):
        self.now = now

    def __call__(self) -> float:
        return self.now

    def tick(self, seconds: float) -> None:
        self.now += seconds


class Wants:
    """Scores each model as it is told and keeps what it is shown."""

    name = "wants"

    def __init__(self, scores: Mapping[str, float], stop: float | None = None):
        self.scores, self.stop = dict(scores), stop
        self.seen: list[StepContext] = []
        self.learnt: list[Feedback] = []
        self.ends: list[tuple[list[str], float | None]] = []

    def score(self, context: StepContext) -> Scores:
        self.seen.append(context)
        values = np.array([self.scores.get(name, 0.0) for name in context.names])
        return Scores(values, [{"wish": float(value)} for value in values], reason="as told", stop=self.stop)

    def learn(self, feedback: Feedback) -> None:
        self.learnt.append(feedback)

    def finish(self, ledger: object, steps: Sequence[object], reward: float | None) -> None:
        self.ends.append(([step.step.model for step in steps], reward))  # type: ignore[attr-defined]


def priced(name: str, usd_per_call: float, **more: object) -> Model:
    """A model whose call of 1,000 prompt tokens and no completion costs so many dollars."""
    return Model(name, price=Price(input=usd_per_call * 1000, output=0), **more)  # type: ignore[arg-type]


def free(*names: str) -> list[Model]:
    return [Model(name, price="free") for name in names]


def router(models: Sequence[Model] | None = None, **options: object) -> Router:
    """A router for tests: faults are raised, the clock stands still, the first of a, b, c is wanted most."""
    given: dict[str, object] = {
        "policy": Wants({"a": 3, "b": 2, "c": 1}),
        "on_error": "raise",
        "clock": FakeClock(),
        "seed": 0,
    }
    return Router(models or free("a", "b", "c"), **{**given, **options})  # type: ignore[arg-type]


def paid(usd: float, **more: object) -> Outcome:
    return Outcome(usd=usd, **more)  # type: ignore[arg-type]
