"""Shiryaev–Roberts detector of a change in gains whose expectation is known at every step.

For a change at step k to gains that are tilted by t, the likelihood ratio is the product of

    L = exp(t·y) / M(t),   M(t) = (b²·exp(−t·v/b) + v·exp(t·b)) / (b² + v)

from k on, with y the deviation from the expectation, v its variance and b its largest value. M is the largest moment generating
function that mean 0, variance v and y ≤ b allow (Bennett, JASA 57, 1962): that of two values, so that pass or fail is judged
exactly and small steps of progress by their own small variance. The statistic sums over all k, R ← (1 + R)·L (Roberts,
Technometrics 8, 1966), and is averaged over tilts and directions. While expectations are right R − n has mean 0 at most, so
an alarm at R ≥ A comes after A steps or more on average, whatever the gains' law (an e-detector: Shin, Ramdas and Rinaldo,
New England Journal of Statistics in Data Science 2, 2024).

Why not a detector of `river`: those compare a stream with its own past, and have to learn first what is normal. Here the
belief says so before every step, per context group, and with its own uncertainty. Only its variance is pooled over models,
and too small for one that passes half the time where most pass nearly always: so v is raised to what this stream showed.
"""

from __future__ import annotations

import math

TILTS = (0.3, 0.6, 1.2)
"""t times the standard deviation: small, middling and large changes."""
LEAST_ROOM = 0.1
"""b at least: an expectation near 0 or 1 leaves nowhere to fall or rise to."""
STATED = 5.0
"""Steps that a stated variance is worth against what was seen."""


class ShiryaevRoberts:
    """Detector of one stream of gains in [0, 1]; a gain below 0 counts as 0 when it is judged how far they fell."""

    def __init__(self, every: float, tolerance: float = 0.0):
        """Set up.

        Args:
            every: A, steps between two false alarms on average, at least.
            tolerance: a shift of so much gain is none.
        """
        self.every, self.tolerance = every, tolerance
        self._sums = [0.0] * (2 * len(TILTS))
        """R per direction and tilt."""
        self._lowest = 0.0
        """The lowest gain seen, 0 at most."""
        self._squares = self._steps = STATED
        """Squared deviations in units of the stated variance, and of how many steps."""

    @property
    def evidence(self) -> float:
        """R, averaged: an alarm is due at `every`."""
        return sum(self._sums) / len(self._sums)

    def update(self, gain: float, mean: float, variance: float) -> bool:
        """Take in one gain.

        Args:
            gain: what was observed, in [−1, 1].
            mean: what was expected.
            variance: of their difference, as far as it is known, above 0.

        Returns:
            Whether the gains are not what they were.
        """
        off = gain - mean
        known = variance * self._squares / self._steps  # as it was before this step, so that R − n stays what it is
        lowest = self._lowest
        self._squares, self._steps = self._squares + off * off / variance, self._steps + 1.0
        self._lowest = min(lowest, gain)
        sd = math.sqrt(known)
        i = 0
        for further, most in ((-off, mean - lowest), (off, 1.0 - mean)):
            room = max(most, LEAST_ROOM)
            y = min(further - self.tolerance, room)
            for tilt in TILTS:
                self._sums[i] = (1.0 + self._sums[i]) * ratio(y, tilt / sd, known, room)
                i += 1
        return self.evidence >= self.every


def ratio(y: float, tilt: float, variance: float, room: float) -> float:
    """L, the likelihood ratio of one deviation.

    Args:
        y: the deviation, at most `room`.
        tilt: t, 0 or more.
        variance: v, above 0.
        room: b, above 0.
    """
    square = room * room
    most = (square * math.exp(-tilt * variance / room) + variance * math.exp(tilt * room)) / (square + variance)
    return math.exp(tilt * y) / most
