"""CPU time of `pacer` without trees, deciding and observing apart, next to mabwiser's LinUCB in the same run.

`python benchmarks/speed/pacer_vs_mabwiser.py [--json]`. Both sides choose among 8 candidates; mabwiser has 64 features.
`Router` is `Router.decide` and `Router.observe` between steps 30 and 50 of a task, with progress, a hard, a soft and a
long-run limit, reservations and the decision's explanation; `policy` is what a bandit library does: `predict` and `score`, and
`learn`. Rounds alternate between the sides, so that whatever else the machine does falls on all of them.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from steproute import Evidence, Ledger, Outcome, Router, Step, Task
from steproute.benchmarks.speed.decide_observe import CANDIDATES, FEATURES, budget, candidates
from steproute.draws import Draws
from steproute.policies import BudgetState, Candidate, Feedback, StepContext
from steproute.policies.pacer import Pacer
from steproute.progress import Progress, Regime

START, STEPS, BAR_MS = 30, 20, 0.1
Round = Callable[[], list[tuple[float, float]]]
"""Plays some steps; milliseconds of deciding and of observing of each."""


def _now() -> float:
    return time.process_time_ns() / 1e6


def _evidence(score: float) -> list[Evidence]:
    return [Evidence(source="syntax", score=1.0), Evidence(source="examples", score=score, count=4)]


def routed() -> Round:
    """`Router` with `pacer`: every round is a new task that has come to its 30th step."""
    router = Router(candidates(), budget(), "pacer", seed=0, on_error="raise")
    turn = iter(range(10**9))

    def play() -> list[tuple[float, float]]:
        name = f"t{next(turn)}"
        steps = [
            Step(
                role="coder",
                model=f"m{i % CANDIDATES}",
                output=f"def f(): return {i}",
                outcome=Outcome(evidence=_evidence(i % 4 / 4)),
            )
            for i in range(START)
        ]
        ledger = Ledger(task=Task(id=name, domain="code", dimension="algorithms"), steps=steps)
        router.decide(ledger, "coder", prompt_tokens=900, max_tokens=256)  # reads the 30 steps
        times = []
        for i in range(STEPS):
            start = _now()
            decision = router.decide(ledger, "coder", prompt_tokens=900, max_tokens=256)
            deciding = _now() - start
            seconds = decision.model.profile.seconds(900, 120)
            outcome = Outcome(prompt_tokens=900, completion_tokens=120, seconds=seconds, evidence=_evidence(i % 4 / 4))
            start = _now()
            router.observe(decision, outcome, output=f"def f(): return {i}")
            times.append((deciding, _now() - start))
        router.finish(name)
        return times

    return play


def policy() -> Round:
    """`pacer` alone, as a bandit: one call a task, in one of 8 context groups."""
    pacer, rng, draws = Pacer(), np.random.default_rng(0), Draws(1)
    models, turn = candidates(), iter(range(10**9))
    after, before = Progress(0.6, Regime.PARTIAL, 0.6, 0.0, 0.6), Progress(0.0, Regime.INVALID, 0.0, 0.0, 0.0)
    limits = BudgetState(budget().limits(), {}, {}, {})

    def play() -> list[tuple[float, float]]:
        times = []
        for _ in range(STEPS):
            task = Task(id=f"t{next(turn)}")
            cost = {"usd": 0.001, "seconds": 2.0}
            options = [Candidate(model, cost, cost) for model in models]
            context = StepContext(
                task, "", 0, options, before, limits, Ledger(task=task), draws, (f"d{rng.integers(8)}", "", "")
            )
            start = _now()
            gains, spreads = pacer.predict(context)
            for option, gain, spread in zip(options, gains, spreads, strict=True):
                option.gain, option.gain_sd = gain, spread
            index = int(np.argmax(pacer.score(context).values))
            middle = _now()
            pacer.learn(Feedback(context, index, float(rng.random()), after, 1.0, cost))
            times.append((middle - start, _now() - middle))
        return times

    return play


def bandit() -> Round:
    """mabwiser's LinUCB: `predict`, and `partial_fit` with one reward."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mabwiser.mab import MAB, LearningPolicy

    rng = np.random.default_rng(0)
    arms = [f"m{i}" for i in range(CANDIDATES)]
    model = MAB(arms, LearningPolicy.LinUCB(alpha=1.0), seed=0)
    model.fit(arms, rng.random(CANDIDATES), rng.normal(size=(CANDIDATES, FEATURES)))

    def play() -> list[tuple[float, float]]:
        times = []
        for _ in range(STEPS):
            context = rng.normal(size=(1, FEATURES))
            start = _now()
            arm = model.predict(context)
            middle = _now()
            model.partial_fit([arm], [0.5], context)
            times.append((middle - start, _now() - middle))
        return times

    return play


def measure(rounds: int) -> list[dict[str, Any]]:
    """One row per side: median milliseconds of deciding and observing, and their ratios to mabwiser's."""
    sides = {"Router, pacer": routed(), "policy pacer alone": policy(), f"mabwiser LinUCB, d={FEATURES}": bandit()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for play in sides.values():
        for _ in range(10):
            play()
    gc.collect()
    for _ in range(rounds):
        for name, play in sides.items():
            times[name] += play()
    rows = []
    for name, pairs in times.items():
        decide, observe = (statistics.median(column) for column in zip(*pairs, strict=True))
        rows.append({"side": name, "decide_ms": decide, "observe_ms": observe})
    for row in rows:
        row["decide_ratio"] = row["decide_ms"] / rows[-1]["decide_ms"]
        row["observe_ratio"] = row["observe_ms"] / rows[-1]["observe_ms"]
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=100, help=f"rounds of {STEPS} steps per side")
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    options = parser.parse_args()
    rows = measure(options.rounds)
    if options.json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    out = sys.stdout.write
    out(f"{CANDIDATES} candidates; median CPU milliseconds (aim: {BAR_MS} each), in brackets the ratio to mabwiser's\n")
    out(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n\n")
    out(f"{'':24}{'decide':>16}{'observe':>16}\n")
    for row in rows:
        decide, observe = (f"{row[f'{key}_ms']:.3f} ({row[f'{key}_ratio']:.2f})" for key in ("decide", "observe"))
        out(f"{row['side']:24}{decide:>16}{observe:>16}\n")


if __name__ == "__main__":
    main()
