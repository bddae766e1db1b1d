"""The seam to whatever measures joules, and the router's own use of it: from a decision to its outcome."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

from steproute.errors import ConfigError, SteprouteError, unknown_name
from steproute.ledger import Outcome

GROUP = "steproute.meters"
"""Entry points that make a meter: a function without arguments."""


class MeterUnavailable(SteprouteError):
    """There is nothing to read here: no driver, no counter, or no permission; the message says which."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The energy of one call."""

    joules: float
    source: str
    """Which meter it comes from, in words."""
    seconds: float
    """Time between the call's begin and end."""
    gap_s: float = 0.0
    """Part of it without readings, bridged by a straight line."""
    shared: int = 1
    """Most calls in flight at once on the same device; their energy was split by busy time."""

    @property
    def label(self) -> str:
        """The source, with what makes the number less certain."""
        notes = [self.source]
        if self.shared > 1:
            notes.append(f"shared by up to {self.shared} calls")
        if self.gap_s > 0:
            notes.append(f"{self.gap_s:.1f} s without readings")
        return ", ".join(notes)


@runtime_checkable
class Meter(Protocol):
    """Anything that can tell what a call took. Safe between threads."""

    def begin(self, model: str) -> int:
        """A call to a model begins; the key ends it."""
        ...

    def end(self, key: int) -> Measurement | None:
        """It ended; None when nothing could be read."""
        ...

    def cancel(self, key: int) -> None:
        """Nobody will end it; an unknown key is no error."""
        ...


class CallMeter:
    """Measures the calls of a router, from the decision to its outcome. The caller holds the lock."""

    def __init__(self, meter: Meter | None, clock: Callable[[], float], lease_s: float):
        """Keep the meter.

        Args:
            meter: None = nothing is measured.
            clock: gives the time in seconds.
            lease_s: a call nobody reports is given up after so many seconds.
        """
        self._meter, self._clock, self._lease = meter, clock, lease_s
        self._open: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def begin(self, decision: str, model: str) -> None:
        """A call is about to be made; a second begin for the same decision starts it anew."""
        if self._meter is None:
            return
        now = self._clock()
        self.cancel(decision)
        while self._open:  # in order of begin
            first, (key, began) = next(iter(self._open.items()))
            if began + self._lease > now:
                break
            del self._open[first]
            self._meter.cancel(key)
        self._open[decision] = (self._meter.begin(model), now)

    def cancel(self, decision: str) -> None:
        """Give up a call that was begun."""
        found = self._open.pop(decision, None)
        if found is not None and self._meter is not None:
            self._meter.cancel(found[0])

    def end(self, decision: str, outcome: Outcome) -> None:
        """Fill in the outcome's joules, unless its host has measured them; a call nobody began changes nothing."""
        found = self._open.pop(decision, None)
        if found is None or self._meter is None:
            return
        measured = self._meter.end(found[0])
        if measured is not None and outcome.energy_j is None:
            outcome.energy_j, outcome.energy_source = measured.joules, measured.label


def make_meter(name: str) -> Meter | None:
    """The meter of that name; `none` = none, `auto` = what there is, or none.

    Raises:
        ConfigError: no meter has that name.
        MeterUnavailable: there is nothing to read here (never for `auto`).
    """
    if name == "none":
        return None
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        raise ConfigError(unknown_name("meter", name, ["none", *sorted(points)]))
    meter: Meter | None = points[name].load()()
    return meter
