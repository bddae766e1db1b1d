"""Throughput and latency of LiteLLM's proxy with steproute against `simple-shuffle` with a no-op logger, in one run.

`python benchmarks/speed/litellm_proxy.py [--requests N] [--rounds N] [--starts N] [--json]`. It needs what
`litellm[proxy]` needs. Two proxies, each one process, stand before the same fake model server; short rounds of requests
go to one and the other in turn, so that whatever else the machine does falls on both, and neighbouring rounds are
compared. A proxy that is loaded is held up by its CPU alone, so the CPU time per request says how many requests per second
it serves on a core of its own; on a machine that does other things too that is the steadier of the two ratios. Two proxies
with the same logger differ by some per cent from start to start, hence the starts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import platform
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from steproute.benchmarks.speed.litellm_upstream import serve

STARTS_WITHIN_S = 180.0
SETTLES_S = 0.1
WARM_UP = 200
"""Requests per side before the measured rounds, at least."""
SIDES = ("noop", "steproute")
_STUDENT = {3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45}
"""97.5 % quantile of Student's t by number of starts."""
_NOOP = """from litellm.integrations.custom_logger import CustomLogger


class Noop(CustomLogger):
    async def async_filter_deployments(
        self, model, healthy_deployments, messages, request_kwargs=None, parent_otel_span=None
    ):
        return healthy_deployments

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        pass


noop = Noop()
"""


@dataclass
class Proxy:
    """One proxy process and what was measured of it."""

    folder: Path
    upstream: str
    callback: str
    key: str = field(default_factory=lambda: f"sk-{secrets.token_hex(24)}")
    port: int = 0
    rates: list[float] = field(default_factory=list)
    """Requests per second of each round."""
    costs: list[float] = field(default_factory=list)
    """CPU seconds of the process per request, user and system, of each round."""
    seconds: list[float] = field(default_factory=list)
    """Of each request."""
    process: Any = None

    def start(self, candidates: int) -> None:
        """Write its files and start it."""
        names = [f"m{i}" for i in range(candidates)]
        listed = [
            {
                "model_name": "team",
                "litellm_params": {"model": f"openai/{name}", "api_base": self.upstream, "api_key": "none"},
                "model_info": {"id": name},
            }
            for name in names
        ]
        models = [
            {"name": name, "price": {"input": 0.1 * 2**i, "output": 0.4 * 2**i}, "size_b": 2.0**i}
            for i, name in enumerate(names)
        ]
        config = {
            "model_list": listed,
            "litellm_settings": {"callbacks": [self.callback]},
            "router_settings": {"routing_strategy": "simple-shuffle"},
            "general_settings": {"master_key": self.key},
        }
        steproute = {"models": models, "budget": {"usd": 1e6}, "seed": 0}
        self.folder.mkdir()
        (self.folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        (self.folder / "steproute.yaml").write_text(json.dumps(steproute), encoding="utf-8")
        (self.folder / "noop_logger.py").write_text(_NOOP, encoding="utf-8")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
        environment["STEPROUTE_CONFIG"] = str(self.folder / "steproute.yaml")
        command = [str(Path(sys.executable).with_name("litellm")), "--config", str(self.folder / "config.yaml")]
        with (self.folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", str(self.port)],
                env=environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    async def ready(self, session: aiohttp.ClientSession) -> None:
        """Wait until it answers."""
        began = time.monotonic()
        while time.monotonic() - began < STARTS_WITHIN_S and self.process.poll() is None:
            try:
                async with session.get(f"http://127.0.0.1:{self.port}/health/liveliness") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.5)
        raise RuntimeError(f"the proxy did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()

    async def load(self, session: aiohttp.ClientSession, requests: int, concurrency: int, first: int) -> None:
        """Make one round of requests."""
        numbers = iter(range(first, first + requests))
        headers = {"authorization": f"Bearer {self.key}"}
        messages = [{"role": "user", "content": f"question {i} " * 20} for i in range(10)]

        async def worker() -> None:
            for number in numbers:
                body = {"model": "team", "messages": messages, "max_tokens": 200}
                began = time.perf_counter()
                async with session.post(
                    f"http://127.0.0.1:{self.port}/v1/chat/completions",
                    json=body,
                    headers={**headers, "x-litellm-session-id": f"s{number // 8}"},
                ) as answer:
                    await answer.read()
                    answer.raise_for_status()
                self.seconds.append(time.perf_counter() - began)

        began, busy = time.perf_counter(), cpu_seconds(self.process.pid)
        await asyncio.gather(*(worker() for _ in range(concurrency)))
        self.rates.append(requests / (time.perf_counter() - began))
        await asyncio.sleep(SETTLES_S)  # the last outcomes are logged after their answers
        self.costs.append((cpu_seconds(self.process.pid) - busy) / requests)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far; 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(proxies: Mapping[str, Proxy], requests: int, rounds: int, concurrency: int) -> None:
    """Load both in turn, the first rounds unmeasured: LiteLLM imports much of itself when it is first needed."""
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        for proxy in proxies.values():
            await proxy.ready(session)
        warm = -(-WARM_UP // requests)
        for number in range(rounds + warm):
            order = list(proxies.values())
            for proxy in order if number % 2 else reversed(order):
                await proxy.load(session, requests, concurrency, number * requests)
            if number < warm:
                for proxy in order:
                    proxy.rates.clear()
                    proxy.costs.clear()
                    proxy.seconds.clear()


def compare(starts: Sequence[Mapping[str, Proxy]]) -> dict[str, Any]:
    """What all the starts say together."""
    result: dict[str, Any] = {name: _summary([proxies[name] for proxies in starts]) for name in SIDES}
    pairs = [[proxies[name] for name in SIDES] for proxies in starts]
    result["cpu_ratio"], result["cpu_ratio_95"] = ratio([(noop.costs, ours.costs) for noop, ours in pairs])
    result["ratio"], result["ratio_95"] = ratio([(ours.rates, noop.rates) for noop, ours in pairs])
    result["cpu_ratios"] = [ratio([(noop.costs, ours.costs)])[0] for noop, ours in pairs]
    return result


def ratio(starts: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[float, float]:
    """Geometric mean of the ratios of neighbouring rounds, and half its 95 % interval; nan where a round has no number.

    The interval is the wider of two: from the spread of the rounds, and, with three starts or more, from that of the starts.

    Args:
        starts: numbers of the rounds above and below the line, for each start.
    """
    if not all(value > 0 for start in starts for side in start for value in side):
        return math.nan, math.nan
    logs = [[math.log(high / low) for high, low in zip(*start, strict=True)] for start in starts]
    rounds = [value for start in logs for value in start]
    mean = math.exp(statistics.fmean(rounds))
    half = 1.96 * statistics.stdev(rounds) / math.sqrt(len(rounds)) if len(rounds) > 1 else 0.0
    if len(logs) > 2:
        between = statistics.stdev([statistics.fmean(start) for start in logs]) / math.sqrt(len(logs))
        half = max(half, _STUDENT.get(len(logs), 2.3) * between)
    return mean, mean * half


def _summary(proxies: Sequence[Proxy]) -> dict[str, float]:
    ordered = sorted(value for proxy in proxies for value in proxy.seconds)
    return {
        "requests_per_s": statistics.median(value for proxy in proxies for value in proxy.rates),
        "cpu_ms": 1000 * statistics.fmean(value for proxy in proxies for value in proxy.costs),
        "p50_ms": 1000 * ordered[len(ordered) // 2],
        "p99_ms": 1000 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=50, help="per round and side")
    parser.add_argument("--rounds", type=int, default=20, help="per start")
    parser.add_argument("--starts", type=int, default=4, help="how often both proxies are started")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--candidates", type=int, default=3, help="deployments")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    upstream = f"http://127.0.0.1:{ours.recv()}/v1"
    starts = []
    try:
        for _ in range(options.starts):
            starts.append(_started(upstream, options))
    finally:
        server.terminate()
        server.join(5)
    row = compare(starts)
    if options.json:
        sys.stdout.write(json.dumps(row) + "\n")
        return
    sys.stdout.write(
        f"{options.starts} starts, {options.rounds} rounds of {options.requests} requests each, "
        f"{options.concurrency} at a time; "
        f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}\n"
    )
    for name in SIDES:
        said = row[name]
        sys.stdout.write(
            f"{name:10} {said['requests_per_s']:7.1f} requests/s   p50 {said['p50_ms']:6.1f} ms   p99 {said['p99_ms']:6.1f} ms   "
            f"CPU {said['cpu_ms']:5.2f} ms a request\n"
        )
    sys.stdout.write(
        f"steproute / noop: {row['cpu_ratio']:.3f} ± {row['cpu_ratio_95']:.3f} of the requests per CPU second, "
        f"{row['ratio']:.3f} ± {row['ratio_95']:.3f} of the requests per second\n"
        f"per start, by CPU: {', '.join(f'{value:.3f}' for value in row['cpu_ratios'])}\n"
    )


def _started(upstream: str, options: argparse.Namespace) -> dict[str, Proxy]:
    """Start both, measure them, and end them."""
    with tempfile.TemporaryDirectory() as folder:
        proxies = {
            "noop": Proxy(Path(folder, "noop"), upstream, "noop_logger.noop"),
            "steproute": Proxy(Path(folder, "steproute"), upstream, "steproute.plugins.litellm.proxy"),
        }
        try:
            for proxy in proxies.values():
                proxy.start(options.candidates)
            asyncio.run(measure(proxies, options.requests, options.rounds, options.concurrency))
        finally:
            for proxy in proxies.values():
                proxy.stop()
    return proxies


if __name__ == "__main__":
    main()
