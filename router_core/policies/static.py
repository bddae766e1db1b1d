"""A classifier that is trained once and then stays as it is: the frame of `logreg` and `decision-tree`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from pydantic import Field

from steproute.errors import ConfigError
from steproute.policies.base import Feedback, Floats, PolicyConfig, Scores, StepContext
from steproute.policies.features import describe
from steproute.policies.rewards import expected_worth


@dataclass(frozen=True, slots=True)
class Example:
    """One step whose result is known."""

    x: Floats
    """Description of the step, see `describe`."""
    model: str
    gain: float
    """Share of what was left that the model gained, in [0, 1]."""


class Predictor(Protocol):
    """What training gives."""

    def __call__(self, x: Floats) -> float:
        """Expected gain of one model for a step of this description, in [0, 1]."""
        ...


class StaticConfig(PolicyConfig):
    """Settings that both share."""

    warmup: int = Field(default=200, ge=1)
    """Steps with uniform draws that are collected before the one training; `fit` trains without them."""
    least: int = Field(default=5, ge=1)
    """Examples a model needs for a predictor of its own; with fewer the mean of all examples stands in."""
    buckets: int = Field(default=32, ge=2, le=1024)
    """Entries that the hashed names of dimension, source and role share."""


class StaticPolicy:
    """One predictor per model, trained once. Expected gain minus the stated worth of the expected cost decides."""

    name = "static"

    def __init__(self, config: StaticConfig):
        self.settings = config
        self._examples: list[Example] = []
        self._predictors: dict[str, Predictor] = {}
        self._mean = 0.5
        self.trained = False

    def example(self, context: StepContext, model: str, gain: float) -> Example:
        """A known result as training material, e.g. from a table of results.

        Args:
            context: the step.
            model: which model served it.
            gain: what it gained, in progress.
        """
        left = 1.0 - context.progress.g
        share = min(max(gain / left, 0.0), 1.0) if left > 1e-9 else 0.0
        return Example(describe(context, self.settings.buckets), model, share)

    def fit(self, examples: Sequence[Example]) -> None:
        """Train on these and never again, unless called again.

        Raises:
            ConfigError: no examples, a gain outside [0, 1], or a description of the wrong length.
        """
        if not examples:
            raise ConfigError(f"policy {self.name}: fit: seen no examples; needed: at least one")
        shape = examples[0].x.shape
        for item in examples:
            if item.x.shape != shape or not np.isfinite(item.x).all():
                raise ConfigError(
                    f"policy {self.name}: fit: seen a description of shape {item.x.shape}; allowed: {shape}"
                )
            if not (math.isfinite(item.gain) and 0 <= item.gain <= 1):
                raise ConfigError(f"policy {self.name}: fit: gain: seen {item.gain!r}; allowed: 0 to 1")
        by_model: dict[str, list[Example]] = {}
        for item in examples:
            by_model.setdefault(item.model, []).append(item)
        self._mean = sum(item.gain for item in examples) / len(examples)
        self._predictors = {
            model: self._train(np.array([item.x for item in items]), np.array([item.gain for item in items]))
            for model, items in by_model.items()
            if len(items) >= self.settings.least
        }
        self.trained, self._examples = True, []

    def score(self, context: StepContext) -> Scores:
        """Predicted gain minus the worth of the cost; uniform draws until it is trained."""
        n = len(context.candidates)
        if not self.trained:
            return Scores(np.zeros(n), propensities=np.full(n, 1 / n), reason="collecting examples by uniform draws")
        x = describe(context, self.settings.buckets)
        left = 1.0 - context.progress.g
        gains = [
            left * (self._predictors[name](x) if name in self._predictors else self._mean) for name in context.names
        ]
        costs = expected_worth(context)
        terms = [{"gain": gain, "-cost": -float(cost)} for gain, cost in zip(gains, costs, strict=True)]
        return Scores(np.array(gains) - costs, terms, reason=f"highest gain by {self.name}, trained once")

    def learn(self, feedback: Feedback) -> None:
        """Collect an example until there are enough to train on; nothing after that."""
        if self.trained:
            return
        self._examples.append(self.example(feedback.context, feedback.context.names[feedback.index], feedback.gain))
        if len(self._examples) >= self.settings.warmup:
            self.fit(self._examples)

    def _train(self, x: Floats, gains: Floats) -> Predictor:
        raise NotImplementedError
