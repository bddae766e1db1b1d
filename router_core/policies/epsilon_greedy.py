"""ε-greedy: the best mean reward of the context group, and now and then any model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from steproute.policies.base import Feedback, PolicyConfig, Scores, StepContext
from steproute.policies.rewards import RewardTable, group_of, reward


class EpsilonGreedy:
    """Means per (context group, model); a share ε of uniform draws that decays with every step learnt from."""

    name = "epsilon-greedy"

    class Config(PolicyConfig):
        """Settings of `epsilon-greedy`."""

        epsilon: float = Field(default=0.3, ge=0, le=1)
        """Share of uniform draws at the start."""
        decay: float = Field(default=0.995, gt=0, le=1)
        """Factor on epsilon after every step learnt from."""
        epsilon_min: float = Field(default=0.02, ge=0, le=1)
        strength: float = Field(default=1.0, gt=0)
        """How many rewards the group's mean is worth for each of its models."""
        depth: int | None = Field(default=None, ge=0)
        """Levels of the context group (dimension, source, role) that are told apart; None = all."""

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()
        self.epsilon = self.config.epsilon
        self._table = RewardTable()

    def score(self, context: StepContext) -> Scores:
        """Mean reward, shrunk towards the group's; logged propensities."""
        group = group_of(context, self.config.depth)
        centre, strength = self._table.centre(group), self.config.strength
        values = np.array([self._table.cell(group, name).mean(centre, strength) for name in context.names])
        n = len(values)
        draw = np.full(n, self.epsilon / n)
        draw[int(np.argmax(values))] += 1 - self.epsilon
        terms = [{"mean": float(value)} for value in values]
        return Scores(values, terms, propensities=draw, reason=f"epsilon-greedy, epsilon {self.epsilon:.3g}")

    def learn(self, feedback: Feedback) -> None:
        """Take in one reward."""
        group = group_of(feedback.context, self.config.depth)
        self._table.add(group, feedback.context.names[feedback.index], reward(feedback))
        self.epsilon = max(self.epsilon * self.config.decay, min(self.config.epsilon_min, self.epsilon))

    def state(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values."""
        return {**self._table.state(), "epsilon": self.epsilon}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave; see `RewardTable.load`."""
        self._table.load(state)
        self.epsilon = min(max(float(state.get("epsilon", self.epsilon)), 0.0), 1.0)
