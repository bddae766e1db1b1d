"""Runs the variants over seeds and sums them up: means, intervals, and which of the paper's orderings hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from steproute.benchmarks.simulator.accuracy import PATHS, mean_absolute_errors
from steproute.benchmarks.simulator.play import play
from steproute.benchmarks.simulator.variants import TARGET_J, VARIANTS
from steproute.benchmarks.simulator.world import World
from steproute.benchmarks.statistics import mean_interval

FULL = "progrouter (full)"
ABLATIONS = tuple(name for name in VARIANTS if name != FULL and not name.startswith("fixed"))
SMALL = ("alpha-0.5b", "alpha-3b", "beta-4b")


@dataclass(frozen=True)
class Job:
    """One run: a seed, and a variant or (empty) the accuracy of the predictor."""

    seed: int
    variant: str
    tasks: int
    warmup: int


def run(job: Job) -> dict[str, float]:
    """Play one run.

    Returns:
        For a variant quality, joules, seconds and calls per task after the warm-up, the same before it, and the share of
        calls that small models served; for the accuracy MAE per path.
    """
    if not job.variant:
        return dict(mean_absolute_errors(job.seed, job.tasks))
    played = play(VARIANTS[job.variant].router(job.seed), World(job.seed), job.tasks)
    cold, steady = slice(0, job.warmup), slice(job.warmup, None)
    return {
        "quality": float(np.mean(played.success[steady])),
        "energy_j": float(np.mean(played.energy_j[steady])),
        "seconds": float(np.mean(played.seconds[steady])),
        "calls": float(np.mean(played.calls[steady])),
        "cold_quality": float(np.mean(played.success[cold])),
        "cold_energy_j": float(np.mean(played.energy_j[cold])),
        "small_share": sum(played.share[name] for name in SMALL) / sum(played.share.values()),
    }


def compare(jobs: Sequence[Job], workers: int = 1) -> dict[str, list[dict[str, float]]]:
    """Run everything; results per variant in the order of the jobs, the accuracy under the empty name."""
    if workers > 1:
        with ProcessPoolExecutor(workers) as pool:
            results = list(pool.map(run, jobs))
    else:
        results = [run(job) for job in jobs]
    found: dict[str, list[dict[str, float]]] = {}
    for job, result in zip(jobs, results, strict=True):
        found.setdefault(job.variant, []).append(result)
    return found


def summary(found: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Plain JSON values: accuracy, one entry per variant, and the orderings."""
    rows = [
        {
            "variant": name,
            **{key: interval([run[key] for run in runs]) for key in runs[0]},
            "feasible": bool(np.mean([run["energy_j"] for run in runs]) <= TARGET_J),
            "feasible_seeds": float(np.mean([run["energy_j"] <= TARGET_J for run in runs])),
        }
        for name, runs in found.items()
        if name
    ]
    accuracy = found.get("", [])
    mae = {path: interval([run[path] for run in accuracy]) for path in (*PATHS, "constant")} if accuracy else {}
    return {"target_j": TARGET_J, "mae": mae, "routing": rows, "orderings": orderings(found)}


def orderings(found: Mapping[str, Sequence[Mapping[str, float]]]) -> list[dict[str, Any]]:
    """The paper's claims with the difference that decides each, seed by seed; a claim holds if its interval is above 0."""
    claims = []
    accuracy = found.get("", [])
    if accuracy:
        for better, worse in (("meta", "semantic"), ("semantic", "average"), ("average", "structured")):
            gap = [run[worse] - run[better] for run in accuracy]
            claims.append(_claim(f"MAE: {better} < {worse}", gap))
    if FULL in found:
        for name in ABLATIONS:
            if name in found:
                gap = [one["quality"] - two["quality"] for one, two in zip(found[FULL], found[name], strict=True)]
                over = np.mean([one["energy_j"] for one in found[name]]) > TARGET_J
                claims.append({**_claim(f"quality: full > {name}", gap), "over_budget": bool(over)})
    return claims


def interval(values: Sequence[float]) -> dict[str, float]:
    """Mean, standard deviation, and half the width of the 95 % interval of the mean."""
    mean, spread, half = mean_interval(values)
    return {"mean": mean, "sd": spread, "ci95": half}


def _claim(text: str, gap: Sequence[float]) -> dict[str, Any]:
    found = interval(gap)
    verdict = "holds" if found["mean"] > found["ci95"] else "does not hold" if found["mean"] <= 0 else "not decided"
    if len(gap) < 2:
        verdict = "not decided"  # one seed has no interval
    return {"claim": text, "difference": found, "verdict": verdict}
