"""A step as a vector for linear and tree policies."""

from __future__ import annotations

import math
import zlib
from functools import lru_cache

import numpy as np

from steproute.policies.base import Floats, StepContext
from steproute.progress import Regime

PLAIN = 6 + len(Regime)
"""Entries before the hashed ones: bias, g, r, d, e, step, one per regime."""


def describe(context: StepContext, buckets: int) -> Floats:
    """Bias, g, r, d, e, steps so far (log), one-hot regime, and the names of the context group hashed into buckets.

    Args:
        context: the step.
        buckets: entries that the names of dimension, source and role share.

    Returns:
        Shape (10 + buckets,); every entry within [−1, 1].
    """
    p = context.progress
    x = np.zeros(PLAIN + buckets)
    x[:6] = 1.0, p.g, p.r, p.d, p.e, min(math.log1p(context.step) / 4.0, 1.0)
    x[6 + int(p.regime)] = 1.0
    for level, name in enumerate(context.group):
        if name:
            x[PLAIN + _bucket(f"{level}:{name}", buckets)] = 1.0
    return x


@lru_cache(maxsize=4096)
def _bucket(name: str, buckets: int) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogatepass")) % buckets
