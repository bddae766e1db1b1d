"""How often the 95 % intervals of `steproute evaluate` hold the truth, on synthetic logs.

`python benchmarks/off_policy/coverage.py [--runs 1000] [--tasks 100 300 1000] [--world base heavy long] [--every]`

Steps of a task share a disposition, so they are not independent. What `evaluate` would refuse, since the expected effective
sample size is below what it needs, is left out unless `--every` is given.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steproute.evaluate import Estimate, doubly_robust, ips, per_decision_ips, snips
from steproute.evaluate.direct import crossfitted
from steproute.evaluate.estimators import expected_effective
from steproute.evaluate.study import LEAST_ESS, least_of_tasks

Floats = npt.NDArray[np.float64]
NAMES = ("IPS", "SNIPS", "DR", "task")
MEANS: Floats = np.array([0.3, 0.5, 0.7])
"""Reward of each of three models."""


@dataclass(frozen=True)
class World:
    """What ran, what is asked about, and how long tasks are."""

    old: tuple[float, float, float]
    new: tuple[float, float, float]
    steps: int = 3


WORLDS = {
    "base": World((0.5, 0.3, 0.2), (0.15, 0.25, 0.6)),  # weights from .3 to 3, of a task up to 27
    "near": World((0.4, 0.3, 0.3), (0.3, 0.3, 0.4)),
    "heavy": World((0.6, 0.3, 0.1), (0.1, 0.2, 0.7)),  # weights up to 7, of a task up to 343
    "long": World((0.5, 0.3, 0.2), (0.3, 0.3, 0.4), steps=5),
}


@dataclass
class Coverage:
    """Counts of one estimator."""

    runs: int = 0
    held: int = 0
    below: int = 0
    """Intervals that end below the truth."""
    width: float = 0.0
    """Sum of the widths."""


def estimates(world: World, tasks: int, rng: np.random.Generator) -> list[tuple[Estimate, float]]:
    """Every estimate of one synthetic log, with the truth."""
    steps, old, new = world.steps, np.array(world.old), np.array(world.new)
    value = float(new @ MEANS)
    names = np.repeat(np.arange(tasks), steps)
    mood = np.repeat(0.15 * rng.standard_normal(tasks), steps)
    arms = np.searchsorted(np.cumsum(old)[:-1], rng.random(tasks * steps))
    rewards = MEANS[arms] + mood + 0.2 * rng.standard_normal(tasks * steps)
    weights = new[arms] / old[arms]
    asked = np.repeat(np.arange(len(arms)), len(MEANS))
    models, row = np.tile(np.arange(len(MEANS)), len(arms)), len(MEANS) * np.arange(len(arms)) + arms
    guesses = crossfitted(names, models, models, row, rewards, asked)
    return [
        (ips(names, weights, rewards), value),
        (snips(names, weights, rewards), value),
        (doubly_robust(names, weights, rewards, guesses[row], guesses.reshape(-1, len(MEANS)) @ new), value),
        (per_decision_ips(names, weights, rewards), value * steps),
    ]


def coverage(world: World, tasks: int, runs: int, every: bool = False, seed: int = 11) -> dict[str, Coverage]:
    """Count over many logs.

    Args:
        world: what they are of.
        tasks: tasks of each.
        runs: how many.
        every: whether what would be refused is counted as well.
        seed: of the logs.
    """
    rng = np.random.default_rng(seed)
    refused = set() if every else refusals(world, tasks)
    found = {name: Coverage() for name in NAMES if name not in refused}
    for _ in range(runs):
        for item, truth in estimates(world, tasks, rng):
            if item.name in found:
                count = found[item.name]
                count.runs += 1
                count.held += item.low <= truth <= item.high
                count.below += item.high < truth
                count.width += item.high - item.low
    return found


def refusals(world: World, tasks: int) -> set[str]:
    """Estimates that would be refused of logs of this size."""
    second = float((np.array(world.new) ** 2 / np.array(world.old)).sum())
    one = expected_effective(np.ones(tasks * world.steps), np.full(tasks * world.steps, second))
    whole = expected_effective(np.ones(tasks), np.full(tasks, second**world.steps))
    found = {"IPS", "SNIPS", "DR"} if one < LEAST_ESS else set()
    return found | ({"task"} if whole < least_of_tasks(LEAST_ESS, tasks) else set())


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--tasks", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--world", nargs="+", choices=sorted(WORLDS), default=["base"])
    parser.add_argument("--every", action="store_true", help="count also what would be refused")
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    for world in options.world:
        for tasks in options.tasks:
            found = coverage(WORLDS[world], tasks, options.runs, options.every, options.seed)
            shown = [f"{world:6} {tasks:6} tasks"]
            for name in NAMES:
                count = found.get(name)
                share = "refused" if count is None else f"{100 * count.held / count.runs:.1f} %"
                width = "" if count is None else f" (width {count.width / count.runs:.3f})"
                shown.append(f"{name} {share}{width}")
            sys.stdout.write("  ".join(shown) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
