"""How well each path predicts the gain of a step, on tasks that were not fitted on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from steproute.benchmarks.simulator.play import play
from steproute.benchmarks.simulator.variants import predictor_config
from steproute.benchmarks.simulator.view import DOMAIN, PartsView
from steproute.benchmarks.simulator.world import ARMS, World
from steproute.predict.buffer import Sample
from steproute.predict.dual_path import DualPathEstimator
from steproute.predict.trainer import Trainer, TrainerConfig
from steproute.predict.trees import DualPath, TreesConfig
from steproute.router import Router

PATHS = ("structured", "average", "semantic", "meta")


def mean_absolute_errors(seed: int, tasks: int) -> Mapping[str, float]:
    """MAE of every path, and of always saying the mean (`constant`).

    Transitions are collected under random choices, so that every model is seen in every state; the first 60 % of the
    tasks are fitted on, the others are predicted.

    Args:
        seed: of the world and the choices.
        tasks: how many tasks are played.
    """
    rows = collect(seed, tasks)
    names = list(dict.fromkeys(row.task for row in rows))
    known = set(names[: int(0.6 * len(names))])
    train, test = [row for row in rows if row.task in known], [row for row in rows if row.task not in known]
    fitted = DualPath.fit(train, TreesConfig(), seed=seed)
    truth = np.array([row.gain for row in test])
    both = fitted.predict_paths(
        [row.state for row in test],
        [row.model for row in test],
        np.stack([row.numbers for row in test]),
        np.stack([row.embedding for row in test]).astype(np.float32),
    )
    guesses = {
        "structured": both[:, 0],
        "semantic": both[:, 1],
        "average": both.mean(axis=1),
        "meta": fitted.blend(both),
        "constant": np.full(len(test), np.mean([row.gain for row in train])),
    }
    return {name: float(np.abs(guess - truth).mean()) for name, guess in guesses.items()}


def collect(seed: int, tasks: int) -> list[Sample]:
    """Samples of tasks played with random choices; nothing is fitted on the way."""
    estimator = DualPathEstimator(predictor_config("meta", seed))
    estimator.trainer = Trainer(
        estimator.trainer.buffer, TreesConfig(), TrainerConfig(min_rows=10**9, background=False), seed
    )
    router = Router(
        [arm.model for arm in ARMS],
        policy="random",
        estimator=estimator,
        views={DOMAIN: PartsView()},
        seed=seed,
        on_error="raise",
    )
    play(router, World(seed), tasks)
    return list(estimator.trainer.buffer.rows())
