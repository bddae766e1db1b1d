"""The seam of gain estimators."""

from __future__ import annotations

from typing import Protocol

from steproute.policies.base import Feedback, Floats, StepContext


class GainEstimator(Protocol):
    """Predicts the gain ŷ(m, s) of every candidate and learns from what happened."""

    def predict(self, context: StepContext) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the gain per candidate, each of shape (n,)."""
        ...

    def learn(self, feedback: Feedback) -> None:
        """Take in one observed gain."""
        ...
