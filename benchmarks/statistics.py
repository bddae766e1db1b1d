"""Means and intervals that every benchmark reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev

_T95 = (
    12.71,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.16,
    2.145,
    2.131,
    2.12,
    2.11,
    2.101,
    2.093,
)
"""Two-sided 95 % quantiles of Student's t for 1 … 19 degrees of freedom; 1.96 … 2.09 beyond are close to the normal's."""


ONE_SEED = "One seed gives no interval: ± 0 stands for one that is not known."
"""Said below a table of means over a single seed."""


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, standard deviation and half the width of the 95 % interval of the mean (Student's t); zeros for one value."""
    if len(values) < 2:
        return (values[0] if values else 0.0), 0.0, 0.0
    spread = stdev(values)
    freedom = len(values) - 1
    quantile = _T95[freedom - 1] if freedom <= len(_T95) else 1.96 + 2.4 / freedom
    return mean(values), spread, quantile * spread / math.sqrt(len(values))
