"""Keeps the progress of one task up to date at a cost that does not grow with the ledger."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from steproute.errors import ConfigError
from steproute.ledger import Ledger, Step
from steproute.progress.score import DEFAULT_WEIGHTS, Progress, Regime, Weights, score
from steproute.progress.views import Memory, Signals, View

KEPT = 32
"""How many of the latest steps can be read again without reading the whole ledger."""
_BLANK = Memory()
"""What is known before the first step; never changed, a view is handed a copy."""


@dataclass(slots=True)
class _Read:
    """One step as it was read: what was known before it, what it said, and the progress after it."""

    mark: tuple[object, ...]
    before: Memory
    levels: tuple[float, ...]
    signals: Signals
    after: Memory
    progress: Progress


class ProgressTracker:
    """Reads each step when it is the newest and settles it when a newer one appears.

    Evidence about the newest step may still come. Evidence about an earlier one needs `rewind`. A settled step keeps
    the subtask states of its own time: what later steps solved is not credited to it.
    """

    def __init__(self, view: View, weights: Weights = DEFAULT_WEIGHTS, window: int = 3):
        """Start at an empty ledger.

        Args:
            view: reads the domain's steps.
            weights: weights of the progress formula.
            window: number k of earlier steps the trend d looks back on, at least 1.

        Raises:
            ConfigError: the window is below 1.
        """
        if window < 1:
            raise ConfigError(f"progress window: seen {window!r}; allowed: 1 or more")
        self._view, self._weights, self._window = view, weights, window
        self._settled = 0
        self._memory = _BLANK
        self._levels: tuple[float, ...] = ()
        self._newest: _Read | None = None
        self.prints: dict[str, int] = {}
        """Step id → fingerprint of its text, for steps that were restored without it."""
        self._reads: deque[_Read] = deque(maxlen=KEPT)
        """The latest settled steps; the last one has index `_settled` − 1."""

    def update(self, ledger: Ledger) -> Progress:
        """Progress of the ledger now. A ledger that became shorter or was rewritten is read anew.

        Raises:
            ValueError: the view gave values that are not finite.
        """
        steps = ledger.steps
        if not steps:
            self._restart()
            return score(Regime.INVALID, 0.0, 0.0, 0.0, self._weights)
        if len(steps) <= self._settled or (self._reads and self._reads[-1].mark != _mark(steps[self._settled - 1])):
            self._restart()
        while self._settled < len(steps) - 1:
            read = self._newest
            if read is None or read.mark != _mark(steps[self._settled]):
                read = self._read(ledger, steps[self._settled])
            self._newest = None
            self._settle(read)
        if self._newest is None or not _as_read(ledger, steps[-1], self._newest):
            self._newest = self._read(ledger, steps[-1])
        return self._newest.progress

    def rewind(self, index: int) -> None:
        """Read the step at `index` and all after it again at the next update."""
        while self._settled > index and self._reads:
            read = self._reads.pop()
            self._settled -= 1
            self._memory, self._levels = read.before, read.levels
        if self._settled > index:
            self._restart()
        self._newest = None

    def after(self, index: int) -> Progress | None:
        """Progress after the step at `index`, as of the last update; None where that is too long ago."""
        if index == self._settled:
            return None if self._newest is None else self._newest.progress
        back = self._settled - index
        return self._reads[-back].progress if 0 < back <= len(self._reads) else None

    def _restart(self) -> None:
        self._settled, self._memory, self._levels, self._newest = 0, _BLANK, (), None
        self._reads.clear()

    def _settle(self, read: _Read) -> None:
        self._reads.append(read)
        self._memory = read.after
        self._levels = (*self._levels, read.signals.level)[-self._window :]
        self._settled += 1

    def _read(self, ledger: Ledger, step: Step) -> _Read:
        memory = self._memory.copy()
        if self.prints:
            memory.given = self.prints.get(step.id)
        signals = self._view.read(ledger, step, memory)
        memory.last = signals
        progress = score(signals.regime, signals.r, self._trend(signals), signals.e, self._weights)
        return _Read(_mark(step), self._memory, self._levels, signals, memory, progress)

    def _trend(self, signals: Signals) -> float:
        """d in [−1, 1]: how far the state is above the mean of the last k; the first step is measured from nothing."""
        before = sum(self._levels) / len(self._levels) if self._levels else 0.0
        return min(max(signals.level - before, -1.0), 1.0)


def _as_read(ledger: Ledger, step: Step, read: _Read) -> bool:
    """Whether nothing that a view may look at can have changed since the step was read."""
    return not (ledger.subtasks or ledger.notes or step.tool_calls) and read.mark == _mark(step)


def _mark(step: Step) -> tuple[object, ...]:
    """What tells one content of a step from another."""
    outcome = step.outcome
    return (
        step.id,
        step.role,
        step.output,
        outcome.error,
        len(step.tool_calls),
        *[(item.source, item.score, item.count) for item in outcome.evidence],
    )
