"""Real drivers where there are none, and powercap's files in a folder of the test's own."""

from __future__ import annotations

import pytest
from doubles import FakeClock
from servers.nvml import FakeNvml, Trace

from steproute.errors import ConfigError
from steproute.integrations import meters
from steproute.integrations.meters import EnergyMeter, nvml_readers, rapl_readers
from steproute.metering import MeterUnavailable, make_meter


def zone(root, name, label, uj=0, most=262_143_328_850):
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{label}\n")
    (folder / "energy_uj").write_text(f"{uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{most}\n")
    return folder


def test_packages_and_memory_are_read_and_parts_of_them_are_not(tmp_path):
    package = zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core")
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 1_000_000)
    zone(tmp_path, "intel-rapl:1", "psys")
    (tmp_path / "intel-rapl").mkdir()
    clock = FakeClock()
    readers = rapl_readers(tmp_path)
    assert [reader.name for reader in readers] == ["cpu0", "memory0"]
    energy = EnergyMeter(readers, clock=clock, thread=False)
    key = energy.begin("m")
    clock.tick(2)
    (package / "energy_uj").write_text("65000000")
    (memory / "energy_uj").write_text("5000000")
    found = energy.end(key)
    assert found is not None
    assert (found.joules, found.source) == (pytest.approx(64), "RAPL energy counter")


def test_a_package_counter_wraps(tmp_path):
    package = zone(tmp_path, "intel-rapl:0", "package-0", 262_000_000_000)
    clock = FakeClock()
    energy = EnergyMeter(rapl_readers(tmp_path), clock=clock, thread=False)
    key = energy.begin("m")
    clock.tick(1)
    (package / "energy_uj").write_text("56671150")
    found = energy.end(key)
    assert found is not None
    assert found.joules == pytest.approx(262_143.32885 - 262_000 + 56.67115)


def test_no_powercap_and_one_that_may_not_be_read(tmp_path):
    with pytest.raises(MeterUnavailable, match="RAPL: no package's energy under"):
        rapl_readers(tmp_path / "none")
    package = zone(tmp_path, "intel-rapl:0", "package-0")
    (package / "energy_uj").unlink()
    with pytest.raises(MeterUnavailable, match="on most kernels only root may"):
        rapl_readers(tmp_path)


def test_the_real_binding_without_a_driver():
    pynvml = pytest.importorskip("pynvml", reason="needs the extra energy")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        with pytest.raises(MeterUnavailable, match="NVML: "):
            nvml_readers()
        with pytest.raises(MeterUnavailable):
            make_meter("nvml")
    else:
        pynvml.nvmlShutdown()
        pytest.skip("there is a GPU here")


def test_no_binding_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with pytest.raises(ImportError, match=r"steproute\[energy\]"):
        nvml_readers()


def test_a_board_that_tells_nothing_and_a_host_without_boards():
    clock = FakeClock()
    fake = FakeNvml(clock, Trace([(0, 1)]))
    fake.dropped = lambda number: True
    with pytest.raises(MeterUnavailable, match="gpu0 tells neither energy nor power"):
        nvml_readers(library=fake)
    with pytest.raises(MeterUnavailable, match="no GPU here"):
        nvml_readers(library=FakeNvml(clock))


def test_auto_is_what_there_is_or_none(monkeypatch, tmp_path):
    def absent():
        raise MeterUnavailable("no driver")

    zone(tmp_path, "intel-rapl:0", "package-0")
    monkeypatch.setattr(meters, "nvml", absent)
    monkeypatch.setattr(meters, "rapl", lambda: EnergyMeter(rapl_readers(tmp_path), thread=False))
    found = meters.auto()
    assert found is not None
    assert found.source == "RAPL energy counter"
    monkeypatch.setattr(meters, "rapl", absent)
    assert meters.auto() is None
    assert make_meter("none") is None
    with pytest.raises(ConfigError, match="meter: unknown name 'nvlm'"):
        make_meter("nvlm")
