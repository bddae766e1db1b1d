"""What the learnt parts cost: a decision with trees and a full memory, a refit, and the room they take.

`python -m steproute.benchmarks.speed.trees_and_memory [--json]`. Eight candidates; the predictor is fitted on 5,000 rows,
the memory holds 20,000 experiences of 256 dimensions. Beside it, in the same run: mabwiser's LinUCB on the same 256
dimensions, and one plain XGBoost regression on the semantic table. CPU time on one thread, but for what runs beside a refit.
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
from typing import Any

import numpy as np

from steproute import Evidence, Model, Outcome, Price, Profile, Router, Task
from steproute.memory import CAPACITY, ExactMemory, Experience
from steproute.policies.acrouter import ACRouter
from steproute.predict.boosting import load_xgboost
from steproute.predict.buffer import MemoryBuffer, Sample
from steproute.predict.dual_path import DualPathConfig, DualPathEstimator
from steproute.predict.features import MODEL, STATE, StateFacts
from steproute.predict.trainer import Trainer, TrainerConfig

CANDIDATES, DIM, ROWS = 8, 256, 5000
WORDS = ("merge", "parse", "interval", "matrix", "date", "token", "retry", "schema", "index", "cache", "sort", "sum")


def models() -> list[Model]:
    """Eight models of doubling size."""
    return [
        Model(
            f"m{i}",
            price=Price(input=0.1 * 2**i, output=0.4 * 2**i),
            size_b=2.0**i,
            profile=Profile(decode_tokens_per_s=200 / 2**i, decode_j_per_token=0.2 * 2**i),
        )
        for i in range(CANDIDATES)
    ]


def buffer(rng: np.random.Generator) -> MemoryBuffer:
    """5,000 samples of 1,000 tasks, so that the next one starts a fit."""
    kept = MemoryBuffer()
    for i in range(ROWS):
        state = rng.random(len(STATE)).astype(np.float32)
        state[1] = rng.integers(0, 4)
        name = f"m{rng.integers(CANDIDATES)}"
        facts = StateFacts(state, "coder", name, {name: 1}, {"coder": 2})
        embedding = (rng.standard_normal(DIM) / 16).astype(np.float16)
        gain = float(np.clip(0.4 * (1 - state[0]) + embedding[3], -1, 1))
        kept.append(Sample(f"t{i // 5}", name, facts, rng.random(len(MODEL)).astype(np.float32), embedding, gain, 1.0))
    return kept


def memory(rng: np.random.Generator) -> ExactMemory:
    """20,000 experiences."""
    kept = ExactMemory(DIM)
    for i in range(CAPACITY):
        row = rng.standard_normal(DIM).astype(np.float32)
        kept.add(
            Experience(row, f"m{i % CANDIDATES}", float(rng.random()), {"usd": 0.01}, {"task": f"t{i}", "step": i})
        )
    return kept


def sentence(rng: np.random.Generator) -> str:
    """A request of some 600 characters that no cache has seen."""
    return " ".join(rng.choice(WORDS, 90)) + f" {rng.random()}"


def resident_mb() -> float:
    """Memory of this process in MB; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return 0.0


def cpu_ms(step: Callable[[], object], times: int) -> tuple[float, float]:
    """Median and 90 % quantile of the CPU milliseconds of a step."""
    step()
    seen = []
    for _ in range(times):
        start = time.process_time_ns()
        step()
        seen.append((time.process_time_ns() - start) / 1e6)
    return statistics.median(seen), float(np.quantile(seen, 0.9))


def linucb(rng: np.random.Generator) -> tuple[Callable[[], object], Callable[[], object]]:
    """mabwiser's LinUCB on contexts of 256 numbers: predict, and partial_fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mabwiser.mab import MAB, LearningPolicy

    arms = [f"m{i}" for i in range(CANDIDATES)]
    bandit = MAB(arms, LearningPolicy.LinUCB(alpha=1.0), seed=0)
    bandit.fit(decisions=arms, rewards=rng.random(CANDIDATES), contexts=rng.normal(size=(CANDIDATES, DIM)))
    context = rng.normal(size=(1, DIM))
    return (lambda: bandit.predict(context)), (lambda: bandit.partial_fit(["m0"], [0.5], context))


def plain_fit(rows: list[Sample]) -> float:
    """CPU seconds of one XGBoost regression of 100 trees with its default bins on the embeddings alone."""
    xgboost = load_xgboost()
    table = np.stack([row.embedding for row in rows]).astype(np.float32)
    target = np.array([row.gain for row in rows], dtype=np.float32)
    start = time.process_time()
    data = xgboost.QuantileDMatrix(table, label=target, nthread=1)
    parameters = {"tree_method": "hist", "max_depth": 4, "eta": 0.1, "nthread": 1, "verbosity": 0}
    xgboost.train(parameters, data, num_boost_round=100)
    return time.process_time() - start


def measure(times: int) -> dict[str, Any]:
    """Everything, as one flat object."""
    rng = np.random.default_rng(0)
    load_xgboost()
    before = resident_mb()
    kept, rows = memory(rng), buffer(rng)
    policy = ACRouter(ACRouter.Config(epsilon=0.0), memory=kept)
    filled = resident_mb() - before
    start = time.perf_counter()
    estimator = DualPathEstimator(DualPathConfig(), buffer=rows)
    estimator.trainer.wait()
    alone = time.perf_counter() - start
    router = Router(models(), policy=policy, estimator=estimator, seed=0, on_error="raise")
    turn = iter(range(10**9))

    def decide() -> None:
        router.decide(Task(id=str(next(turn))), "coder", text=sentence(rng), prompt_tokens=900, max_tokens=256)

    def decide_and_observe() -> None:
        key = str(next(turn))
        decision = router.decide(Task(id=key), "coder", text=sentence(rng), prompt_tokens=900, max_tokens=256)
        evidence = [Evidence(source="examples", score=0.5, count=4)]
        router.observe(decision, Outcome(prompt_tokens=900, completion_tokens=120), output=key, evidence=evidence)

    query = rng.standard_normal(DIM).astype(np.float32)
    extra = Experience(query, "m0", 0.5)
    predict, update = linucb(rng)
    found: dict[str, Any] = {}
    for name, step in (
        ("decide", decide),
        ("decide + observe", decide_and_observe),
        ("memory: nearest 10", lambda: kept.nearest(query, 10)),
        ("memory: add", lambda: kept.add(extra)),
        (f"mabwiser LinUCB d={DIM}: predict", predict),
        (f"mabwiser LinUCB d={DIM}: partial_fit", update),
    ):
        found[name] = dict(zip(("median_ms", "p90_ms"), cpu_ms(step, times), strict=True))
    reference = found[f"mabwiser LinUCB d={DIM}: predict"]["median_ms"]
    for row in found.values():
        row["ratio_to_linucb_predict"] = row["median_ms"] / reference
    found["refit of 5,000 rows"] = refit_beside_decisions(estimator, decide)
    found["refit of 5,000 rows"]["alone_wall_s"] = alone
    found["refit of 5,000 rows"]["plain_xgboost_cpu_s"] = plain_fit(list(rows.rows())[:ROWS])
    found["memory and buffer"] = {"resident_mb": filled, "experiences": len(kept), "rows": len(rows)}
    return found


def refit_beside_decisions(estimator: DualPathEstimator, decide: Callable[[], None]) -> dict[str, float]:
    """Fit in the background while decisions go on; the decisions' own wall time shows whether they wait."""
    rows = buffer(np.random.default_rng(1)).rows()
    fresh = MemoryBuffer()
    for row in rows[:-1]:
        fresh.append(row)
    config = TrainerConfig(min_rows=len(rows))
    trainer = estimator.trainer = Trainer(fresh, estimator.trainer.trees, config)
    fits, waits = trainer.fits, []
    start = time.perf_counter()
    trainer.add(rows[-1])
    while not trainer.wait(0):
        before = time.perf_counter()
        decide()
        waits.append(1000 * (time.perf_counter() - before))
    assert trainer.fits == fits + 1, trainer.last_error
    return {
        "beside_decisions_wall_s": time.perf_counter() - start,
        "decisions_meanwhile": len(waits),
        "decide_wall_ms_median": statistics.median(waits),
        "decide_wall_ms_max": max(waits),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=300, help="repetitions of each step")
    parser.add_argument("--json", action="store_true", help="print one object")
    options = parser.parse_args()
    found = measure(options.times)
    if options.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    sys.stdout.write(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n\n")
    for name, values in found.items():
        sys.stdout.write(f"{name:38}" + "  ".join(f"{key} {value:.3f}" for key, value in values.items()) + "\n")


if __name__ == "__main__":
    main()
