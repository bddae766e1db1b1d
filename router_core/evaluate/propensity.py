"""The chance with which a decision chose what it chose: as logged, or worked out from each arm's mean and spread.

A policy that samples from its posterior draws one number per arm and takes the largest. How likely each arm was to have the
largest is an integral; it is worked out here, when a log is evaluated, and not at the decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from steproute.errors import ConfigError

Floats = npt.NDArray[np.float64]
DRAWN = "drawn"
"""Term of a candidate's score by which a policy says that it drew one normal number per arm, with `mean` and `sd` beside it."""
REACH = 8.0
"""The integral goes so many standard deviations to both sides."""
FINEST = 4000
"""Most points of the grid: an arm narrower than what they resolve is widened to it."""


def best_chances(means: Floats, sds: Floats) -> Floats:
    """P(X_i is the largest) of independent normal variables, ∫ φ_i·Π_{j≠i} Φ_j.

    The trapezoid rule on one even grid, half as fine as the narrowest arm: exact to 1e-6, since the integrand is smooth and
    vanishes at both ends.

    Args:
        means: shape (n,).
        sds: 0 or more, shape (n,).

    Returns:
        Shape (n,), summing to 1. Arms without any spread that are equally good share alike.

    Raises:
        ConfigError: a number is not finite, or a spread is negative.
    """
    means, sds = np.asarray(means, dtype=np.float64), np.asarray(sds, dtype=np.float64)
    if not (np.isfinite(means).all() and np.isfinite(sds).all() and (sds >= 0).all()):
        raise ConfigError(
            f"propensity: seen means {means.tolist()}, spreads {sds.tolist()}; allowed: finite, spreads of 0 or more"
        )
    low, high = float((means - REACH * sds).max()), float((means + REACH * sds).max())
    if high <= low:  # the best arm is certain
        best = (means >= means.max() - 1e-12) & (sds <= 0)
        return np.asarray(best / best.sum(), dtype=np.float64)
    narrow = np.maximum(sds, 2.0 * (high - low) / FINEST)
    low, high = float((means - REACH * narrow).max()), float((means + REACH * narrow).max())  # below, one arm is larger
    step = 0.5 * float(narrow.min())
    grid = np.arange(low, high + step, step)
    z = (grid[None, :] - means[:, None]) / narrow[:, None]
    below = normal_cdf(z)
    density = np.exp(-0.5 * z * z) / (narrow[:, None] * np.sqrt(2 * np.pi))
    n = len(means)
    before, after = np.ones_like(below), np.ones_like(below)
    for i in range(1, n):
        before[i] = before[i - 1] * below[i - 1]
        after[n - 1 - i] = after[n - i] * below[n - i]
    chances = (density * before * after).sum(axis=1) * step
    return np.asarray(chances / chances.sum(), dtype=np.float64)


def normal_cdf(z: Floats) -> Floats:
    """Normal distribution function, to 1.5e-7 (Hastings, 1955: Abramowitz & Stegun 7.1.26)."""
    x = np.abs(z) / np.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * x)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    upper = 0.5 * series * np.exp(-x * x)
    return np.asarray(np.where(z >= 0, 1.0 - upper, upper), dtype=np.float64)


def floored(chances: Floats, explore: float) -> Floats:
    """Chances with a uniform share in them, as `Router(explore=...)` mixes it in; shape (n,)."""
    return (1.0 - explore) * chances + explore / len(chances)


def sampled(terms: Sequence[Mapping[str, float]]) -> Floats | None:
    """Chances of a posterior-sampling policy from the terms of its scores; None where nothing was drawn."""
    if not terms or any(DRAWN not in item for item in terms):
        return None
    return best_chances(np.array([item["mean"] for item in terms]), np.array([item["sd"] for item in terms]))


def logged_propensities(candidates: Sequence[Mapping[str, Any]], where: str) -> Floats:
    """Chance of each scored candidate under the policy that ran.

    Args:
        candidates: what the store logged of each: `propensity` and `terms`.
        where: names the decision in errors.

    Returns:
        Shape (n,).

    Raises:
        ConfigError: the log has no propensities.
    """
    given = [item.get("propensity") for item in candidates]
    if not given or any(value is None or not 0 <= value <= 1 for value in given) or not 0.99 < sum(given) < 1.01:  # type: ignore[arg-type]
        raise ConfigError(f"{where}: propensities: seen {given}; allowed: one per candidate in [0, 1], 1 in all")
    known = np.array(given, dtype=np.float64)
    chances = sampled([item.get("terms") or {} for item in candidates])
    if chances is None:
        return known
    return floored(chances, len(known) * float(known.min()) if len(known) > 1 else 0.0)
