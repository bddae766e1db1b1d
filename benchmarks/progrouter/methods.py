"""The methods of the paper's Table 1, and one run of one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from steproute.benchmarks.simulator.play import Played, play
from steproute.benchmarks.simulator.variants import VARIANTS, Variant
from steproute.benchmarks.simulator.world import ARMS, World

PROGROUTER = "ProgRouter"
SIZES = {"small": (0.0, 7.0), "medium": (7.0, 20.0), "large": (20.0, float("inf"))}
"""Billions of parameters, from … up to."""

METHODS: Mapping[str, Variant] = {
    PROGROUTER: VARIANTS["progrouter (full)"],
    "MasRouter (task-level)": Variant("prior", policy="task-level"),
    "CASCADIA (cascade)": Variant("prior", policy="cascade"),
    "Educated Guess": Variant("prior", policy="educated-guess"),
    **{f"fixed {arm.name}": VARIANTS[f"fixed {arm.name}"] for arm in ARMS},
}


@dataclass(frozen=True)
class Phase:
    """One run's tasks of one phase: means per task, and who served the calls."""

    quality: float
    energy_j: float
    seconds: float
    calls: float
    family: Mapping[str, float]
    """Share of calls."""
    size: Mapping[str, float]


@dataclass(frozen=True)
class Run:
    """What came of one method under one seed."""

    method: str
    seed: int
    cold: Phase
    """The tasks of the warm-up."""
    steady: Phase
    """The tasks after it; what is learnt is kept."""


@dataclass(frozen=True)
class Job:
    """What to run."""

    method: str
    seed: int
    tasks: int
    warmup: int


def run(job: Job) -> Run:
    """Play one method."""
    router, world = METHODS[job.method].router(job.seed), World(job.seed)
    cold = play(router, world, job.warmup)
    steady = play(router, world, job.tasks - job.warmup, start=job.warmup)
    return Run(job.method, job.seed, _phase(cold), _phase(steady))


def size_of(billions: float) -> str:
    """`small`, `medium` or `large`."""
    return next(name for name, (low, high) in SIZES.items() if low <= billions < high)


def _phase(played: Played) -> Phase:
    family: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for arm in ARMS:
        family[arm.name.partition("-")[0]] += played.share[arm.name]
        size[size_of(arm.size_b)] += played.share[arm.name]
    total = sum(played.share.values()) or 1
    return Phase(
        float(np.mean(played.success)),
        float(np.mean(played.energy_j)),
        float(np.mean(played.seconds)),
        float(np.mean(played.calls)),
        {name: count / total for name, count in family.items()},
        {name: count / total for name, count in size.items()},
    )
