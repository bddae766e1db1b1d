"""The model with the best mean in the task's dimension, from a given table or as far as it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from steproute.policies.base import Feedback, PolicyConfig, Scores, StepContext
from steproute.policies.rewards import RewardTable, group_of, reward


class DimensionBest:
    """Greedy per dimension. A dimension of the table keeps its table; in any other every model is tried first."""

    name = "dimension-best"

    class Config(PolicyConfig):
        """Settings of `dimension-best`."""

        means: dict[str, dict[str, float]] = Field(default_factory=dict)
        """Dimension → model → mean score, as published. A model that is missing is never preferred."""
        tries: int = Field(default=1, ge=0)
        """Calls of each model in a dimension that has no table, before the best is taken."""

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()
        self._given = {dimension: dict(means) for dimension, means in self.config.means.items()}
        self._table = RewardTable()

    def set_prior(self, group: Sequence[str], means: Mapping[str, float]) -> None:
        """State what is published about a dimension, the first name of the group."""
        if group and means:
            self._given.setdefault(group[0], {}).update(means)

    def score(self, context: StepContext) -> Scores:
        """The mean in the dimension; a model that is still to be tried comes first."""
        group, names = group_of(context, 1), context.names
        dimension = group[0] if group else ""
        given = self._given.get(dimension)
        if given and any(name in given for name in names):
            worst = min(given.values())
            values = np.array([given.get(name, worst - 1.0) for name in names])
            return Scores(values, [{"mean": float(v)} for v in values], reason=f"best of the table in {dimension!r}")
        cells = [self._table.cell(group, name) for name in names]
        means = np.array([cell.mean(0.0, 0.0) if cell.n else 0.0 for cell in cells])
        untried = np.array([max(self.config.tries - cell.n, 0.0) for cell in cells])
        # A reward lies within a few units; an untried model must beat any of them.
        values = means + 1e6 * untried
        terms = [{"mean": float(mean), "tries left": float(left)} for mean, left in zip(means, untried, strict=True)]
        return Scores(
            values, terms, reason="to be tried first" if untried.any() else "best mean of the dimension so far"
        )

    def learn(self, feedback: Feedback) -> None:
        """Take in one reward."""
        self._table.add(group_of(feedback.context, 1), feedback.context.names[feedback.index], reward(feedback))

    def state(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values."""
        return self._table.state()

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave; see `RewardTable.load`."""
        self._table.load(state)
