"""Baselines that learn nothing themselves: fixed, random, cheapest, strongest, naive ratio, and the oracle."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from steproute.errors import ConfigError, unknown_name
from steproute.policies.base import Floats, PolicyConfig, Scores, StepContext

COST_ORDER = ("usd", "energy_j", "seconds", "tokens")


def total_cost(context: StepContext, resource: str | None = None) -> Floats:
    """Cost per candidate in the first resource in which candidates differ: USD, joules, seconds, tokens.

    Args:
        context: the step.
        resource: this one and no other; None = chosen as above.

    Returns:
        Shape (n,), in the unit of that resource.
    """
    if resource is not None:
        return context.costs(resource)
    for name in COST_ORDER:
        costs = context.costs(name)
        if np.ptp(costs) > 0:
            return costs
    return np.zeros(len(context.candidates))


class Fixed:
    """Always one model (`fixed:NAME`)."""

    argument = "model"

    class Config(PolicyConfig):
        """Settings of `fixed`."""

        model: str
        """Name of the model in the pool."""

    def __init__(self, config: Config):
        self.config = config
        self.name = f"fixed:{config.model}"

    def score(self, context: StepContext) -> Scores:
        """1 for the fixed model; where it cannot serve the step, the strongest candidate stands in."""
        values = np.array([float(name == self.config.model) for name in context.names])
        if values.any():
            return Scores(values, reason=f"fixed to {self.config.model}")
        values = np.array([candidate.model.prior for candidate in context.candidates])
        return Scores(values, reason=f"{self.config.model} cannot serve this step; the strongest eligible model does")

    def check(self, names: list[str]) -> None:
        """Refuse a model the pool does not have."""
        if self.config.model not in names:
            raise ConfigError(unknown_name("policy fixed: model", self.config.model, names))


class Random:
    """Every candidate with the same probability."""

    name = "random"

    def score(self, context: StepContext) -> Scores:
        """Equal scores and equal propensities."""
        n = len(context.candidates)
        return Scores(np.zeros(n), propensities=np.full(n, 1 / n), reason="uniform draw")


class Cheapest:
    """The lowest expected cost."""

    name = "cheapest"

    def score(self, context: StepContext) -> Scores:
        """Minus the cost."""
        costs = total_cost(context)
        return Scores(-costs, [{"cost": -float(cost)} for cost in costs], reason="lowest expected cost")


class Strongest:
    """The highest prior quality."""

    name = "strongest"

    def score(self, context: StepContext) -> Scores:
        """The model's prior."""
        values = np.array([candidate.model.prior for candidate in context.candidates])
        return Scores(values, [{"prior": float(value)} for value in values], reason="highest prior quality")


class NaiveRatio:
    """Predicted gain over cost: the greedy ratio that ProgRouter's ablation shows to collapse (its table 4)."""

    name = "naive-ratio"

    class Config(PolicyConfig):
        """Settings of `naive-ratio`."""

        resource: str | None = None
        """Resource to divide by; None = the first in which candidates differ."""

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()

    def score(self, context: StepContext) -> Scores:
        """ŷ / cost."""
        costs = total_cost(context, self.config.resource)
        values = context.gains / np.maximum(costs, 1e-9)
        terms = [{"gain": float(gain), "cost": float(cost)} for gain, cost in zip(context.gains, costs, strict=True)]
        return Scores(values, terms, reason="highest predicted gain per cost")


class Oracle:
    """Knows the value Q* of every choice. Needs `context.extra["q"]`: model → value, and `"stop"` → value of ending."""

    name = "oracle"
    stops = True
    needs_extra = True
    """Scoring needs what the host says at the decision, which no log keeps: a restart does not score past steps anew."""

    def score(self, context: StepContext) -> Scores:
        """Q*(s, m) as given.

        Raises:
            ConfigError: the host gave no values.
        """
        q = context.extra.get("q")
        if not isinstance(q, Mapping):
            raise ConfigError(
                "policy oracle: extra['q'] is missing; it needs a recording with the value of every choice"
            )
        unknown = [name for name in context.names if name not in q]
        if unknown:
            raise ConfigError(f"policy oracle: extra['q'] has no value for {', '.join(unknown)}")
        values = np.array([float(q[name]) for name in context.names])
        return Scores(
            values, [{"Q*": float(value)} for value in values], reason="highest true value", stop=q.get("stop")
        )
