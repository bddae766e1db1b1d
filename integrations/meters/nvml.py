"""NVIDIA GPUs: the board's own energy counter, else its power."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from steproute.errors import ConfigError
from steproute.integrations.meters.series import Kind, ReadingFailed
from steproute.metering import MeterUnavailable

COUNTER, INSTANT, POWER = "NVML energy counter", "NVML instant power samples", "NVML power samples"
_INSTANT_FIELD = "NVML_FI_DEV_POWER_INSTANT"


class NvmlReader:
    """One GPU. Whole boards are measured, as ProgRouter does; MIG slices are not told apart."""

    wrap_j: float | None = None

    def __init__(self, library: Any, index: int):
        """Find out what the board offers: joules since the driver was loaded, else its power.

        Args:
            library: `pynvml`, or something with its functions.
            index: the board's number.

        Raises:
            MeterUnavailable: it tells neither.
        """
        library.nvmlInit()  # it counts: `close` shuts down once
        self._library, self.name = library, f"gpu{index}"
        self._handle = library.nvmlDeviceGetHandleByIndex(index)
        self.kind: Kind = "counter"
        self.source = COUNTER
        for source, read in ((COUNTER, self._energy), (INSTANT, self._instant), (POWER, self._power)):
            self.source, self._read = source, read
            self.kind = "counter" if source == COUNTER else "power"
            try:
                read()
            except (library.NVMLError, AttributeError):
                continue
            return
        raise MeterUnavailable(f"NVML: {self.name} tells neither energy nor power")

    def read(self) -> float:
        """Joules since the driver was loaded, or watts.

        Raises:
            ReadingFailed: not this time.
        """
        try:
            return self._read()
        except self._library.NVMLError as error:
            raise ReadingFailed(str(error)) from None

    def close(self) -> None:
        """Tell the library that it is needed once less."""
        _shut(self._library)

    def _energy(self) -> float:
        return float(self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1000  # mJ

    def _instant(self) -> float:
        library = self._library
        value = library.nvmlDeviceGetFieldValues(self._handle, [getattr(library, _INSTANT_FIELD)])[0]
        if value.nvmlReturn != 0:
            raise library.NVMLError(value.nvmlReturn)
        return float(value.value.uiVal) / 1000  # mW

    def _power(self) -> float:
        return float(self._library.nvmlDeviceGetPowerUsage(self._handle)) / 1000  # mW


def nvml_readers(devices: Sequence[int] | None = None, library: Any = None) -> list[NvmlReader]:
    """Readers of the GPUs.

    Args:
        devices: numbers of the boards as NVML counts them (`CUDA_VISIBLE_DEVICES` does not matter); None = all.
        library: stands in for `pynvml`.

    Raises:
        ConfigError: a number that no board has.
        ImportError: the extra `energy` is missing.
        MeterUnavailable: no driver, no GPU, or one that tells nothing.
    """
    library = library or _library()
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        raise MeterUnavailable(f"NVML: {error}") from None
    try:
        count = int(library.nvmlDeviceGetCount())
        chosen = range(count) if devices is None else devices
        if wrong := [index for index in chosen if not 0 <= index < count]:
            raise ConfigError(f"devices: seen {wrong}; there are {count} GPUs, counted from 0")
        if not chosen:
            raise MeterUnavailable("NVML: no GPU here")
        return [NvmlReader(library, index) for index in chosen]
    except library.NVMLError as error:
        raise MeterUnavailable(f"NVML: {error}") from None
    finally:
        _shut(library)  # each reader holds the library by itself


def _shut(library: Any) -> None:
    with contextlib.suppress(library.NVMLError):  # the driver may be gone already
        library.nvmlShutdown()


def _library() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise ImportError('reading GPUs needs nvidia-ml-py: pip install "steproute[energy]"') from error
    return pynvml
