"""Shared by the tests of the LangGraph plugin: two models, what a call costs, and a policy that is told what to do."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from steproute import Model, Price
from steproute.policies import Feedback, Scores, StepContext

SMALL = Model("small", price=Price(input=1, output=2), quality=0.3, max_output=100)
LARGE = Model("large", price=Price(input=10, output=20), quality=0.9, max_output=100)
CALL = {"small": 11 * 1e-6 + 17 * 2e-6, "large": 11 * 10e-6 + 17 * 20e-6}
"""USD of one call of the fake server: 11 prompt and 17 completion tokens."""


@dataclass
class Turns:
    """A policy that takes models in turn, whatever they cost, and keeps what it is taught."""

    order: tuple[str, ...] = ("large", "small")
    name: str = "turns"
    asked: int = 0
    learnt: list[tuple[str, str, float]] = field(default_factory=list)
    contexts: list[StepContext] = field(default_factory=list)

    def score(self, context: StepContext) -> Scores:
        wanted = self.order[self.asked % len(self.order)]
        self.asked += 1
        self.contexts.append(context)
        return Scores(np.array([float(name == wanted) for name in context.names]), reason=f"turn {self.asked}")

    def learn(self, feedback: Feedback) -> None:
        self.learnt.append((feedback.context.role, feedback.context.names[feedback.index], feedback.gain))
