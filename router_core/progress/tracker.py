"""Keeps the progress of one task up to date at a cost that does not grow with the ledger."""

from __future__ import annotations

from collections import deque

from steproute.ledger import Ledger
from steproute.progress.score import DEFAULT_WEIGHTS, Progress, Regime, Weights, score
from steproute.progress.views import Memory, Signals, View


class ProgressTracker:
    """Consumes each step once; only the last step is read again, since evidence about it may come late."""

    def __init__(self, view: View, weights: Weights = DEFAULT_WEIGHTS, window: int = 3):
        """Start at an empty ledger.

        Args:
            view: reads the domain's steps.
            weights: weights of the progress formula.
            window: number k of earlier steps the trend d looks back on.
        """
        self._view, self._weights, self._window = view, weights, window
        self._settled = 0
        self._memory = Memory()
        self._levels: deque[float] = deque(maxlen=window)

    def update(self, ledger: Ledger) -> Progress:
        """Progress of the ledger now. A ledger that became shorter (trimmed, rewound) is read anew."""
        if len(ledger.steps) < self._settled:
            self._settled, self._memory = 0, Memory()
            self._levels.clear()
        while self._settled < len(ledger.steps) - 1:
            signals = self._view.read(ledger, ledger.steps[self._settled], self._memory)
            self._memory.last = signals
            self._levels.append(signals.level)
            self._settled += 1
        if not ledger.steps:
            return score(Regime.INVALID, 0.0, 0.0, 0.0, self._weights)
        memory = self._memory.copy()
        signals = self._view.read(ledger, ledger.steps[-1], memory)
        return score(signals.regime, signals.r, self._trend(signals), signals.e, self._weights)

    def _trend(self, signals: Signals) -> float:
        """d in [−1, 1]: how far the state is above the mean of the last k; the first step is measured from nothing."""
        before = sum(self._levels) / len(self._levels) if self._levels else 0.0
        return min(max(signals.level - before, -1.0), 1.0)
