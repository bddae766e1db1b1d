"""The seam to whatever measures joules."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

from steproute.errors import ConfigError, SteprouteError, unknown_name

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
