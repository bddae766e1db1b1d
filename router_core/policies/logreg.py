"""Logistic regression per model, trained once on what was collected (static)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from steproute.policies.base import Floats
from steproute.policies.static import Predictor, StaticConfig, StaticPolicy

_MOST_ROUNDS = 50


class LogReg(StaticPolicy):
    """P(the model solves the step) = 1/(1 + exp(−w·x)), with gains in [0, 1] as soft labels."""

    name = "logreg"

    class Config(StaticConfig):
        """Settings of `logreg`."""

        ridge: float = Field(default=1.0, gt=0)
        """Weight of the penalty ½·ridge·‖w‖²; the bias is free of it."""

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()
        super().__init__(self.config)

    def _train(self, x: Floats, gains: Floats) -> Predictor:
        return _Sigmoid(fit_logistic(x, gains, self.config.ridge))

    def _predictor(self, state: Any, width: int) -> Predictor:
        weights = np.array(state, dtype=np.float64)
        if weights.shape != (width,) or not np.isfinite(weights).all():
            raise ValueError(f"weights: seen shape {weights.shape}; allowed: {width} finite numbers")
        return _Sigmoid(weights)


@dataclass(frozen=True, slots=True)
class _Sigmoid:
    weights: Floats

    def __call__(self, x: Floats) -> float:
        return 1.0 / (1.0 + math.exp(-min(max(float(self.weights @ x), -500.0), 500.0)))

    def state(self) -> list[Any]:
        """The weights."""
        found: list[Any] = self.weights.tolist()
        return found


def fit_logistic(x: Floats, y: Floats, ridge: float) -> Floats:
    """Weights that maximise Σ y·log p + (1 − y)·log(1 − p) − ½·ridge·‖w without bias‖², by Newton's method.

    Args:
        x: shape (n, d); the first column is the bias.
        y: labels in [0, 1], shape (n,).
        ridge: above 0.

    Returns:
        Shape (d,).
    """
    penalty = np.full(x.shape[1], ridge)
    penalty[0] = 1e-3 * ridge  # all labels alike would send a free bias to infinity
    weights: Floats = np.zeros(x.shape[1])

    def loss(w: Floats) -> float:
        z = x @ w
        return float(np.sum(np.logaddexp(0.0, z) - y * z) + 0.5 * np.sum(penalty * w * w))

    for _ in range(_MOST_ROUNDS):
        p = 1.0 / (1.0 + np.exp(-np.clip(x @ weights, -500, 500)))
        gradient = x.T @ (p - y) + penalty * weights
        if float(np.abs(gradient).max()) < 1e-8:
            break
        step = np.linalg.solve((x.T * (p * (1 - p))) @ x + np.diag(penalty), gradient)
        size = 1.0
        while size > 1e-6 and loss(weights - size * step) > loss(weights):
            size /= 2
        weights = weights - size * step
    return weights
