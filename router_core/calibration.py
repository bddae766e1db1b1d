"""Calibration of probabilities: isotonic regression, Brier score and expected calibration error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Isotonic:
    """A rising map from stated to observed probability: straight lines between the blocks' centres, flat outside."""

    inputs: tuple[float, ...]
    """Centres of the blocks, rising."""
    outputs: tuple[float, ...]
    """What was observed there, rising, inside (0, 1)."""

    def __call__(self, probability: float) -> float:
        """The calibrated probability."""
        return float(np.interp(probability, self.inputs, self.outputs))

    @classmethod
    def fit(cls, stated: Sequence[float], right: Sequence[float]) -> Isotonic:
        """Pool adjacent violators: the rising step function nearest to the outcomes in squared error.

        Args:
            stated: probabilities that were stated, at least one.
            right: what came of each, 0 or 1.

        Returns:
            The map. It stays 1/(n + 2) away from 0 and 1, since n outcomes never prove certainty.

        Raises:
            ValueError: no data, or sequences of different lengths.
        """
        x, y = _pairs(stated, right)
        values, index = np.unique(x, return_inverse=True)
        sizes, hits = np.bincount(index), np.bincount(index, y)
        blocks: list[tuple[float, float, float]] = []  # size, size·centre, hits
        for value, size, hit in zip(values.tolist(), sizes.tolist(), hits.tolist(), strict=True):
            block = (float(size), value * size, hit)
            while blocks and blocks[-1][2] * block[0] >= block[2] * blocks[-1][0]:
                below = blocks.pop()
                block = (block[0] + below[0], block[1] + below[1], block[2] + below[2])
            blocks.append(block)
        margin = 1.0 / (len(x) + 2)
        return cls(
            tuple(total / size for size, total, _ in blocks),
            tuple(min(max(hit / size, margin), 1.0 - margin) for size, _, hit in blocks),
        )


def brier(stated: Sequence[float], right: Sequence[float]) -> float:
    """Mean squared distance of probabilities from outcomes, 0 (best) to 1; always saying .5 scores .25.

    Raises:
        ValueError: no data, or sequences of different lengths.
    """
    x, y = _pairs(stated, right)
    return float(np.mean((x - y) ** 2))


def expected_calibration_error(stated: Sequence[float], right: Sequence[float], bins: int = 10) -> float:
    """Mean distance, over bins of equal width and weighted by their size, of what was stated from what was observed.

    Raises:
        ValueError: no data, or sequences of different lengths.
    """
    x, y = _pairs(stated, right)
    places = np.minimum((x * bins).astype(np.intp), bins - 1)
    return float(np.abs(np.bincount(places, x - y, minlength=bins)).sum() / len(x))


@dataclass(frozen=True, slots=True)
class Quality:
    """How good stated probabilities are, 0 = best."""

    brier: float
    ece: float

    @classmethod
    def of(cls, stated: Sequence[float], right: Sequence[float]) -> Quality:
        """Both measures of the same statements; see `brier` and `expected_calibration_error`."""
        return cls(brier(stated, right), expected_calibration_error(stated, right))


@dataclass(frozen=True, slots=True)
class Report:
    """Evidence before and after it is weighed, on held-out tasks of one domain, or of all (`domain` empty)."""

    domain: str
    tasks: int
    face_value: Quality
    """Before: the mean score of the evidence taken as a probability."""
    weighed: Quality
    """After weighing by likelihood ratios."""
    calibrated: Quality
    """After isotonic calibration as well; the same as `weighed` while there is too little data."""


def _pairs(stated: Sequence[float], right: Sequence[float]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    if not len(stated) or len(stated) != len(right):
        raise ValueError(
            f"seen {len(stated)} probabilities and {len(right)} outcomes; needed: as many of each, 1 or more"
        )
    return np.asarray(stated, dtype=np.float64), np.asarray(right, dtype=np.float64)
