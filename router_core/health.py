"""Which models answer at all: one that fails several times in a row rests for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Record:
    failures: int = 0
    until: float = 0.0


class Health:
    """Counts failures in a row per model. Each failure from the third on doubles the rest; one answer ends it."""

    def __init__(
        self, clock: Callable[[], float], cooldown_s: float = 30.0, allowed: int = 3, longest_s: float = 600.0
    ):
        """Start with every model healthy.

        Args:
            clock: gives the time in seconds.
            cooldown_s: first rest in seconds; 0 = a model never rests.
            allowed: failures in a row that lead to a rest, at least 1.
            longest_s: longest rest in seconds.
        """
        self._clock, self._cooldown, self._allowed, self._longest = clock, cooldown_s, allowed, longest_s
        self._records: dict[str, _Record] = {}

    def note(self, model: str, failed: bool, at: float | None = None) -> None:
        """Take in how a call went; `at`: when, in seconds of the clock, None = now."""
        if not failed:
            self._records.pop(model, None)
            return
        record = self._records.setdefault(model, _Record())
        record.failures += 1
        if self._cooldown > 0 and record.failures >= self._allowed:
            doubled = min(record.failures - self._allowed, 20)
            record.until = (self._clock() if at is None else at) + min(self._cooldown * 2**doubled, self._longest)

    def rests(self, model: str) -> str:
        """Why a model is not to be used for now; empty when it may be."""
        record = self._records.get(model)
        if record is None or record.until <= (now := self._clock()):
            return ""
        return f"failed {record.failures} times in a row; rests for {record.until - now:.0f} s more"
