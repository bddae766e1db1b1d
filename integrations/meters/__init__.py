"""Meters: joules of GPUs (NVML) and CPUs (RAPL), each call with its share."""

from __future__ import annotations

import logging

from steproute.integrations.meters.energy import EnergyMeter, Placement
from steproute.integrations.meters.nvml import NvmlReader, nvml_readers
from steproute.integrations.meters.rapl import RaplReader, rapl_readers
from steproute.integrations.meters.series import Kind, Reader, ReadingFailed, Series, Slice
from steproute.metering import MeterUnavailable

__all__ = [
    "EnergyMeter",
    "Kind",
    "NvmlReader",
    "Placement",
    "RaplReader",
    "Reader",
    "ReadingFailed",
    "Series",
    "Slice",
    "auto",
    "nvml",
    "nvml_readers",
    "rapl",
    "rapl_readers",
]

_log = logging.getLogger(__name__)


def nvml() -> EnergyMeter:
    """All GPUs; raises MeterUnavailable or ImportError where there is none."""
    return EnergyMeter(nvml_readers())


def rapl() -> EnergyMeter:
    """All CPU packages; raises MeterUnavailable where none can be read."""
    return EnergyMeter(rapl_readers())


def auto() -> EnergyMeter | None:
    """The GPUs, else the CPUs, else None: joules are then estimated from profiles, and labelled so."""
    for make in (nvml, rapl):
        try:
            return make()
        except (MeterUnavailable, ImportError) as error:
            _log.info("no meter: %s", error)
    return None
