"""What telemetry adds to `decide` + `observe`: CPU time of each signal on its own, against none.

python benchmarks/speed/telemetry.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from steproute import Budget, Model, Outcome, Price, Router
from steproute.telemetry import Telemetry

STEPS = 1000
ROUNDS = 3


def milliseconds(telemetry: Telemetry | None) -> float:
    """Median CPU time of a step, in milliseconds."""
    models = [Model(f"m{i}", price=Price(input=1 + i, output=2)) for i in range(4)]
    router = Router(models, Budget(usd=1), "progrouter", telemetry=telemetry, seed=0)
    taken = []
    for number in range(STEPS):
        began = time.thread_time_ns()
        decision = router.decide(f"t{number // 5}", "coder", step=str(number), text="hello")
        router.observe(decision, Outcome(prompt_tokens=10, completion_tokens=5))
        taken.append(time.thread_time_ns() - began)
    router.close()
    return statistics.median(taken) / 1e6


def main() -> None:
    """Print the table; the cases take turns, and each shows its best round."""
    cases: dict[str, Callable[[], Telemetry | None]] = {
        "off": lambda: None,
        "spans, no SDK": lambda: Telemetry(metrics=False),
        "spans, SDK without exporter": lambda: Telemetry(metrics=False, tracer_provider=TracerProvider()),
        "metrics": lambda: Telemetry(spans=False, registry=CollectorRegistry()),
        "log lines into a file": lambda: Telemetry(spans=False, metrics=False, logs="/dev/null"),
    }
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(ROUNDS):
        for name, make in cases.items():
            best[name] = min(best[name], milliseconds(make()))
    for name, value in best.items():
        print(f"{name:28} {value:.3f} ms CPU   +{value - best['off']:.3f}")  # noqa: T201


if __name__ == "__main__":
    main()
