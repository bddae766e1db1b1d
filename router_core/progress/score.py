"""The progress formula of ProgRouter (arXiv 2608.25992, section 2.2) with regimes that never overlap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from steproute.errors import ConfigError


class Regime(IntEnum):
    """Coarse state of a task, worst to best."""

    INVALID = 0
    RECOVERABLE = 1
    PARTIAL = 2
    COMPLETE = 3

    @property
    def label(self) -> str:
        """Lower-case name for people."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class RegimeWeights:
    """Base score and non-negative weights of one regime: g = base + r·alpha + d·beta + e·gamma."""

    base: float
    alpha: float
    beta: float
    gamma: float

    @property
    def lowest(self) -> float:
        """Smallest g of the regime: r = e = 0, d = −1."""
        return self.base - self.beta

    @property
    def highest(self) -> float:
        """Largest g of the regime: r = d = e = 1."""
        return self.base + self.alpha + self.beta + self.gamma


@dataclass(frozen=True, slots=True)
class Weights:
    """One `RegimeWeights` per regime; ranges must be in [0, 1] and must not overlap."""

    invalid: RegimeWeights = RegimeWeights(0.05, 0.05, 0.05, 0.04)
    recoverable: RegimeWeights = RegimeWeights(0.25, 0.10, 0.05, 0.04)
    partial: RegimeWeights = RegimeWeights(0.50, 0.34, 0.05, 0.09)
    complete: RegimeWeights = RegimeWeights(1.0, 0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        before, name_before = -1.0, ""
        for name in ("invalid", "recoverable", "partial", "complete"):
            item: RegimeWeights = getattr(self, name)
            for part in ("alpha", "beta", "gamma"):
                if not getattr(item, part) >= 0:
                    raise ConfigError(f"progress.{name}.{part}: seen {getattr(item, part)!r}; allowed: 0 or more")
            if not -1e-12 <= item.lowest <= item.highest <= 1 + 1e-12:
                raise ConfigError(
                    f"progress.{name}: g would run from {item.lowest:g} to {item.highest:g}; allowed: within [0, 1]"
                )
            if item.lowest < before - 1e-12:
                raise ConfigError(
                    f"progress.{name}.base: g would start at {item.lowest:g}, below the end {before:g} of {name_before!r}; "
                    "regimes must be in the order invalid < recoverable < partial < complete and must not overlap"
                )
            before, name_before = item.highest, name

    def of(self, regime: Regime) -> RegimeWeights:
        """Weights of a regime."""
        return (self.invalid, self.recoverable, self.partial, self.complete)[regime]


DEFAULT_WEIGHTS = Weights()


@dataclass(frozen=True, slots=True)
class Progress:
    """g(s) and what it is made of: regime, r (share done), d (trend, −1 … 1), e (quality of the last change)."""

    g: float
    regime: Regime
    r: float
    d: float
    e: float

    def as_dict(self) -> dict[str, float | str]:
        """Plain values for logs."""
        return {"g": self.g, "regime": self.regime.label, "r": self.r, "d": self.d, "e": self.e}


def score(regime: Regime, r: float, d: float, e: float, weights: Weights = DEFAULT_WEIGHTS) -> Progress:
    """g(s) = clip(b(c) + α_c·r + β_c·d + γ_c·e, 0, 1).

    Args:
        regime: coarse state c.
        r: share of subtasks and constraints satisfied, in [0, 1].
        d: trend of the last steps, in [−1, 1].
        e: quality of the latest change, in [0, 1].
        weights: b, α, β, γ per regime.

    Raises:
        ValueError: a sub-score is not finite.
    """
    r, d, e = float(min(max(r, 0.0), 1.0)), float(min(max(d, -1.0), 1.0)), float(min(max(e, 0.0), 1.0))
    w = weights.of(regime)
    g = w.base + w.alpha * r + w.beta * d + w.gamma * e
    if not math.isfinite(g):
        raise ValueError(f"a progress view gave sub-scores that are not finite: r={r}, d={d}, e={e}")
    return Progress(min(max(g, 0.0), 1.0), regime, r, d, e)
