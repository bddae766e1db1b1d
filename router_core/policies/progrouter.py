"""ProgRouter (arXiv 2608.25992, section 2.4): remaining progress times predicted gain, minus budget pressure."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from steproute.budget import penalty_weight
from steproute.policies.base import PolicyConfig, Scores, StepContext

if TYPE_CHECKING:
    from steproute.predict.base import GainEstimator

logger = logging.getLogger("steproute")


class ProgRouter:
    """score(m) = V·(1−g)·ŷ − Q·(E−Ẽ) − exp((Γ+ΣΓ)/Γ_w)·Γ − exp((E+ΣE)/E_w)·E, in the units the user gives.

    A limit that is not set drops its penalty, a target that is not set drops the queue term.
    """

    name = "progrouter"
    argument = "predictor"

    class Config(PolicyConfig):
        """Settings of `progrouter`."""

        V: float = Field(default=100.0, gt=0)
        """Worth of full progress in units of cost."""
        predictor: Literal["auto", "meta", "structured", "semantic", "average", "prior"] = "prior"
        """What predicts ŷ: the dual path (`meta`), an ablation of it, or the capability prior alone (`prior`: no predictor).
        `auto` = `meta` where the extra `trees` is installed, else `prior`."""
        predictor_settings: dict[str, Any] = Field(default_factory=dict)
        """Settings of the dual path, see `DualPathConfig`."""
        energy: str = "energy_j"
        """Resource in the part of E (per-task limit E_w, long-run target Ẽ)."""
        time: str = "seconds"
        """Resource in the part of Γ (per-task limit Γ_w)."""
        energy_unit: float = Field(default=1.0, gt=0)
        """Amount of E that counts as 1 (1000 = kilojoules). The queue term is a product of two energies: its weight against
        V hangs on the unit."""
        time_unit: float = Field(default=1.0, gt=0)
        """Amount of Γ that counts as 1 (60 = minutes)."""
        epsilon: float | None = Field(default=None, ge=0, le=1)
        """Share of random choices at the start; None = 1 where trees are to be learnt, 0 with the capability prior."""
        epsilon_decay: float = Field(default=0.99, gt=0, le=1)
        """Factor on epsilon after every step learnt from."""
        epsilon_min: float = Field(default=0.0, ge=0, le=1)
        queue_penalty: bool = True
        """Ablation: False drops −Q·(E−Ẽ)."""
        budget_penalty: bool = True
        """Ablation: False drops both exponential penalties."""

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()
        self.estimator = self._estimator()
        """The gain estimator the router takes on; None = the router's own."""
        trees = self.estimator is not None
        self.epsilon = float(trees) if self.config.epsilon is None else self.config.epsilon

    def score(self, context: StepContext) -> Scores:
        """The paper's equation 12, term by term. Spent is what calls have settled; calls in flight do not count."""
        config, budget = self.config, context.budget
        worth = config.V * (1.0 - context.progress.g)
        terms = [{"V(1-g)y": worth * candidate.gain} for candidate in context.candidates]
        setting = budget.limits.get(config.energy)
        if config.queue_penalty and setting is not None and setting.target is not None:
            queue = budget.queues.get(config.energy, 0.0) / config.energy_unit
            for parts, cost in zip(terms, context.costs(config.energy), strict=True):
                parts["-Q(E-target)"] = -queue * (float(cost) - setting.target) / config.energy_unit
        if config.budget_penalty:
            for label, resource, unit in (
                ("-time", config.time, config.time_unit),
                ("-energy", config.energy, config.energy_unit),
            ):
                limit = budget.limits.get(resource)
                if limit is not None and limit.limit is not None:
                    spent = budget.spent.get(resource, 0.0)
                    for parts, cost in zip(terms, context.costs(resource), strict=True):
                        parts[label] = -penalty_weight(spent, float(cost), limit.limit) * float(cost) / unit
        values = np.array([sum(parts.values()) for parts in terms])
        if self.epsilon <= 0:
            return Scores(values, terms, reason="highest score")
        n = len(values)
        draw = np.full(n, self.epsilon / n)
        draw[int(np.argmax(values))] += 1 - self.epsilon
        return Scores(values, terms, propensities=draw, reason=f"epsilon-greedy, epsilon {self.epsilon:.3g}")

    def learn(self, feedback: object) -> None:
        """Let epsilon decay; the gains are learnt by the router's estimator."""
        if self.epsilon > 0:
            self.epsilon = max(self.epsilon * self.config.epsilon_decay, self.config.epsilon_min)

    def state(self) -> dict[str, float]:
        """The share of random choices; gains are the estimator's to keep."""
        return {"epsilon": self.epsilon}

    def load(self, state: dict[str, float]) -> None:
        """Take over what `state` gave."""
        self.epsilon = float(state["epsilon"])

    def _estimator(self) -> GainEstimator | None:
        path = self.config.predictor
        if path == "auto":
            path = "meta" if find_spec("xgboost") is not None else "prior"
            if path == "prior":
                logger.warning("progrouter: no XGBoost (extra `trees`): the capability prior predicts gains")
        if path == "prior":
            return None
        from steproute.predict.dual_path import DualPathConfig, DualPathEstimator

        return DualPathEstimator(DualPathConfig(path=path, **self.config.predictor_settings))
