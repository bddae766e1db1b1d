"""Joules against traces whose energy is known exactly."""

from __future__ import annotations

import random

import pytest
from doubles import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st
from servers.nvml import FakeNvml, Trace

from steproute.errors import ConfigError
from steproute.integrations.meters import EnergyMeter, Placement, nvml_readers
from steproute.metering import Measurement, Meter

START = 1000.0
IDLE = (0.0, 60.0)


def spikes(seed: int) -> list[tuple[float, float]]:
    """Four seconds idle, then spikes of .3 s from 90 to 400 W at random moments, for a minute."""
    rng = random.Random(seed)
    points, t = [IDLE, (3.99, 60.0), (4.0, 90.0)], 4.0
    while t < 60:
        t += rng.uniform(0.2, 0.9)
        points += [(t, 90.0), (t + 0.05, 400.0), (t + 0.25, 400.0), (t + 0.3, 90.0)]
        t += 0.3
    return points


TRACES = {
    "constant": [IDLE, (70.0, 60.0)],
    "ramp": [IDLE, (5.0, 60.0), (65.0, 600.0)],
    **{f"spikes {seed}": spikes(seed) for seed in range(8)},
}


def shifted(points: list[tuple[float, float]]) -> Trace:
    return Trace([(START + t, p) for t, p in points])


def meter(clock: FakeClock, fake: FakeNvml, **more: object) -> EnergyMeter:
    return EnergyMeter(nvml_readers(library=fake), clock=clock, thread=False, **more)


def run(clock: FakeClock, meter: EnergyMeter, seconds: float, step: float = 0.05) -> None:
    """Time passes; the thread's readings come every step."""
    for _ in range(round(seconds / step)):
        clock.tick(step)
        meter.poll()


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("counter", [True, False], ids=["counter", "power"])
def test_known_traces(name, counter):
    clock, trace = FakeClock(START), shifted(TRACES[name])
    fake = FakeNvml(clock, trace, counter=counter)
    with meter(clock, fake) as energy:
        clock.tick(2.03)
        key = energy.begin("m")
        run(clock, energy, 50)
        clock.tick(0.04)
        found = energy.end(key)
    assert found is not None
    assert found.joules == pytest.approx(trace.energy(START + 2.03, START + 52.07), rel=0.01)
    assert (found.gap_s, found.shared) == (0, 1)
    assert found.seconds == pytest.approx(50.04)
    assert found.label == ("NVML energy counter" if counter else "NVML power samples")
    assert fake.inits == 0


@pytest.mark.parametrize("counter", [True, False], ids=["counter", "power"])
@pytest.mark.parametrize("name", TRACES)
def test_dropped_samples(name, counter):
    """Every fifth reading fails, and once five in a row: gaps are bridged and said."""
    clock, trace = FakeClock(START), shifted(TRACES[name])
    fake = FakeNvml(clock, trace, counter=counter)
    energy = meter(clock, fake)
    fake.dropped = lambda number: number % 5 == 0 or 200 < number <= 205
    key = energy.begin("m")
    run(clock, energy, 50)
    found = energy.end(key)
    assert found is not None
    assert found.joules == pytest.approx(trace.energy(START, START + 50), rel=0.01)
    if not counter:
        assert 0.3 < found.gap_s < 0.4
        assert found.label.endswith("s without readings")
    assert energy.failed_readings > 50


def test_instant_power_is_preferred_to_an_average():
    clock = FakeClock(START)
    fake = FakeNvml(clock, shifted(TRACES["ramp"]), counter=False, instant=True)
    assert meter(clock, fake).source == "NVML instant power samples"


def test_a_counter_that_wraps_and_one_that_starts_anew():
    clock, trace = FakeClock(START), shifted([(0, 200.0), (200, 200.0)])
    fake = FakeNvml(clock, trace, wrap_mj=3_000_000)
    (reader,) = nvml_readers(library=fake)
    reader.wrap_j = 3000.0
    energy = EnergyMeter([reader], clock=clock, thread=False)
    key = energy.begin("m")
    run(clock, energy, 60, step=1.0)  # 12 kJ: four wraps
    found = energy.end(key)
    assert found is not None
    assert found.joules == pytest.approx(12_000, rel=0.001)
    anew = FakeNvml(clock, trace)
    energy = meter(clock, anew)
    key = energy.begin("m")
    run(clock, energy, 5)
    anew.reset_at = clock() + 0.05
    run(clock, energy, 5)
    found = energy.end(key)
    assert found is not None
    assert found.joules == pytest.approx(2000 - 0.05 * 200, rel=0.001)
    assert found.gap_s > 0


def test_several_gpus_are_told_apart():
    clock = FakeClock(START)
    fake = FakeNvml(clock, shifted([(0, 100.0), (99, 100.0)]), shifted([(0, 300.0), (99, 300.0)]))
    placements = {"small": Placement(("gpu0",)), "large": Placement(("gpu1",)), "both": Placement()}
    energy = meter(clock, fake, placements=placements)
    small, large = energy.begin("small"), energy.begin("large")
    run(clock, energy, 10)
    found = [energy.end(small), energy.end(large)]
    assert [item and round(item.joules) for item in found] == [1000, 3000]
    key = energy.begin("both")
    run(clock, energy, 10)
    both = energy.end(key)
    assert both is not None
    assert both.joules == pytest.approx(4000)
    with pytest.raises(ConfigError, match="placements: m: no device gpu7"):
        meter(clock, fake, placements={"m": Placement(("gpu7",))})
    with pytest.raises(ConfigError, match="there are 2 GPUs"):
        nvml_readers([2], fake)
    assert [reader.name for reader in nvml_readers([1], fake)] == ["gpu1"]


def test_concurrent_calls_share_by_busy_time():
    clock, fake = FakeClock(START), None
    fake = FakeNvml(clock, shifted([(0, 100.0), (99, 100.0)]))
    energy = meter(clock, fake)
    first = energy.begin("a")
    run(clock, energy, 4)
    second = energy.begin("b")
    run(clock, energy, 2)
    one = energy.end(first)
    run(clock, energy, 3)
    two = energy.end(second)
    assert one is not None
    assert two is not None
    assert one.joules == pytest.approx(400 + 100, abs=0.01)
    assert two.joules == pytest.approx(100 + 300, abs=0.01)
    assert (one.shared, two.shared) == (2, 2)
    assert one.label == "NVML energy counter, shared by up to 2 calls"


def test_a_call_that_waits_for_its_server_takes_nothing():
    clock = FakeClock(START)
    fake = FakeNvml(clock, shifted([(0, 100.0), (99, 100.0)]))
    one_at_a_time = Placement(server="ollama", slots=1)
    energy = meter(clock, fake, placements={"a": one_at_a_time, "b": one_at_a_time})
    first, second = energy.begin("a"), energy.begin("b")
    run(clock, energy, 4)
    one = energy.end(first)
    run(clock, energy, 3)
    two = energy.end(second)
    assert one is not None
    assert two is not None
    assert (one.joules, two.joules) == (pytest.approx(400, abs=0.01), pytest.approx(300, abs=0.01))


def test_a_call_shorter_than_the_interval_is_measured_at_its_ends():
    clock = FakeClock(START)
    energy = meter(clock, FakeNvml(clock, shifted([(0, 250.0), (99, 250.0)]), counter=False))
    clock.tick(30)
    key = energy.begin("m")
    clock.tick(0.02)
    found = energy.end(key)
    assert found is not None
    assert found.joules == pytest.approx(5.0)


def test_without_any_reading_there_is_no_measurement():
    clock = FakeClock(START)
    fake = FakeNvml(clock, shifted(TRACES["constant"]))
    energy = meter(clock, fake)
    fake.dropped = lambda number: True
    key = energy.begin("m")
    run(clock, energy, 1)
    assert energy.end(key) is None
    assert energy.end(key) is None
    assert energy.end(12345) is None


def test_a_last_reading_that_fails_is_bridged_by_the_last_power():
    clock = FakeClock(START)
    fake = FakeNvml(clock, shifted([(0, 100.0), (99, 100.0)]))
    energy = meter(clock, fake)
    key, other = energy.begin("m"), energy.begin("n")
    run(clock, energy, 5)
    fake.dropped = lambda number: True
    clock.tick(1)
    found = energy.end(key)
    assert found is not None
    assert found.joules == pytest.approx(250 + 50, abs=0.01)
    assert found.gap_s == pytest.approx(0.5)
    fake.dropped = lambda number: False
    run(clock, energy, 4)
    rest = energy.end(other)
    assert rest is not None
    assert found.joules + rest.joules == pytest.approx(1000, abs=0.02)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 3), st.integers(0, 2), st.booleans()), min_size=1, max_size=25))
def test_shares_add_up_to_what_the_device_took_while_busy(events):
    clock = FakeClock(START)
    trace = shifted([(0, 120.0), (20, 480.0), (200, 30.0)])
    energy = meter(clock, FakeNvml(clock, trace, counter=True))
    calls: list[int] = []
    total, expected = 0.0, 0.0
    for seconds, which, opens in events:
        before = clock()
        clock.tick(seconds)
        if calls:
            expected += trace.energy(before, clock())
        if opens or not calls:
            calls.append(energy.begin(f"m{which}"))
        else:
            found = energy.end(calls.pop(which % len(calls)))
            assert isinstance(found, Measurement)
            total += found.joules
    for key in calls:
        found = energy.end(key)
        assert found is not None
        total += found.joules
    assert total == pytest.approx(expected, rel=1e-4, abs=0.01 * len(events))


def test_the_thread_reads_only_while_calls_are_in_flight():
    clock = FakeClock(START)
    energy = EnergyMeter(nvml_readers(library=FakeNvml(clock, shifted(TRACES["constant"]))), clock=clock)
    assert isinstance(energy, Meter)
    assert not energy._running.is_set()
    key = energy.begin("m")
    assert energy._running.is_set()
    energy.cancel(key)
    assert not energy._running.is_set()
    energy.close()


def test_settings_are_checked():
    clock = FakeClock(START)
    readers = nvml_readers(library=FakeNvml(clock, shifted(TRACES["constant"])))
    with pytest.raises(ConfigError, match="readers: seen"):
        EnergyMeter([*readers, *readers], thread=False)
    with pytest.raises(ConfigError, match="interval_s: seen 0"):
        EnergyMeter(readers, interval_s=0, thread=False)
