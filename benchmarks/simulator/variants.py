"""The methods that are compared: ProgRouter, each of its ablations, the naive ratio, fixed models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from steproute.benchmarks.simulator.view import DOMAIN, PartsView
from steproute.benchmarks.simulator.world import ARMS
from steproute.budget import Budget, Limit
from steproute.policies import Policy, Scores, StepContext, make_policy
from steproute.predict.dual_path import DualPathConfig, DualPathEstimator
from steproute.predict.trees import Path
from steproute.progress.single import SINGLE_VIEW_WEIGHTS, PassRateView
from steproute.router import Router

TARGET_J, LIMIT_J, LIMIT_S = 7_000.0, 20_000.0, 120.0
FORMULA = {"energy_unit": 1000.0, "time_unit": 60.0}
"""The formula counts kilojoules and minutes."""
V = 400.0
"""Worth of full progress in kilojoules. Chosen once on seeds 1000-1002, for the full method, and used for every variant."""
EPSILON, DECAY = 1.0, 0.99


def budget() -> Budget:
    """Long-run average and soft limits per task."""
    return Budget(energy_j=Limit(limit=LIMIT_J, hard=False, target=TARGET_J), seconds=Limit(limit=LIMIT_S, hard=False))


class EpsilonStart:
    """Another policy with ProgRouter's exploration: random at the start, less with every step learnt from."""

    def __init__(self, policy: Policy, epsilon: float = EPSILON, decay: float = DECAY):
        self.policy, self.epsilon, self.decay = policy, epsilon, decay
        self.name = policy.name

    def score(self, context: StepContext) -> Scores:
        """The policy's scores, drawn from with probability epsilon."""
        scores = self.policy.score(context)
        n = len(scores.values)
        draw = np.full(n, self.epsilon / n)
        draw[int(np.argmax(scores.values))] += 1 - self.epsilon
        scores.propensities = draw
        return scores

    def learn(self, feedback: object) -> None:
        """Let epsilon decay."""
        self.epsilon *= self.decay


@dataclass(frozen=True)
class Variant:
    """One method: what differs from the full one."""

    predictor: Literal["meta", "structured", "semantic", "average", "prior"] = "meta"
    """Path of the predictor; `prior` = none."""
    settings: Mapping[str, Any] | None = None
    """Settings of the policy `progrouter`."""
    policy: str = ""
    """Another policy altogether."""
    single_view: bool = False

    def router(self, seed: int) -> Router:
        """A fresh router."""
        more: dict[str, Any] = {"views": {DOMAIN: PartsView()}}
        if self.single_view:
            more = {"views": {DOMAIN: PassRateView(DOMAIN)}, "weights": SINGLE_VIEW_WEIGHTS}
        estimator = None
        if self.predictor != "prior" and not self.policy.startswith("fixed"):
            estimator = DualPathEstimator(predictor_config(self.predictor, seed))
        return Router(
            [arm.model for arm in ARMS],
            budget(),
            self._policy(),
            estimator=estimator,
            seed=seed,
            on_error="raise",
            **more,
        )

    def _policy(self) -> Policy:
        if self.policy:
            policy = make_policy(self.policy)
            return policy if self.policy.startswith("fixed") else EpsilonStart(policy)
        fixed = {"name": "progrouter", "predictor": "prior", "epsilon": EPSILON, "epsilon_decay": DECAY, "V": V}
        return make_policy({**fixed, **FORMULA, **(self.settings or {})})


def predictor_config(path: Path, seed: int) -> DualPathConfig:
    """The predictor's shipped settings, fitted inside `learn` so that a seed is a result, and not too often."""
    return DualPathConfig(path=path, background=False, refit_share=1.0, seed=seed)


VARIANTS: Mapping[str, Variant] = {
    "progrouter (full)": Variant(),
    "structured only": Variant("structured"),
    "semantic only": Variant("semantic"),
    "plain average": Variant("average"),
    "no predictor": Variant("prior"),
    "no multi-view scorer": Variant(single_view=True),
    "no queue penalty": Variant(settings={"queue_penalty": False}),
    "no budget penalty": Variant(settings={"budget_penalty": False}),
    "naive ratio": Variant(policy="naive-ratio"),
    **{f"fixed {arm.name}": Variant(policy=f"fixed:{arm.name}") for arm in ARMS},
}
