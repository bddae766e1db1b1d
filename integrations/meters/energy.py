"""A meter of devices: a thread reads them while calls are in flight, and each call gets its share."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from typing_extensions import Self

from steproute.errors import ConfigError
from steproute.integrations.meters.series import Reader, ReadingFailed, Series
from steproute.metering import Measurement

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model runs."""

    devices: tuple[str, ...] | None = None
    """Names of the readers it runs on; None = all of them."""
    server: str = ""
    """Calls to models of one server wait for each other; empty = a server of its own."""
    slots: int | None = None
    """How many calls the server works on at once: only the oldest so many are busy, the others wait; None = all."""


@dataclass(slots=True)
class _Call:
    model: str
    where: Placement
    began: float
    devices: tuple[_Device, ...]
    joules: float = 0.0
    gap_s: float = 0.0
    most: int = 1
    read: bool = False
    """Whether any device was read for it."""


@dataclass(slots=True, eq=False)
class _Device:
    series: Series
    busy: dict[int, float] = field(default_factory=dict)
    """Busy seconds per call since the last reading, divided among calls that were busy at once."""


class EnergyMeter:
    """Splits what devices take among the calls in flight.

    Between two events (a call begins or ends) the calls that are busy on a device share its time equally; between two
    readings its energy follows those shares. So the shares of calls add up to what the device took while any was busy.
    What it takes while none is busy belongs to nobody.

    Args:
        readers: the devices.
        placements: model → where it runs; a model without one is busy on all devices from begin to end.
        interval_s: seconds between readings while calls are in flight. At 0.1 s, power samples of a board whose load comes in
            spikes of 0.3 s are off by up to 2 %, at 0.05 s by less than 0.1 %.
        clock: gives the time in seconds.
        thread: False = no thread reads in between; somebody calls `poll`.

    Raises:
        ConfigError: no reader, two of one name, or a placement on a device there is not.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        placements: Mapping[str, Placement] | None = None,
        *,
        interval_s: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
        thread: bool = True,
    ):
        if not interval_s > 0:
            raise ConfigError(f"interval_s: seen {interval_s!r}; allowed: seconds above 0")
        names = [reader.name for reader in readers]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"readers: seen {names}; allowed: at least one, each name once")
        self._devices = {reader.name: _Device(Series(reader, 2.5 * interval_s)) for reader in readers}
        self._placements = dict(placements or {})
        for model, where in self._placements.items():
            if missing := set(where.devices or ()) - set(names):
                raise ConfigError(f"placements: {model}: no device {', '.join(sorted(missing))}; there are {names}")
        self._interval, self._clock = interval_s, clock
        self._calls: dict[int, _Call] = {}
        self._key = 0
        self._event = clock()
        self.failed_readings = 0
        """Readings that could not be had."""
        self._lock = threading.Lock()
        self._running, self._closed = threading.Event(), threading.Event()
        if thread:
            # The thread must not keep the meter alive: it holds a weak reference only.
            args = (weakref.ref(self), self._running, self._closed, interval_s)
            threading.Thread(target=_sample, args=args, name="steproute-meter", daemon=True).start()

    # --- the meter -------------------------------------------------------------------------------------------

    def begin(self, model: str) -> int:
        """A call begins."""
        where = self._placements.get(model) or Placement()
        names = self._devices if where.devices is None else where.devices
        with self._lock:
            self._advance()
            self._key += 1
            devices = tuple(self._devices[name] for name in names)
            self._calls[self._key] = _Call(model, where, self._event, devices)
            self._running.set()
            return self._key

    def end(self, key: int) -> Measurement | None:
        """It ended. Where the last reading is missing, the time since the one before counts at the last known power."""
        with self._lock:
            self._advance()
            call = self._calls.pop(key, None)
            if not self._calls:
                self._running.clear()
            if call is None:
                return None
            for device in call.devices:
                share = device.busy.pop(key, 0.0)
                if share > 0:  # only where no reading could be had just now
                    call.joules += share * device.series.power_w
                    call.gap_s += share
            if not call.read:
                return None
            sources = dict.fromkeys(device.series.reader.source for device in call.devices)
            seconds = max(self._event - call.began, 0.0)
            return Measurement(call.joules, " + ".join(sources), seconds, call.gap_s, call.most)

    def cancel(self, key: int) -> None:
        """Drop a call; what it took until now stays with it, and is lost."""
        self.end(key)

    def poll(self) -> None:
        """Read every device that a call in flight runs on."""
        with self._lock:
            self._advance()

    def close(self) -> None:
        """Stop the thread and let go of the devices."""
        self._closed.set()
        self._running.set()
        for device in self._devices.values():
            device.series.reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def source(self) -> str:
        """What it reads, in words."""
        return " + ".join(dict.fromkeys(device.series.reader.source for device in self._devices.values()))

    # --- inside ----------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Close the time since the last event: who was busy, and what the devices say."""
        now = self._clock()
        seconds, self._event = now - self._event, now
        busy = self._busy()
        for device in self._devices.values():
            calls = [key for key in busy if device in self._calls[key].devices]
            for key in calls:
                self._calls[key].most = max(self._calls[key].most, len(calls))
                if seconds > 0:
                    device.busy[key] = device.busy.get(key, 0.0) + seconds / len(calls)
            self._read(device, now)

    def _busy(self) -> list[int]:
        taken: dict[str, int] = {}
        busy = []
        for key, call in self._calls.items():  # oldest first
            server, slots = call.where.server or call.model, call.where.slots
            taken[server] = taken.get(server, 0) + 1
            if slots is None or taken[server] <= slots:
                busy.append(key)
        return busy

    def _read(self, device: _Device, now: float) -> None:
        try:
            piece = device.series.read(now)
        except ReadingFailed as error:
            self.failed_readings += 1
            if self.failed_readings == 1:
                _log.warning(
                    "%s: a reading failed (%s); gaps are bridged and reported", device.series.reader.name, error
                )
            return
        shares, device.busy = device.busy, {}
        for call in self._calls.values():
            call.read = call.read or device in call.devices
        if piece is None or piece.seconds <= 0:
            return
        for key, share in shares.items():  # those of calls that ended in between have been taken out
            call = self._calls[key]
            call.joules += piece.joules * min(share / piece.seconds, 1.0)
            call.gap_s += share if piece.gap else 0.0


def _sample(
    meter: weakref.ref[EnergyMeter], running: threading.Event, closed: threading.Event, interval_s: float
) -> None:
    while True:
        running.wait(5.0)
        found = meter()
        if found is None or closed.wait(interval_s if running.is_set() else 0):
            return
        if running.is_set():
            found.poll()
        del found
