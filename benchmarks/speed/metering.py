"""What measuring joules costs: per call, and the sampler thread in the background.

`python benchmarks/speed/metering.py [--calls N] [--seconds S] [--json]`. The board is a stand-in whose reading takes as long
as NVML's on a real one (`--read-us`, spent on the CPU), since the cost of a reading is the driver's. A call stands for the
time a model takes to answer; the share is of that.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

from steproute import Budget, Limit, Model, Outcome, Profile, Router
from steproute.integrations.meters import EnergyMeter, Kind


class Board:
    """A GPU's energy counter: 300 W, and a reading that takes a while."""

    kind: Kind = "counter"
    source = "stand-in"
    wrap_j: float | None = None

    def __init__(self, index: int, read_s: float):
        self.name, self._read_s = f"gpu{index}", read_s

    def read(self) -> float:
        """Joules so far."""
        now = time.perf_counter()
        while time.perf_counter() - now < self._read_s:
            pass
        return 300.0 * now

    def close(self) -> None:
        """Nothing is held."""


def router(meter: EnergyMeter | None) -> Router:
    """Eight models with profiles and a target for energy."""
    profile = Profile(prefill_tokens_per_s=1000, decode_tokens_per_s=50, power_w=300)
    models = [Model(f"m{i}", price="free", size_b=2.0**i, profile=profile) for i in range(8)]
    return Router(models, Budget(energy_j=Limit(target=1e6)), "progrouter", meter=meter, seed=0, on_error="raise")


def per_call(calls: int, boards: int, read_s: float) -> tuple[float, float]:
    """Milliseconds of CPU that begin and end of a measured call take, and that the router takes more with a meter."""
    with EnergyMeter([Board(i, read_s) for i in range(boards)], thread=False) as meter:
        alone = []
        for _ in range(calls):
            start = time.process_time_ns()
            meter.end(meter.begin("m0"))
            alone.append((time.process_time_ns() - start) / 1e6)
        times: dict[bool, list[float]] = {True: [], False: []}
        sides = {True: router(meter), False: router(None)}
        for i in range(calls):
            for metered, side in sides.items():
                start = time.process_time_ns()
                side.observe(side.decide("t", step=str(i), prompt_tokens=500), Outcome(seconds=1.0))
                times[metered].append((time.process_time_ns() - start) / 1e6)
    return statistics.median(alone), statistics.median(times[True]) - statistics.median(times[False])


def sampler(seconds: float, boards: int, read_s: float) -> float:
    """Share of one core that the thread takes while a call is in flight."""
    with EnergyMeter([Board(i, read_s) for i in range(boards)]) as meter:
        key = meter.begin("m0")
        start, cpu = time.perf_counter(), time.process_time()
        time.sleep(seconds)  # the process does nothing but sample
        share = (time.process_time() - cpu) / (time.perf_counter() - start)
        meter.end(key)
    return share


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long the thread is watched")
    parser.add_argument("--boards", type=int, default=2)
    parser.add_argument("--read-us", type=float, default=50.0, help="microseconds that one reading takes")
    parser.add_argument("--call-s", type=float, default=1.0, help="seconds that a model takes to answer")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    read_s = options.read_us / 1e6
    alone, more = per_call(min(options.calls, 5000), options.boards, read_s)
    share = sampler(min(options.seconds, 60.0), options.boards, read_s)
    found = {
        "meter_ms_per_call": round(alone, 4),
        "router_ms_more_per_call": round(more, 4),
        "share_of_call_percent": round(100 * max(alone, more) / 1000 / options.call_s, 4),
        "sampler_percent_of_a_core": round(100 * share, 3),
    }
    if options.json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    out = sys.stdout.write
    out(f"{options.boards} boards, {options.read_us:g} µs a reading, load {os.getloadavg()[0]:.1f}\n")
    out(f"begin + end: {alone:.3f} ms CPU a call; the router's step takes {more:.3f} ms more with a meter\n")
    out(f"that is {found['share_of_call_percent']:.3f} % of a call of {options.call_s:g} s (bound: 0.5 %)\n")
    out(f"sampler thread, one reading of each board every 50 ms: {100 * share:.2f} % of a core (bound: 1 %)\n")


if __name__ == "__main__":
    main()
