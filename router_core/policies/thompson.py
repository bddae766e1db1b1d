"""Gaussian Thompson sampling per context group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
from pydantic import Field

from steproute.policies.base import Feedback, Floats, PolicyConfig, Scores, StepContext
from steproute.policies.rewards import RewardTable, group_of, reward

_POINTS = 33
_QUANTILES: Floats = np.array([NormalDist().inv_cdf((i + 0.5) / _POINTS) for i in range(_POINTS)])


class Thompson:
    """Draws a model with the probability that it is the best one, given the rewards of its context group.

    Normal posteriors whose prior mean is the group's own mean, so that a hard group does not make its usual model look
    weak. Instead of one draw per model the probability of being best is worked out, which is the same distribution and
    leaves a true propensity in the log (with `sample`, means and spreads from which it follows).
    """

    name = "thompson"

    class Config(PolicyConfig):
        """Settings of `thompson`."""

        strength: float = Field(default=2.0, gt=0)
        """How many rewards the group's mean is worth for each of its models."""
        noise: float = Field(default=0.35, gt=0)
        """Standard deviation of one reward."""
        spread: float = Field(default=0.5, gt=0)
        """Factor on the standard deviation of the posterior: below 1 explores less than the model would have it."""
        depth: int | None = Field(default=None, ge=0)
        """Levels of the context group (dimension, source, role) that are told apart; None = all."""
        sample: bool = False
        """True = one draw per model decides, which is quicker; the propensity is then worked out by `steproute evaluate`, from
        the means and spreads in the log."""

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()
        self._table = RewardTable()

    def score(self, context: StepContext) -> Scores:
        """Posterior means as values, probabilities of being best as propensities."""
        config = self.config
        group = group_of(context, config.depth)
        centre = self._table.centre(group)
        cells = [self._table.cell(group, name) for name in context.names]
        means = np.array([cell.mean(centre, config.strength) for cell in cells])
        sds = np.array([config.spread * config.noise / math.sqrt(cell.n + config.strength) for cell in cells])
        if config.sample:
            drawn = means + sds * context.rng.standard_normal(len(means))
            logged = [
                {"mean": float(m), "sd": float(s), "drawn": float(d)} for m, s, d in zip(means, sds, drawn, strict=True)
            ]
            return Scores(drawn, logged, reason="drawn from what each may be worth")
        terms = [{"mean": float(mean), "sd": float(sd)} for mean, sd in zip(means, sds, strict=True)]
        return Scores(means, terms, propensities=best_probabilities(means, sds), reason="drawn as likely to be best")

    def learn(self, feedback: Feedback) -> None:
        """Take in one reward."""
        group = group_of(feedback.context, self.config.depth)
        self._table.add(group, feedback.context.names[feedback.index], reward(feedback))

    def state(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values."""
        return self._table.state()

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave; see `RewardTable.load`."""
        self._table.load(state)


def best_probabilities(means: Floats, sds: Floats) -> Floats:
    """P(X_i is the largest) for independent normal variables.

    Each is ∫ φ_i·Π_{j≠i} Φ_j, taken at the middles of 33 equally likely slices of X_i.

    Args:
        means: shape (n,).
        sds: above 0, shape (n,).

    Returns:
        Shape (n,), summing to 1.
    """
    points = means[:, None] + sds[:, None] * _QUANTILES
    below = _phi((points[:, :, None] - means) / sds)
    own = np.arange(len(means))
    below[own, :, own] = 1.0
    chances = below.prod(axis=2).mean(axis=1)
    total = float(chances.sum())
    if total <= 0:
        return np.asarray(means == means.max(), dtype=np.float64)
    result: Floats = chances / total
    return result


def _phi(z: Floats) -> Floats:
    """Normal distribution function, to 2e-4 (logistic approximation of Page, 1977)."""
    result: Floats = 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    return result
