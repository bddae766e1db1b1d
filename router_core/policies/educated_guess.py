"""Educated guess: past performance of each model and nothing else, neither the task nor its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from steproute.policies.base import Feedback, PolicyConfig, Scores, StepContext
from steproute.policies.rewards import RewardTable, reward


class EducatedGuess:
    """Draws models in proportion to their past success, or takes the best one (a baseline of ProgRouter's table 1)."""

    name = "educated-guess"

    class Config(PolicyConfig):
        """Settings of `educated-guess`."""

        choice: Literal["weighted", "greedy"] = "weighted"
        """Draw by past success, or always take the best."""
        sharpness: float = Field(default=4.0, gt=0)
        """Power on past success in the weights: 1 = in proportion, higher = nearer to greedy."""
        strength: float = Field(default=2.0, gt=0)
        """How many rewards the model's prior quality is worth."""

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()
        self._table = RewardTable()

    def score(self, context: StepContext) -> Scores:
        """Mean reward per model over everything."""
        config = self.config
        means = np.array(
            [self._table.cell((), c.name).mean(c.model.prior, config.strength) for c in context.candidates]
        )
        terms = [{"mean": float(mean)} for mean in means]
        if config.choice == "greedy":
            return Scores(means, terms, reason="best past performance")
        weights = np.maximum(means, 1e-3) ** config.sharpness
        return Scores(means, terms, propensities=weights / weights.sum(), reason="drawn by past performance")

    def learn(self, feedback: Feedback) -> None:
        """Take in one reward."""
        self._table.add((), feedback.context.names[feedback.index], reward(feedback))

    def state(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values."""
        return self._table.state()

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave; see `RewardTable.load`."""
        self._table.load(state)
