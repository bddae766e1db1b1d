"""Disjoint LinUCB (Li et al. 2010, algorithm 1) on a description of the step."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from pydantic import Field

from steproute.errors import ConfigError
from steproute.policies.base import Feedback, Floats, PolicyConfig, Scores, StepContext
from steproute.policies.features import PLAIN, describe
from steproute.policies.rewards import reward


class _Arm:
    """Ridge regression of one model: A⁻¹ and b."""

    __slots__ = ("b", "inverse", "theta")

    def __init__(self, d: int, ridge: float):
        self.inverse: Floats = np.eye(d) / ridge
        self.b: Floats = np.zeros(d)
        self.theta: Floats = np.zeros(d)

    def update(self, x: Floats, value: float) -> None:
        """A ← A + x·xᵀ by Sherman–Morrison, b ← b + value·x."""
        ax = self.inverse @ x
        self.inverse -= np.outer(ax, ax / (1.0 + float(x @ ax)))
        self.b += value * x
        self.theta = self.inverse @ self.b


class LinUCB:
    """θ·x + α·√(xᵀA⁻¹x) per model, each with a regression of its own. A model nobody has called has the widest bound."""

    name = "linucb"

    class Config(PolicyConfig):
        """Settings of `linucb`."""

        alpha: float = Field(default=0.7, ge=0)
        """Width of the upper confidence bound."""
        ridge: float = Field(default=1.0, gt=0)
        """λ: A starts as λ·I."""
        buckets: int = Field(default=32, ge=2, le=1024)
        """Entries that the hashed names of dimension, source and role share."""

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()
        self._arms: dict[str, _Arm] = {}
        self._fresh = _Arm(PLAIN + self.config.buckets, self.config.ridge)

    def score(self, context: StepContext) -> Scores:
        """Upper confidence bounds."""
        x = self._x(context)
        terms = []
        for name in context.names:
            arm = self._arms.get(name, self._fresh)
            bound = self.config.alpha * math.sqrt(max(float(x @ arm.inverse @ x), 0.0))
            terms.append({"mean": float(arm.theta @ x), "bound": bound})
        values = np.array([term["mean"] + term["bound"] for term in terms])
        return Scores(values, terms, reason="highest upper confidence bound")

    def learn(self, feedback: Feedback) -> None:
        """Take in one reward."""
        value = reward(feedback)
        if not math.isfinite(value):
            raise ValueError(f"linucb: reward: seen {value!r}; allowed: a finite number")
        name = feedback.context.names[feedback.index]
        arm = self._arms.get(name)
        if arm is None:
            arm = self._arms[name] = _Arm(PLAIN + self.config.buckets, self.config.ridge)
        arm.update(self._x(feedback.context), value)

    def state(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values."""
        arms = {name: {"inverse": arm.inverse.tolist(), "b": arm.b.tolist()} for name, arm in self._arms.items()}
        return {"d": PLAIN + self.config.buckets, "arms": arms}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave; nothing changes if that fails.

        Raises:
            ConfigError: it was learnt with another number of features.
        """
        d = PLAIN + self.config.buckets
        if state["d"] != d:
            raise ConfigError(f"linucb state: seen {state['d']!r} features; allowed: {d}")
        arms: dict[str, _Arm] = {}
        for name, kept in state["arms"].items():
            arm = arms[str(name)] = _Arm(d, self.config.ridge)
            arm.inverse, arm.b = np.array(kept["inverse"], dtype=np.float64), np.array(kept["b"], dtype=np.float64)
            if arm.inverse.shape != (d, d) or arm.b.shape != (d,):
                raise ConfigError(f"linucb state: {name!r} does not have {d} features")
            arm.theta = arm.inverse @ arm.b
        self._arms = arms

    def _x(self, context: StepContext) -> Floats:
        """The step's description, worked out once for deciding and learning."""
        key = f"linucb:{self.config.buckets}"
        if key not in context.memo:
            context.memo[key] = describe(context, self.config.buckets)
        return cast(Floats, context.memo[key])
