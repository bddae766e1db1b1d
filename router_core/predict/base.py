"""The seam of gain estimators."""

from __future__ import annotations

from typing import Protocol

from steproute.policies.base import Feedback, StepContext, Values


class GainEstimator(Protocol):
    """Predicts the gain ŷ(m, s) of every candidate and learns from what happened."""

    def predict(self, context: StepContext) -> tuple[Values, Values]:
        """Mean and standard deviation of the gain per candidate, n numbers each."""
        ...

    def learn(self, feedback: Feedback) -> None:
        """Take in one observed gain."""
        ...
