"""A classifier that is trained once and then stays as it is: the frame of `logreg` and `decision-tree`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from pydantic import Field

from steproute.errors import ConfigError
from steproute.policies.base import Feedback, Floats, PolicyConfig, Scores, StepContext
from steproute.policies.features import PLAIN, describe
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

    def state(self) -> list[Any]:
        """As plain JSON values."""
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
        self._given = False
        """Trained by a caller: what a store kept of an earlier training is older than that."""

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
        self._fit(examples)
        self._given = True

    def _fit(self, examples: Sequence[Example]) -> None:
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
            self._fit(self._examples)

    def state(self) -> dict[str, Any]:
        """The predictors, or the examples collected so far, as plain JSON values."""
        return {
            "trained": self.trained,
            "mean": self._mean,
            "examples": [[item.x.tolist(), item.model, item.gain] for item in self._examples],
            "predictors": {model: predictor.state() for model, predictor in self._predictors.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave; a policy that a caller trained by `fit` stays as it is.

        Raises:
            ConfigError: the state is malformed, or of steps that were described in another length.
        """
        width = PLAIN + self.settings.buckets
        try:
            examples = [Example(np.array(x, dtype=np.float64), str(m), float(gain)) for x, m, gain in state["examples"]]
            if any(item.x.shape != (width,) for item in examples):
                raise ValueError(f"examples: seen another length of descriptions; allowed: {width}")
            predictors = {str(model): self._predictor(kept, width) for model, kept in state["predictors"].items()}
            trained, mean = state["trained"], float(state["mean"])
            if not isinstance(trained, bool):
                raise TypeError(f"trained: seen {trained!r}; allowed: true or false")
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{self.name} state: {type(error).__name__}: {error}") from None
        if not self._given:
            self._examples, self._predictors, self.trained, self._mean = examples, predictors, trained, mean

    def _train(self, x: Floats, gains: Floats) -> Predictor:
        raise NotImplementedError

    def _predictor(self, state: Any, width: int) -> Predictor:
        """A predictor from its state; raises ValueError where it is for descriptions of another width."""
        raise NotImplementedError
