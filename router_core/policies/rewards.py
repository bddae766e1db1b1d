"""What the bandit baselines learn from: rewards, and their means per context group and model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steproute.errors import ConfigError
from steproute.policies.base import Feedback, Floats, StepContext

Group = tuple[str, ...]
STATE_VERSION = 1


def reward(feedback: Feedback) -> float:
    """Observed gain minus the stated worth of what the call cost: y − Σ_k value_k·cost_k, in units of progress."""
    return feedback.gain - worth(feedback.context, feedback.cost)


def worth(context: StepContext, cost: Mapping[str, float]) -> float:
    """Stated worth of a cost, Σ_k value_k·cost_k; resources without a stated worth are free here."""
    limits = context.budget.limits
    return sum(limits[name].value * amount for name, amount in cost.items() if name in limits)


def expected_worth(context: StepContext) -> Floats:
    """Stated worth of every candidate's expected cost, shape (n,); an unknown cost counts as the dearest known one."""
    total: Floats = np.zeros(len(context.candidates))
    for name, limit in context.budget.limits.items():
        if limit.value:
            total = total + limit.value * context.costs(name)
    return total


def group_of(context: StepContext, depth: int | None) -> Group:
    """The context group up to a depth: 1 = dimension, 2 = and source, 3 = and role; None = all there is."""
    return tuple(context.group[:depth])


@dataclass(slots=True)
class Tally:
    """How often something was seen, and the sum of its rewards."""

    n: float = 0.0
    total: float = 0.0

    def add(self, value: float) -> None:
        """Take in one reward."""
        self.n += 1
        self.total += value

    def mean(self, prior: float, strength: float) -> float:
        """Mean, with a prior that is worth `strength` rewards."""
        return (self.total + strength * prior) / (self.n + strength)


class RewardTable:
    """Mean reward per (group, model). Models that nobody asks about any more do no harm."""

    def __init__(self) -> None:
        self._cells: dict[tuple[Group, str], Tally] = {}
        self._groups: dict[Group, Tally] = {}
        self._all = Tally()

    def add(self, group: Group, model: str, value: float) -> None:
        """Take in one reward; one that is not finite is refused.

        Raises:
            ValueError: the reward is not finite.
        """
        if not math.isfinite(value):
            raise ValueError(f"reward of {model!r}: seen {value!r}; allowed: a finite number")
        self._cells.setdefault((group, model), Tally()).add(value)
        self._groups.setdefault(group, Tally()).add(value)
        self._all.add(value)

    def cell(self, group: Group, model: str) -> Tally:
        """What is known of one model in one group."""
        return self._cells.get((group, model)) or Tally()

    def centre(self, group: Group) -> float:
        """Mean reward of the group over all models; the mean of everything is worth one reward of it, .5 one of that."""
        return (self._groups.get(group) or Tally()).mean(self._all.mean(0.5, 1.0), 1.0)

    # --- state -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values."""
        cells = [[list(group), model, cell.n, cell.total] for (group, model), cell in self._cells.items()]
        sums = [[list(group), cell.n, cell.total] for group, cell in self._groups.items()]
        return {"version": STATE_VERSION, "cells": cells, "groups": sums, "all": [self._all.n, self._all.total]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave; nothing changes if that fails.

        Raises:
            ConfigError: the state is of another version or malformed.
        """
        version = state.get("version") if isinstance(state, Mapping) else None
        if version != STATE_VERSION:
            raise ConfigError(f"reward state: version: seen {version!r}; allowed: {STATE_VERSION}")
        try:
            rows = [_cell(row) for row in state["cells"]]
            # Sums in the order in which they came: added up from the cells, their last bits could differ.
            groups = [_cell([group, "", *sums]) for group, *sums in state.get("groups", ())]
            everything = _cell([(), "", *state["all"]]) if groups else None
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"reward state: cells: {error}") from None
        self._cells, self._groups, self._all = {}, {}, Tally()
        for group, model, n, total in rows:
            self._cells[group, model] = Tally(n, total)
            for above in (self._groups.setdefault(group, Tally()), self._all):
                above.n += n
                above.total += total
        for group, _, n, total in groups:
            self._groups[group] = Tally(n, total)
        if everything is not None:
            self._all = Tally(*everything[2:])


def _cell(row: Sequence[Any]) -> tuple[Group, str, float, float]:
    group, model, n, total = row
    if not (math.isfinite(n) and math.isfinite(total) and n >= 0):
        raise ValueError(f"seen {[n, total]} for {model!r}; allowed: a count of 0 or more and a finite sum")
    return tuple(str(name) for name in group), str(model), float(n), float(total)
