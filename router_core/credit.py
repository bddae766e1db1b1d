"""Delayed credit: how the final result of a task reaches back to its steps.

A task that ended with reward R where its steps had shown progress g leaves Δ = R − g unexplained: hidden tests failed, a user
was content. A rule says which share of Δ each step gets; the shares sum to 1, so that the corrected gains sum to R.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from steproute.errors import ConfigError, unknown_name
from steproute.policies.base import Floats


class Credit(Protocol):
    """A rule of delayed credit."""

    name: str

    def shares(self, gains: Floats, trust: Floats) -> Floats:
        """Share of the unexplained rest that each step gets.

        Args:
            gains: observed gain per step, in order, shape (n,), n ≥ 1.
            trust: how far the evidence behind each is trusted, in [0, 1], shape (n,).

        Returns:
            Shape (n,), 0 or more, summing to 1.
        """
        ...


class ProgressCredit:
    """By progress: a step that moved the task is answerable for how it ended.

    A step's weight is ρ·gain⁺ + (1 − ρ)·(the mean gain⁺): progress that nothing vouches for makes no step stand out.
    """

    name = "progress"

    def shares(self, gains: Floats, trust: Floats) -> Floats:
        """See `Credit.shares`."""
        forward = np.maximum(gains, 0.0)
        weights = trust * forward + (1.0 - trust) * forward.mean()
        total = float(weights.sum())
        return weights / total if total > 1e-9 else np.full(len(gains), 1.0 / len(gains))


class UniformCredit:
    """Every step alike."""

    name = "uniform"

    def shares(self, gains: Floats, trust: Floats) -> Floats:
        """See `Credit.shares`."""
        return np.full(len(gains), 1.0 / len(gains))


RULES: Mapping[str, type[ProgressCredit] | type[UniformCredit]] = {
    "progress": ProgressCredit,
    "uniform": UniformCredit,
}


def make_credit(name: str) -> Credit | None:
    """A rule by name; `none` gives None.

    Raises:
        ConfigError: unknown name; names the nearest right one.
    """
    if name == "none":
        return None
    if name not in RULES:
        raise ConfigError(unknown_name("credit", name, [*RULES, "none"]))
    return RULES[name]()


def credited(rule: Credit, gains: Floats, trust: Floats, reward: float, progress: float) -> Floats:
    """Gains with the final result in them.

    Args:
        rule: who gets how much.
        gains: observed gain per step, shape (n,).
        trust: how far the evidence behind each is trusted, in [0, 1], shape (n,).
        reward: final reward R in [0, 1].
        progress: g after the last step.

    Returns:
        gains + (R − g)·shares, shape (n,).
    """
    return gains + (reward - progress) * rule.shares(gains, trust)
