"""One choice per role at the start of a task, kept until it ends (the way of MasRouter)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from steproute.ledger import Ledger
from steproute.policies.base import PolicyConfig, Scores, StepContext
from steproute.policies.rewards import Group, RewardTable, worth
from steproute.policies.thompson import best_probabilities
from steproute.taskstate import OpenStep


class TaskLevel:
    """Draws a model for each role when the role first speaks; learns from the result of the whole task.

    What was chosen is read from the ledger, so a resumed task keeps its choice. Each choice is credited with the task's
    final reward minus the stated worth of what its role spent; without a final reward, with the progress reached.
    """

    name = "task-level"

    class Config(PolicyConfig):
        """Settings of `task-level`."""

        strength: float = Field(default=2.0, gt=0)
        """How many results the group's mean is worth for each of its models."""
        noise: float = Field(default=0.35, gt=0)
        """Standard deviation of one result."""
        spread: float = Field(default=0.5, gt=0)
        """Factor on the standard deviation of the posterior that is drawn from."""

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()
        self._table = RewardTable()

    def score(self, context: StepContext) -> Scores:
        """The role's model of this task; at the role's first step a draw by the probability of being best."""
        names, config = context.names, self.config
        kept = next((step.model for step in context.ledger.steps if step.role == context.role and step.model), None)
        if kept in names:
            values = np.array([float(name == kept) for name in names])
            return Scores(values, reason=f"{kept} was chosen for role {context.role or '-'} when the task began")
        group = _group(context)
        centre = self._table.centre(group)
        cells = [self._table.cell(group, name) for name in names]
        means = np.array([cell.mean(centre, config.strength) for cell in cells])
        sds = np.array([config.spread * config.noise / math.sqrt(cell.n + config.strength) for cell in cells])
        terms = [{"mean": float(mean), "sd": float(sd)} for mean, sd in zip(means, sds, strict=True)]
        return Scores(means, terms, propensities=best_probabilities(means, sds), reason="chosen for the whole task")

    def finish(self, ledger: Ledger, steps: Sequence[OpenStep], reward: float | None) -> None:
        """Credit every role's choice with the task's result."""
        result = reward
        if result is None:
            result = next((step.g for step in reversed(ledger.steps) if step.g is not None), None)
        if result is None or not steps:
            return
        choices: dict[str, tuple[Group, str]] = {}
        costs: dict[str, float] = {}
        for item in steps:
            role = item.context.role
            choices.setdefault(role, (_group(item.context), item.step.model))
            costs[role] = costs.get(role, 0.0) + worth(item.context, item.spent)
        for role, (group, model) in choices.items():
            self._table.add(group, model, result - costs[role])

    def state(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values."""
        return self._table.state()

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave; see `RewardTable.load`."""
        self._table.load(state)


def _group(context: StepContext) -> Group:
    """What is known of a task when it begins, and the role."""
    return (*context.group[:2], context.role)
