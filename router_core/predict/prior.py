"""First gain estimator: what the model's own record says, shrunk towards its capability prior."""

from __future__ import annotations

from typing import Any

import numpy as np

from steproute.policies.base import Feedback, Floats, StepContext


class CapabilityPrior:
    """Normal-normal mean of the relative gain per (model, role), in closed form.

    The relative gain z = y / (1 − g) is what share of the remaining progress one call makes. Its prior mean is the
    model's capability prior (`Model.prior`), worth `strength` observations; observations count by their reliability.
    The predicted gain is ŷ = (1 − g)·E[z].
    """

    def __init__(self, strength: float = 4.0, noise: float = 0.4):
        """Start from the priors.

        Args:
            strength: how many observations the prior is worth, > 0.
            noise: standard deviation of one relative gain.
        """
        self.strength, self.noise = strength, noise
        self._sums: dict[tuple[str, str], tuple[float, float]] = {}

    def predict(self, context: StepContext) -> tuple[Floats, Floats]:
        """See `GainEstimator.predict`."""
        remaining = 1.0 - context.progress.g
        n = len(context.candidates)
        mean, sd = np.empty(n), np.empty(n)
        for i, candidate in enumerate(context.candidates):
            weight, total = self._sums.get((candidate.name, context.role), (0.0, 0.0))
            mass = self.strength + weight
            mean[i] = remaining * (self.strength * candidate.model.prior + total) / mass
            sd[i] = remaining * self.noise / mass**0.5
        return mean, sd

    def learn(self, feedback: Feedback) -> None:
        """See `GainEstimator.learn`."""
        remaining = 1.0 - feedback.context.progress.g
        if remaining <= 1e-9:
            return
        key = (feedback.context.candidates[feedback.index].name, feedback.context.role)
        weight, total = self._sums.get(key, (0.0, 0.0))
        z = min(max(feedback.gain / remaining, -1.0), 1.0)
        self._sums[key] = (weight + feedback.reliability, total + feedback.reliability * z)

    def state(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values."""
        return {"sums": [[*key, *sums] for key, sums in self._sums.items()]}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        self._sums = {(str(m), str(role)): (float(weight), float(total)) for m, role, weight, total in state["sums"]}
