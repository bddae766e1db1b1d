"""Predicted rewards for the doubly robust estimate: means per group and model, each task predicted from the other tasks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
FOLDS = 5
STRENGTH = 5.0
"""How many rewards the coarser mean is worth."""


def crossfitted(tasks: Ints, coarse: Ints, fine: Ints, taken: Ints, rewards: Floats, asked: Ints) -> Floats:
    """Predict rewards without having seen those of the same task.

    Args:
        tasks: which task each decision is of, numbers from 0 on, shape (n,).
        coarse: which model each (decision, candidate) row is about, numbers from 0 on, shape (m,).
        fine: which (group, model) it is about, numbers from 0 on, shape (m,).
        taken: row of what was done, per decision, shape (n,).
        rewards: what it brought, shape (n,).
        asked: decision that each row is of, shape (m,).

    Returns:
        Predicted reward per row, shape (m,).
    """
    folds = tasks % FOLDS
    found = np.zeros(len(fine))
    for fold in range(FOLDS):
        known = folds != fold
        at = folds[asked] == fold
        if not at.any():
            continue
        mean = float(rewards[known].mean()) if known.any() else float(rewards.mean())
        models = _means(coarse[taken[known]], rewards[known], int(coarse.max()) + 1, mean)
        parents = np.zeros(int(fine.max()) + 1)
        parents[fine] = models[coarse]
        cells = _means(fine[taken[known]], rewards[known], len(parents), parents)
        found[at] = cells[fine[at]]
    return found


def _means(codes: Ints, rewards: Floats, n: int, prior: Floats | float) -> Floats:
    count = np.bincount(codes, minlength=n)
    total = np.bincount(codes, weights=rewards, minlength=n)
    return np.asarray((total + STRENGTH * prior) / (count + STRENGTH), dtype=np.float64)
