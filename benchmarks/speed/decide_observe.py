"""CPU time of one decision and its outcome, next to a contextual bandit of mabwiser on the same machine in one run.

`python benchmarks/speed/decide_observe.py [--json]`. Both sides choose among 8 candidates. steproute decides and observes in
the middle of a task whose ledger has 10 to 10,000 steps; mabwiser's LinUCB predicts and updates with 64 features. Rounds
alternate between the sides, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np

from steproute import Budget, Evidence, Ledger, Limit, Model, Outcome, Price, Profile, Router, Step, Task

LENGTHS = (10, 30, 1000, 10_000)
CANDIDATES = 8
FEATURES = 64
ROUND = 50


def candidates() -> list[Model]:
    """Eight models of doubling size with prices and profiles, so that every term of the score is at work."""
    return [
        Model(
            f"m{i}",
            price=Price(input=0.1 * 2**i, output=0.4 * 2**i),
            size_b=2.0**i,
            profile=Profile(prefill_tokens_per_s=4000 / 2**i, decode_tokens_per_s=200 / 2**i, power_w=300),
        )
        for i in range(CANDIDATES)
    ]


def budget() -> Budget:
    """A hard limit, a soft one and a long-run target, none of which is reached."""
    return Budget(usd=1e6, seconds=Limit(limit=1e9, hard=False), energy_j=Limit(limit=1e12, hard=False, target=1e6))


def routed(length: int, policy: str) -> Callable[[], None]:
    """One decision and its outcome in a ledger of that many steps."""
    ledger = Ledger(
        task=Task(id="t", domain="code", goal="write a function"),
        steps=[
            Step(
                role="coder",
                model=f"m{i % CANDIDATES}",
                output=f"def f(): return {i}",
                outcome=Outcome(evidence=[Evidence(source="examples", score=i % 4 / 4, count=4)]),
            )
            for i in range(length)
        ],
    )
    router = Router(candidates(), budget(), policy, seed=0, on_error="raise")

    def step() -> None:
        decision = router.decide(ledger, "coder", prompt_tokens=900, max_tokens=256)
        outcome = Outcome(
            prompt_tokens=900,
            completion_tokens=120,
            seconds=1.5,
            evidence=[Evidence(source="syntax", score=1.0), Evidence(source="examples", score=0.5, count=4)],
        )
        router.observe(decision, outcome, output="def f(): return 1")

    return step


def bandit() -> Callable[[], None]:
    """mabwiser's LinUCB: predict, then partial_fit, with 8 arms and 64 features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mabwiser.mab import MAB, LearningPolicy

    rng = np.random.default_rng(0)
    arms = [f"m{i}" for i in range(CANDIDATES)]
    model = MAB(arms, LearningPolicy.LinUCB(alpha=1.0), seed=0)
    first = rng.normal(size=(CANDIDATES, FEATURES))
    model.fit(decisions=arms, rewards=rng.random(CANDIDATES), contexts=first)
    contexts = rng.normal(size=(1000, 1, FEATURES))
    turn = iter(range(10**9))

    def step() -> None:
        context = contexts[next(turn) % len(contexts)]
        arm = model.predict(context)
        model.partial_fit([arm], [0.5], context)

    return step


def measure(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of CPU per step, by side; rounds of all sides alternate."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for each in steps.values():
        for _ in range(ROUND):
            each()
    for _ in range(rounds):
        for name, step in steps.items():
            for _ in range(ROUND):
                start = time.process_time_ns()
                step()
                times[name].append((time.process_time_ns() - start) / 1e6)
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20, help=f"rounds of {ROUND} steps per side")
    parser.add_argument("--policy", default="progrouter", help="policy of the router")
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    options = parser.parse_args()
    steps = {f"steproute, {length} steps": routed(length, options.policy) for length in LENGTHS}
    steps[f"mabwiser LinUCB, d={FEATURES}"] = bandit()
    times = measure(steps, options.rounds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    reference = list(medians.values())[-1]
    rows = [
        {
            "side": name,
            "median_ms": round(medians[name], 4),
            "p90_ms": round(float(np.quantile(values, 0.9)), 4),
            "ratio_to_linucb": round(medians[name] / reference, 3),
        }
        for name, values in times.items()
    ]
    if options.json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    out = sys.stdout.write
    out(f"decide + observe, {CANDIDATES} candidates, policy {options.policy}; CPU milliseconds per step\n")
    out(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n\n")
    out(f"{'':28}{'median':>9}{'p90':>9}{'ratio to LinUCB':>18}\n")
    for row in rows:
        out(f"{row['side']:28}{row['median_ms']:>9.3f}{row['p90_ms']:>9.3f}{row['ratio_to_linucb']:>18.2f}\n")


if __name__ == "__main__":
    main()
