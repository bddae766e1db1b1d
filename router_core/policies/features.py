"""A step as a vector for linear and tree policies."""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import numpy as np

from steproute.policies.base import Floats, StepContext
from steproute.progress import Regime

PLAIN = 6 + len(Regime)
"""Entries before the hashed ones: bias, g, r, d, e, step, one per regime."""


def describe(context: StepContext, buckets: int) -> Floats:
    """Bias, g, r, d, e, steps so far (log), one-hot regime, and the names of the context group hashed into buckets.

    Each name goes into two buckets with signs of its own: two names then share all of their entries in about one of
    buckets² cases only, where a single bucket would mix up some of ten names in 32 buckets four times out of five.

    Args:
        context: the step.
        buckets: entries that the names of dimension, source and role share, at least 2.

    Returns:
        Shape (10 + buckets,).
    """
    p = context.progress
    x = np.zeros(PLAIN + buckets)
    x[:6] = 1.0, p.g, p.r, p.d, p.e, min(math.log1p(context.step) / 4.0, 1.0)
    x[6 + int(p.regime)] = 1.0
    for level, name in enumerate(context.group):
        if name:
            for place, sign in _places(f"{level}:{name}", buckets):
                x[PLAIN + place] += sign
    return x


@lru_cache(maxsize=4096)
def _places(name: str, buckets: int) -> tuple[tuple[int, float], tuple[int, float]]:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=10).digest()
    first = int.from_bytes(digest[:4], "big") % buckets
    second = (first + 1 + int.from_bytes(digest[4:8], "big") % (buckets - 1)) % buckets
    weight = math.sqrt(0.5)
    return (first, weight if digest[8] & 1 else -weight), (second, weight if digest[9] & 1 else -weight)
