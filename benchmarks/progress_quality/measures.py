"""How well numbers foretell outcomes: AUC and calibration, with tasks never on both sides of a split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steproute.calibration import Isotonic, brier, expected_calibration_error

Floats = npt.NDArray[np.float64]
FOLDS = 5
SPLITS = 20
"""Random divisions of the tasks into folds, averaged."""


@dataclass(frozen=True)
class Quality:
    """What one number is worth after so many turns."""

    auc: float
    """P(a run that succeeds has a higher number than one that fails), ties half; nan where all ended alike."""
    low: float
    high: float
    """Its 95 % interval: tasks drawn anew, all runs of a task together."""
    brier: float
    ece: float
    """Of the number mapped to a probability (isotonic, fitted on other tasks)."""


def auc(scores: Sequence[float] | Floats, success: Sequence[bool]) -> float:
    """Area under the ROC curve; nan where all ended alike."""
    x, y = np.asarray(scores, dtype=float), np.asarray(success, dtype=bool)
    good, bad = x[y], x[~y]
    if not len(good) or not len(bad):
        return float("nan")
    above = (good[:, None] > bad[None, :]).mean()
    return float(above + 0.5 * (good[:, None] == bad[None, :]).mean())


def folds(tasks: Sequence[str], split: int, count: int = FOLDS) -> list[npt.NDArray[np.bool_]]:
    """Masks of the runs in each fold; a task's runs share one."""
    names = np.array(sorted(set(tasks)))
    order = np.random.default_rng(split).permutation(len(names))
    mine = np.array(tasks)
    chosen = (names[order[place::count]] for place in range(min(count, len(names))))
    return [np.isin(mine, part) for part in chosen]


def calibrated(scores: Sequence[float], success: Sequence[bool], tasks: Sequence[str], split: int) -> Floats | None:
    """Probabilities by an isotonic map of the scores, each fitted on the other folds' tasks; None with one task only."""
    x, y = np.asarray(scores, dtype=float), np.asarray(success, dtype=float)
    out = np.empty(len(x))
    for held in folds(tasks, split):
        if held.all():
            return None
        fitted = Isotonic.fit(x[~held].tolist(), y[~held].tolist())
        out[held] = [fitted(value) for value in x[held].tolist()]
    return out


def quality(scores: Sequence[float], success: Sequence[bool], tasks: Sequence[str], draws: int = 1000) -> Quality:
    """AUC with its interval, and calibration on tasks that the calibration has not seen.

    Args:
        scores: one per run, higher = likelier to succeed.
        success: how the runs ended.
        tasks: of the runs.
        draws: of the interval.
    """
    x, y, mine = np.asarray(scores, dtype=float), np.asarray(success, dtype=bool), np.array(tasks)
    members = [np.flatnonzero(mine == name) for name in sorted(set(tasks))]
    rng = np.random.default_rng(0)
    sampled = []
    for _ in range(draws):
        rows = np.concatenate([members[place] for place in rng.integers(len(members), size=len(members))])
        sampled.append(auc(x[rows], y[rows].tolist()))
    known = [value for value in sampled if value == value]
    low, high = np.quantile(known, [0.025, 0.975]) if known else (float("nan"), float("nan"))
    maps = [calibrated(scores, success, tasks, split) for split in range(SPLITS)]
    stated = [made.tolist() for made in maps if made is not None]
    ended = y.astype(float).tolist()
    nothing = float("nan")
    return Quality(
        auc(x, success),
        float(low),
        float(high),
        float(np.mean([brier(made, ended) for made in stated])) if stated else nothing,
        float(np.mean([expected_calibration_error(made, ended) for made in stated])) if stated else nothing,
    )
