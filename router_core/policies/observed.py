"""What a policy that learns scores, and not gains, reads from feedback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steproute.policies.base import Feedback


def observed_score(feedback: Feedback) -> float:
    """Verified score of the step in [0, 1]: mean over what was checked; progress after the step where nothing was."""
    seen = [item.score for item in feedback.evidence if item.count > 0]
    return sum(seen) / len(seen) if seen else feedback.progress.g


def dimension_of(group: tuple[str, ...]) -> str:
    """The coarsest context group, as far as it is known."""
    return next((name for name in group if name), "")


class DimensionMeans:
    """Mean score per (dimension, model), shrunk towards the model's mean everywhere, and that towards its prior.

    Scores count by their distance from the dimension's mean, so that a hard dimension does not make its usual model
    look weak.
    """

    def __init__(self, strength: float = 4.0):
        """Fix how many observations a coarser mean is worth."""
        self.strength = strength
        self._groups: dict[str, tuple[float, float]] = {}
        self._cells: dict[str, dict[str, tuple[float, float]]] = {}

    def add(self, dimension: str, model: str, score: float) -> None:
        """Take in one score in [0, 1]."""
        self._count(dimension, model, score, 1.0)

    def set_prior(self, dimension: str, means: Mapping[str, float], weight: float = 20.0) -> None:
        """State published means of a dimension, each worth so many observations."""
        for model, mean in means.items():
            self._count(dimension, model, mean, weight)

    def group_mean(self, dimension: str) -> float:
        """Mean score in a dimension; .5 is worth one observation."""
        weight, total = self._groups.get(dimension, (0.0, 0.0))
        return (total + 0.5) / (weight + 1.0)

    def estimate(self, dimension: str, models: Mapping[str, float]) -> dict[str, float]:
        """Expected score per model.

        Args:
            dimension: where.
            models: name → prior score in [0, 1]; only differences between priors count.
        """
        centre = self.group_mean(dimension)
        middle = sum(models.values()) / len(models)
        found = {}
        for name, prior in models.items():
            cells = self._cells.get(name, {})
            weight = sum(count for count, _ in cells.values())
            total = sum(total - count * self.group_mean(group) for group, (count, total) in cells.items())
            everywhere = (total + self.strength * (prior - middle)) / (weight + self.strength)
            count, here = cells.get(dimension, (0.0, 0.0))
            found[name] = centre + (here - count * centre + self.strength * everywhere) / (count + self.strength)
        return found

    def counted(self, dimension: str, model: str) -> tuple[int, float]:
        """How many scores are known, and their mean (the dimension's mean where there are none)."""
        count, total = self._cells.get(model, {}).get(dimension, (0.0, 0.0))
        return int(count), total / count if count else self.group_mean(dimension)

    def state(self) -> dict[str, Any]:
        """Everything known, as plain JSON values."""
        cells = {model: {group: list(sums) for group, sums in cells.items()} for model, cells in self._cells.items()}
        return {"groups": {group: list(sums) for group, sums in self._groups.items()}, "cells": cells}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave; nothing changes if that fails.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the state is malformed.
        """
        groups = _sums(state["groups"])
        self._groups, self._cells = groups, {str(model): _sums(cells) for model, cells in state["cells"].items()}

    def _count(self, dimension: str, model: str, score: float, weight: float) -> None:
        for table in (self._groups, self._cells.setdefault(model, {})):
            count, total = table.get(dimension, (0.0, 0.0))
            table[dimension] = (count + weight, total + weight * score)


def _sums(found: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    return {str(group): (float(count), float(total)) for group, (count, total) in found.items()}
