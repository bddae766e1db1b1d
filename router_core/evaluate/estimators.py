"""Off-policy estimates from logged propensities, each with a 95 % interval that takes the task as the unit.

With w = π(a|x) / p(a|x), the chance of what was done under the new policy over that under the one that ran:

    IPS    Σ w·r / n                                     (Horvitz & Thompson, 1952)
    SNIPS  Σ w·r / Σ w                                   (Swaminathan & Joachims, 2015)
    DR     Σ (q̂(x, π) + w·(r − q̂(x, a))) / n             (Dudík, Langford & Li, 2011)
    task   Σ_t (Π_{s≤t} w_s)·r_t, its mean over tasks    (per-decision IPS: Precup, Sutton & Singh, 2000)

The first three value one decision in the situations the log came to; the last one a whole task. Steps of a task are not
independent: every variance is that of sums per task (a ratio is linearised around its value).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from steproute.errors import ConfigError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Estimate:
    """A value with its interval."""

    name: str
    value: float
    low: float
    """Lower end of the 95 % interval."""
    high: float
    ess: float
    """Effective sample size (Σw)² / Σw²: of decisions, for the value of a task of tasks."""
    n: int
    """How many decisions, or tasks, it is from."""


def ips(tasks: Ints, weights: Floats, rewards: Floats) -> Estimate:
    """Inverse propensity scoring.

    Args:
        tasks: which task each decision is of, shape (n,).
        weights: w of each decision, shape (n,).
        rewards: r of each decision, shape (n,).

    Raises:
        ConfigError: shapes differ, fewer than two tasks, or a number is not finite.
    """
    codes = _checked(tasks, weights, rewards)
    return _ratio("IPS", codes, weights * rewards, np.ones_like(weights), weights)


def snips(tasks: Ints, weights: Floats, rewards: Floats) -> Estimate:
    """Self-normalised IPS; arguments as in `ips`.

    Raises:
        ConfigError: as `ips`, or every weight is 0.
    """
    codes = _checked(tasks, weights, rewards)
    if not weights.any():
        raise ConfigError("weights: all are 0: the new policy never does what the log did")
    return _ratio("SNIPS", codes, weights * rewards, weights, weights)


def doubly_robust(tasks: Ints, weights: Floats, rewards: Floats, taken: Floats, wanted: Floats) -> Estimate:
    """Doubly robust: right when either the propensities or the predictions are.

    Args:
        tasks: which task each decision is of, shape (n,).
        weights: w of each decision, shape (n,).
        rewards: r of each decision, shape (n,).
        taken: predicted reward q̂(x, a) of what was done, shape (n,); it must not have seen that reward.
        wanted: predicted reward Σ_a π(a|x)·q̂(x, a) under the new policy, shape (n,).

    Raises:
        ConfigError: as `ips`.
    """
    codes = _checked(tasks, weights, rewards, taken, wanted)
    return _ratio("DR", codes, wanted + weights * (rewards - taken), np.ones_like(weights), weights)


def per_decision_ips(tasks: Ints, weights: Floats, rewards: Floats) -> Estimate:
    """Value of a whole task: the sum of its rewards, each weighted by the decisions up to it.

    Args:
        tasks: which task each decision is of, decisions of a task in the order they were made, shape (n,).
        weights: w of each decision; 1 where the policy had no choice. Shape (n,).
        rewards: r of each decision, shape (n,).

    Raises:
        ConfigError: as `ips`.
    """
    codes = _checked(tasks, weights, rewards)
    order = np.argsort(codes, kind="stable")
    along = products(codes[order], weights[order])
    sums: Floats = np.bincount(codes[order], weights=along * rewards[order]).astype(np.float64)
    last = np.append(codes[order][1:] != codes[order][:-1], True)
    return _ratio("task", np.arange(len(sums)), sums, np.ones(len(sums)), along[last])


def products(tasks: Ints, weights: Floats) -> Floats:
    """Product of the weights of a task up to each decision; decisions sorted by task. Shape (n,)."""
    starts = np.flatnonzero(np.append(True, tasks[1:] != tasks[:-1]))
    found = weights.astype(np.float64)
    place = np.arange(len(tasks)) - np.repeat(starts, np.diff(np.append(starts, len(tasks))))
    for depth in range(1, int(place.max()) + 1):  # as many rounds as the longest task has steps
        at = np.flatnonzero(place == depth)
        found[at] *= found[at - 1]
    return found


def effective(weights: Floats) -> float:
    """Effective sample size (Σw)² / Σw² (Kish, 1965); 0 when every weight is."""
    square = float((weights**2).sum())
    return float(weights.sum()) ** 2 / square if square else 0.0


def t_quantile(freedom: int) -> float:
    """97.5 % quantile of Student's t, by its expansion around the normal's; to .02 from 3 degrees of freedom on."""
    z, v = _Z, float(freedom)
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def _ratio(name: str, codes: Ints, top: Floats, bottom: Floats, weights: Floats) -> Estimate:
    """Σ top / Σ bottom with a variance from sums per task, linearised."""
    value = float(top.sum() / bottom.sum())
    rest = np.bincount(codes, weights=top - value * bottom)
    k = len(rest)
    error = float(np.sqrt(k / (k - 1) * (rest**2).sum())) / abs(float(bottom.sum()))
    half = t_quantile(k - 1) * error
    return Estimate(name, value, value - half, value + half, effective(weights), len(top))


def _checked(tasks: Ints, weights: Floats, *columns: Floats) -> Ints:
    """The tasks as numbers from 0 on, in order of their first decision or of their numbers."""
    n = len(tasks)
    for column in (weights, *columns):
        if np.shape(column) != (n,):
            raise ConfigError(
                f"off-policy log: seen columns of {np.shape(column)}; allowed: one number per decision, {n}"
            )
        if not np.isfinite(column).all():
            raise ConfigError("off-policy log: a weight or reward is not a finite number")
    if n and float(np.min(weights)) < 0:
        raise ConfigError(f"weights: seen {float(np.min(weights)):g}; allowed: 0 or more")
    codes = np.unique(tasks, return_inverse=True)[1]
    if n == 0 or int(np.max(codes)) < 1:
        raise ConfigError(f"off-policy log: seen {min(n, 1)} task; allowed: at least two, or there is no interval")
    return np.asarray(codes, dtype=np.int64)
