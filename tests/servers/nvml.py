"""A fake NVML: boards whose power over time is known, behind the functions of `pynvml` that are used."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace


class Trace:
    """Power in watts as straight lines between points; its energy is exact."""

    def __init__(self, points: Sequence[tuple[float, float]]):
        self.points = list(points)

    def power(self, t: float) -> float:
        for (t0, p0), (t1, p1) in zip(self.points, self.points[1:], strict=False):
            if t0 <= t <= t1:
                return p0 if t1 == t0 else p0 + (p1 - p0) * (t - t0) / (t1 - t0)
        return self.points[-1][1]

    def energy(self, start: float, end: float) -> float:
        total = 0.0
        for (t0, p0), (t1, p1) in zip(self.points, self.points[1:], strict=False):
            a, b = max(t0, start), min(t1, end)
            if b > a and t1 > t0:
                slope = (p1 - p0) / (t1 - t0)
                total += (b - a) * (p0 + slope * ((a + b) / 2 - t0))
        last = self.points[-1]
        return total + max(0.0, end - max(start, last[0])) * last[1]


class NVMLError(Exception):
    """What the binding raises."""


class FakeNvml:
    """One object that stands for the module `pynvml`.

    Args:
        clock: the time.
        traces: one per board.
        counter: whether boards have an energy counter.
        instant: whether they tell their instant power.
        wrap_mj: modulus of the counter, None = it never wraps.
    """

    NVMLError = NVMLError
    NVML_FI_DEV_POWER_INSTANT = 186

    def __init__(
        self,
        clock: Callable[[], float],
        *traces: Trace,
        counter: bool = True,
        instant: bool = False,
        wrap_mj: float | None = None,
    ):
        self.clock, self.traces = clock, traces
        self.counter, self.instant, self.wrap_mj = counter, instant, wrap_mj
        self.inits = 0
        self.reads = 0
        self.dropped: Callable[[int], bool] = lambda number: False
        """Whether the reading of that number fails."""
        self.reset_at = -math.inf
        """Moment the driver was loaded: counters start there."""

    def nvmlInit(self) -> None:
        self.inits += 1

    def nvmlShutdown(self) -> None:
        self.inits -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.traces)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        self._read(self.counter)
        joules = self.traces[handle].energy(max(self.reset_at, self.traces[handle].points[0][0]), self.clock())
        mj = 1000 * joules
        return int(mj % self.wrap_mj if self.wrap_mj else mj)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self._read(True)
        return int(1000 * self.traces[handle].power(self.clock()))

    def nvmlDeviceGetFieldValues(self, handle: int, fields: Sequence[int]) -> list[SimpleNamespace]:
        self._read(self.instant)
        value = SimpleNamespace(uiVal=int(1000 * self.traces[handle].power(self.clock())))
        return [SimpleNamespace(nvmlReturn=0, value=value)]

    def _read(self, supported: bool) -> None:
        if not supported:
            raise NVMLError("Not Supported")
        self.reads += 1
        if self.dropped(self.reads):
            raise NVMLError("Unknown Error")
