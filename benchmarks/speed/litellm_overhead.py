"""CPU time that routing adds to a call of `litellm.Router`, beside a no-op logger on the same fake server in one run.

`python benchmarks/speed/litellm_overhead.py [--calls N] [--json]`. The server is a process of its own, so its work is not
counted. A bare and a routed call are made in turn, so that whatever else the machine does falls on both; of each the
median CPU time until its outcome has been heard is compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from typing import Any

from steproute import Budget, Limit, Model, Price, Router
from steproute.benchmarks.speed.litellm_upstream import serve
from steproute.plugins.litellm import StepRouting
from steproute.router import DEFAULT_POLICY

import litellm  # isort: skip  (after the plugin, which keeps it off the network)
from litellm.integrations.custom_logger import CustomLogger  # isort: skip

HISTORY = 20
"""Messages of the conversation each call carries."""
WARM_UP = 20


class Noop(CustomLogger):  # type: ignore[misc]
    """Hears of every call and filters nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = asyncio.Event()

    async def async_filter_deployments(
        self,
        model: Any,
        healthy_deployments: Any,
        messages: Any,
        request_kwargs: Any = None,
        parent_otel_span: Any = None,
    ) -> Any:
        """Leave them all."""
        return healthy_deployments

    async def async_log_success_event(self, *given: Any, **named: Any) -> None:
        """Note that it came."""
        self.heard.set()


class Heard(StepRouting):
    """Notes when an outcome has been taken in."""

    heard: asyncio.Event

    async def async_log_success_event(self, *given: Any, **named: Any) -> None:
        """Hear of a call that returned."""
        await super().async_log_success_event(*given, **named)
        self.heard.set()


async def measure(base_url: str, calls: int, candidates: int, policy: str) -> dict[str, float]:
    """CPU milliseconds per call: medians, and the median of the differences of neighbouring calls."""
    names = [f"m{i}" for i in range(candidates)]
    models = [
        Model(name, price=Price(input=0.1 * 2**i, output=0.4 * 2**i), size_b=2.0**i) for i, name in enumerate(names)
    ]
    router = Router(models, Budget(usd=1e6, seconds=Limit(limit=1e9, hard=False)), policy, seed=0)
    library: Any = litellm
    llm = library.Router(
        model_list=[
            {
                "model_name": "team",
                "litellm_params": {"model": f"openai/{name}", "api_base": base_url, "api_key": "none"},
                "model_info": {"id": name},
            }
            for name in names
        ]
    )
    history: list[dict[str, str]] = []
    for number in range(HISTORY // 2):
        history.append({"role": "user", "content": f"question {number} " * 20})
        history.append({"role": "assistant", "content": "answer " * 40})
    loggers: list[Any] = [Noop(), Heard(router)]
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(calls + WARM_UP):
        for kept, logger in zip(times, loggers, strict=True):
            library.callbacks = [logger]
            logger.heard = asyncio.Event()
            messages = [*history, {"role": "user", "content": f"and now {number}?"}]
            start = time.process_time()
            await llm.acompletion(model="team", messages=messages, metadata={"session_id": f"s{number // 8}"})
            await asyncio.wait_for(logger.heard.wait(), 60)
            if number >= WARM_UP:
                kept.append(1000 * (time.process_time() - start))
    added = [high - low for low, high in zip(*times, strict=True)]
    low, high = (statistics.median(kept) for kept in times)
    return {"noop_ms": low, "routed_ms": high, "added_ms": statistics.median(added), "faults": float(router.errors)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300, help="calls per side")
    parser.add_argument("--candidates", type=int, default=3, help="models to choose from")
    parser.add_argument("--policy", default=DEFAULT_POLICY, help="how they are chosen")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    try:
        url = f"http://127.0.0.1:{ours.recv()}/v1"
        row = asyncio.run(measure(url, options.calls, options.candidates, options.policy))
    finally:
        server.terminate()
        server.join(5)
    if options.json:
        sys.stdout.write(json.dumps(row) + "\n")
        return
    sys.stdout.write(
        f"CPU ms per call, median of {options.calls}; {HISTORY + 1} messages, {options.candidates} candidates, "
        f"{options.policy}; {os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}\n"
        f"no-op {row['noop_ms']:.2f}   routed {row['routed_ms']:.2f}   added {row['added_ms']:.2f}\n"
    )


if __name__ == "__main__":
    main()
