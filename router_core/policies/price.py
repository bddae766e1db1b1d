"""What PACER holds against a call, and what progress is worth to the long-run queues; the formulas are in `pacer`."""

from __future__ import annotations

import math

from steproute.budget import MAX_EXPONENT
from steproute.policies.base import StepContext


def price(context: StepContext) -> list[float]:
    """Σ_k w_k·c_k of every candidate over the resources that are valued, limited or targeted (DESIGN §8)."""
    budget = context.budget
    total = [0.0] * len(context.candidates)
    for name, limit in budget.limits.items():
        weight, most = limit.value, limit.limit
        if limit.target is not None:
            weight += budget.queues.get(name, 0.0) / limit.unit**2
        if most is not None:
            used = budget.spent.get(name, 0.0) + budget.reserved.get(name, 0.0)
            for i, cost in enumerate(context.held_against(name)):
                total[i] += (weight + math.exp(min((cost + used) / most, MAX_EXPONENT)) / most) * cost
        elif weight:
            for i, cost in enumerate(context.held_against(name)):
                total[i] += weight * cost
    return total


def owed(context: StepContext) -> float:
    """What finishing a task is worth to the queues, in units of progress: Σ_k Q_k·T_k/scale².

    A task takes about its targets in all, so progress saves that much of what would be spent on it later. Without this term a
    long-run target would only compare single calls, and a weak model, cheap per call, be chosen the more the dearer calls get.
    """
    budget = context.budget
    return sum(
        budget.queues.get(name, 0.0) * limit.target / limit.unit**2
        for name, limit in budget.limits.items()
        if limit.target is not None
    )
