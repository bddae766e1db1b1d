"""Fit an outlook to recorded runs, and see what such a fit is worth on tasks it has not seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from steproute.benchmarks.progress_quality.measures import auc, folds
from steproute.benchmarks.progress_quality.records import Record
from steproute.errors import ConfigError
from steproute.progress.outlook import Outlook, kinds

Floats = npt.NDArray[np.float64]
RIDGE = 3.0
"""Weight of the squared coefficients of standardised features: as strong as three runs or so."""


def features(record: Record, turns: int) -> tuple[float, float]:
    """What an outlook reads of a run after so many turns: handed over (0 or 1), ln(1 + demanding calls)."""
    found = [kinds(step) for step in record.steps[:turns]]
    return float(any(handed for handed, _ in found)), float(np.log1p(sum(count for _, count in found)))


def fit_outlook(records: Sequence[Record], turns: int = 10) -> Outlook:
    """Logistic regression with a ridge, on what is known after so many turns.

    Raises:
        ConfigError: there are no runs, or all ended alike.
    """
    y = np.array([record.success for record in records], dtype=float)
    if not len(y) or y.min() == y.max():
        raise ConfigError(f"data: seen {len(y)} run(s), {int(y.sum())} of them successes; needed: some of both")
    x = np.array([features(record, turns) for record in records])
    centre, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
    weights = _newton(np.column_stack([np.ones(len(y)), (x - centre) / scale]), y)
    handed_over, demanding = (weights[1:] / scale).tolist()
    bias = float(weights[0] - (weights[1:] * centre / scale).sum())
    return Outlook(bias, handed_over, demanding)


def _newton(x: Floats, y: Floats) -> Floats:
    ridge = np.diag([1e-6, *[RIDGE] * (x.shape[1] - 1)])
    weights = np.zeros(x.shape[1])
    for _ in range(25):
        p = 1 / (1 + np.exp(-x @ weights))
        slope = x.T @ (p - y) + ridge @ weights
        curve = x.T @ (x * (p * (1 - p))[:, None]) + ridge
        weights = weights - np.linalg.solve(curve, slope)
    return np.asarray(weights)


def on_unseen_tasks(records: Sequence[Record], turns: int, splits: int = 50) -> tuple[float, float]:
    """AUC of outlooks fitted on one half of the tasks and judged on the other: mean and sd over random halvings."""
    tasks = [record.task for record in records]
    found = []
    for split in range(splits):
        for held in folds(tasks, split, 2):
            fitted_on = [record for record, out in zip(records, held, strict=True) if not out]
            judged = [record for record, out in zip(records, held, strict=True) if out]
            try:
                outlook = fit_outlook(fitted_on, turns)
            except ConfigError:  # a half that ended all alike teaches nothing
                continue
            scores = [
                outlook(bool(handed), round(np.expm1(demanding)))
                for handed, demanding in (features(r, turns) for r in judged)
            ]
            found.append(auc(scores, [record.success for record in judged]))
    known = [value for value in found if value == value]
    return (float(np.mean(known)), float(np.std(known))) if known else (float("nan"), float("nan"))
