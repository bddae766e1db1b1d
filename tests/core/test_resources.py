"""Several budgets at once: no unit counts for more by its size, and queues make progress worth what it saves."""

from __future__ import annotations

import numpy as np
import pytest
from doubles import router
from hypothesis import given
from hypothesis import strategies as st

from steproute import Budget, Ledger, Limit, Model, Outcome, Price, Progress, Regime, Task
from steproute.draws import Draws
from steproute.policies.base import BudgetState, Candidate, StepContext
from steproute.policies.price import owed, price

COSTS = {"usd": (0.004, 0.001), "energy_j": (900.0, 250.0), "seconds": (9.0, 2.0), "late": (0.4, 0.1)}
LIMITS = {
    "usd": Limit(limit=0.05, hard=False, value=3.0),
    "energy_j": Limit(target=7000.0),
    "seconds": Limit(limit=60.0, hard=False, target=35.0),
    "late": Limit(target=0.05, scale=1.0),
}


def context(factors: dict[str, float]) -> StepContext:
    """The same situation, each resource counted in another unit."""
    f = {name: factors.get(name, 1.0) for name in COSTS}
    limits = {
        name: Limit(
            limit=item.limit and item.limit * f[name],
            hard=False,
            target=item.target and item.target * f[name],
            value=item.value / f[name],
            scale=item.scale and item.scale * f[name],
        )
        for name, item in LIMITS.items()
    }
    spent = {"usd": 0.02 * f["usd"], "seconds": 20.0 * f["seconds"]}
    queues = {"energy_j": 5000.0 * f["energy_j"], "seconds": 12.0 * f["seconds"], "late": 0.95 * f["late"]}
    candidates = [
        Candidate(Model(str(i), price="free"), {name: f[name] * pair[i] for name, pair in COSTS.items()}, {})
        for i in range(2)
    ]
    return StepContext(
        Task(),
        "coder",
        0,
        candidates,
        Progress(0.3, Regime.PARTIAL, 0.5, 0.0, 0.5),
        BudgetState(limits, spent, {}, queues),
        Ledger(),
        Draws(0),
    )


@given(st.dictionaries(st.sampled_from(sorted(COSTS)), st.floats(1e-4, 1e6)))
def test_the_price_does_not_depend_on_units(factors):
    assert price(context(factors)) == pytest.approx(price(context({})), rel=1e-9)
    assert owed(context(factors)) == pytest.approx(owed(context({})), rel=1e-9)


def test_the_price_by_hand():
    found = price(context({}))
    usd = (3.0 + np.exp((0.004 + 0.02) / 0.05) / 0.05) * 0.004
    joules = 5000.0 / 7000.0**2 * 900.0
    seconds = (np.exp((9.0 + 20.0) / 60.0) / 60.0 + 12.0 / 35.0**2) * 9.0
    late = 0.95 * 0.4
    assert found[0] == pytest.approx(usd + joules + seconds + late)
    assert owed(context({})) == pytest.approx(5000 / 7000 + 12 / 35 + 0.95 * 0.05)


def test_without_targets_nothing_is_owed():
    calm = context({})
    calm.budget.queues = {}
    assert owed(calm) == 0.0


def test_every_queue_advances_by_its_own_excess():
    budget = Budget(
        usd=Limit(target=0.01), energy_j=Limit(target=100), seconds=Limit(target=5), tokens=Limit(target=10)
    )
    steps = router([Model("a", price=Price(input=1, output=1))], budget=budget)
    for task in ("t1", "t2"):
        outcome = Outcome(
            prompt_tokens=4, completion_tokens=2, usd=0.03, energy_j=150, energy_source="meter", seconds=4
        )
        steps.observe(steps.decide(task), outcome)
        steps.finish(task)
    assert steps.accounts.queues == pytest.approx({"usd": 0.04, "energy_j": 100, "seconds": 0, "tokens": 0})
