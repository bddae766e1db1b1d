"""CPU packages: the energy counters of Linux's powercap (Intel RAPL, and AMD's under the same name)."""

from __future__ import annotations

from pathlib import Path

from steproute.integrations.meters.series import Kind, ReadingFailed
from steproute.metering import MeterUnavailable

ROOT = Path("/sys/class/powercap")
SOURCE = "RAPL energy counter"


class RaplReader:
    """One zone: a CPU package, or the memory beside it."""

    kind: Kind = "counter"

    def __init__(self, folder: Path, name: str):
        """Read the range of the counter.

        Args:
            folder: the zone, with `energy_uj` and `max_energy_range_uj`.
            name: name of the reader.

        Raises:
            MeterUnavailable: it cannot be read; on most kernels only root may.
        """
        self.name, self._file = name, folder / "energy_uj"
        self.source = SOURCE
        try:
            self.wrap_j: float | None = float((folder / "max_energy_range_uj").read_text()) / 1e6
            self.read()
        except (OSError, ValueError, ReadingFailed) as error:
            raise MeterUnavailable(
                f"RAPL: {self._file} cannot be read ({error}); on most kernels only root may"
            ) from None

    def read(self) -> float:
        """Joules, modulo `wrap_j`.

        Raises:
            ReadingFailed: not this time.
        """
        try:
            return float(self._file.read_text()) / 1e6
        except (OSError, ValueError) as error:
            raise ReadingFailed(str(error)) from None

    def close(self) -> None:
        """Nothing is held."""


def rapl_readers(root: Path = ROOT) -> list[RaplReader]:
    """Readers of all packages and their memory. `core` and `uncore` are parts of a package, `psys` is more than all.

    Args:
        root: where the zones are.

    Raises:
        MeterUnavailable: no zone, or none that may be read.
    """
    readers = []
    for folder in sorted(root.glob("*-rapl:*")) if root.is_dir() else ():
        zone = folder.name.partition(":")[2]
        try:
            label = (folder / "name").read_text().strip()
        except OSError:
            continue
        if label.startswith("package"):
            readers.append(RaplReader(folder, f"cpu{zone}"))
        elif label == "dram":
            readers.append(RaplReader(folder, f"memory{zone.partition(':')[0]}"))
    if not readers:
        raise MeterUnavailable(f"RAPL: no package's energy under {root}")
    return readers
