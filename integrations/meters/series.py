"""From readings to energy: what one device took between two readings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

Kind = Literal["counter", "power"]


class ReadingFailed(Exception):
    """One reading is missing; the next one may be there."""


@runtime_checkable
class Reader(Protocol):
    """One device that can be read."""

    name: str
    """Unique among a meter's readers: `gpu0`, `cpu0`."""
    source: str
    """What is read, in words."""
    kind: Kind
    """`counter`: joules since some moment; `power`: watts now."""
    wrap_j: float | None
    """Joules after which a counter starts at 0 again; None = it does not."""

    def read(self) -> float:
        """Joules or watts.

        Raises:
            ReadingFailed: not this time.
        """
        ...

    def close(self) -> None:
        """Let go of the device."""
        ...


@dataclass(frozen=True, slots=True)
class Slice:
    """What a device took between its last two readings."""

    joules: float
    seconds: float
    gap: bool
    """True when the readings lie too far apart."""


class Series:
    """The readings of one device, one after the other."""

    def __init__(self, reader: Reader, max_gap_s: float):
        """Start without a reading.

        Args:
            reader: the device.
            max_gap_s: readings farther apart than this leave a gap; for a counter nothing is lost in between.
        """
        self.reader, self._max_gap = reader, max_gap_s
        self._time: float | None = None
        self._value = 0.0
        self.power_w = 0.0
        """Mean power of the last slice, or the last power read."""

    def since(self, now: float) -> float:
        """Seconds since the last reading; 0 before the first."""
        return 0.0 if self._time is None else now - self._time

    def read(self, now: float) -> Slice | None:
        """Take a reading.

        Returns:
            What came since the last one; None for the first.

        Raises:
            ReadingFailed: not this time.
        """
        value = self.reader.read()
        before, last = self._time, self._value
        self._time, self._value = now, value
        if before is None:
            self.power_w = value if self.reader.kind == "power" else 0.0
            return None
        seconds = max(now - before, 0.0)
        if self.reader.kind == "power":
            joules = (last + value) / 2 * seconds  # trapezoid
            self.power_w = value
            return Slice(joules, seconds, seconds > self._max_gap)
        joules = value - last
        reset = False
        if joules < 0 and self.reader.wrap_j is not None:
            joules += self.reader.wrap_j
        if joules < 0:  # the driver was loaded anew: what came before that moment is lost
            joules, reset = value, True
        if seconds > 0:
            self.power_w = joules / seconds
        return Slice(joules, seconds, reset)
