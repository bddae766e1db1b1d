"""ProgRouter (arXiv 2608.25992, section 2.4): remaining progress times predicted gain, minus budget pressure."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from steproute.budget import penalty_weight
from steproute.policies.base import PolicyConfig, Scores, StepContext


class ProgRouter:
    """score(m) = V·(1−g)·ŷ − Q·(E−Ẽ) − exp((Γ+ΣΓ)/Γ_w)·Γ − exp((E+ΣE)/E_w)·E, in the units the user gives.

    A limit that is not set drops its penalty, a target that is not set drops the queue term.
    """

    name = "progrouter"

    class Config(PolicyConfig):
        """Settings of `progrouter`."""

        V: float = Field(default=100.0, gt=0)
        """Worth of full progress in units of cost."""
        energy: str = "energy_j"
        """Resource in the part of E (per-task limit E_w, long-run target Ẽ)."""
        time: str = "seconds"
        """Resource in the part of Γ (per-task limit Γ_w)."""
        epsilon: float = Field(default=0.0, ge=0, le=1)
        """Share of random choices at the start."""
        epsilon_decay: float = Field(default=0.99, gt=0, le=1)
        """Factor on epsilon after every step learnt from."""
        epsilon_min: float = Field(default=0.0, ge=0, le=1)
        queue_penalty: bool = True
        """Ablation: False drops −Q·(E−Ẽ)."""
        budget_penalty: bool = True
        """Ablation: False drops both exponential penalties."""

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()
        self.epsilon = self.config.epsilon

    def score(self, context: StepContext) -> Scores:
        """The paper's equation 12, term by term."""
        config, budget = self.config, context.budget
        remaining = 1.0 - context.progress.g
        values, terms = np.empty(len(context.candidates)), []
        for i, candidate in enumerate(context.candidates):
            parts = {"V(1-g)y": config.V * remaining * candidate.gain}
            energy = candidate.cost.get(config.energy, 0.0)
            setting = budget.limits.get(config.energy)
            if config.queue_penalty and setting is not None and setting.target is not None:
                parts["-Q(E-target)"] = -budget.queues.get(config.energy, 0.0) * (energy - setting.target)
            if config.budget_penalty:
                for label, resource in (("-time", config.time), ("-energy", config.energy)):
                    limit = budget.limits.get(resource)
                    if limit is not None and limit.limit is not None:
                        cost = candidate.cost.get(resource, 0.0)
                        used = budget.spent.get(resource, 0.0) + budget.reserved.get(resource, 0.0)
                        parts[label] = -penalty_weight(used, cost, limit.limit) * cost
            values[i] = sum(parts.values())
            terms.append(parts)
        if self.epsilon <= 0:
            return Scores(values, terms, reason="highest score")
        n = len(values)
        draw = np.full(n, self.epsilon / n)
        draw[int(np.argmax(values))] += 1 - self.epsilon
        return Scores(values, terms, propensities=draw, reason=f"epsilon-greedy, epsilon {self.epsilon:.3g}")

    def learn(self, feedback: object) -> None:
        """Let epsilon decay; the gains are learnt by the router's estimator."""
        self.epsilon = (
            max(self.epsilon * self.config.epsilon_decay, self.config.epsilon_min) if self.config.epsilon > 0 else 0.0
        )
