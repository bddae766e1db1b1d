from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute import Budget, ConfigError, Limit
from steproute.budget import MAX_EXPONENT, advance_queue, penalty_weight

positive = st.floats(1e-6, 1e6)


def test_a_number_is_a_hard_limit():
    budget = Budget(usd=0.05, energy_j=Limit(limit=100, hard=False, target=50), other={"gpu_h": 2})
    assert budget.limits() == {
        "usd": Limit(limit=0.05, hard=True),
        "energy_j": Limit(limit=100, hard=False, target=50),
        "gpu_h": Limit(limit=2.0),
    }
    assert Budget().limits() == {}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"usd": 0}, "Budget: usd: seen 0; allowed: a number above 0, a Limit, or None for no limit"),
        ({"seconds": -3.0}, "Budget: seconds: seen -3.0; allowed: a number above 0, a Limit, or None for no limit"),
        ({"tokens": math.nan}, "Budget: tokens: seen nan; allowed: a number above 0, a Limit, or None for no limit"),
        ({"usd": math.inf}, "Budget: usd: seen inf; allowed: a number above 0, a Limit, or None for no limit"),
        ({"usd": "5"}, "Budget: usd: seen '5'; allowed: a number above 0, a Limit, or None for no limit"),
        ({"usd": True}, "Budget: usd: seen True; allowed: a number above 0, a Limit, or None for no limit"),
        (
            {"usdd": 1},
            "Budget: usdd: unknown name 'usdd'; did you mean 'usd'? allowed: carbon_g, energy_j, grid, lease_s, other, seconds, tail, tokens, usd, vram_gb",
        ),
        (
            {"usd": {"limt": 1}},
            "Budget: usd.limt: unknown name 'limt'; did you mean 'limit'? allowed: hard, limit, per, scale, target, value",
        ),
        ({"other": {"gpu_h": 0}}, "Budget: other: seen 0; allowed: a number above 0, a Limit, or None for no limit"),
        (
            {"other": {"usd": 1}},
            "Budget: other: usd has a field of its own; allowed: names other than usd, energy_j, seconds, tokens, carbon_g",
        ),
        ({"lease_s": 0}, "Budget: lease_s: Input should be greater than 0; seen 0"),
    ],
)
def test_wrong_budgets_name_the_field(given, error):
    with pytest.raises(ConfigError) as seen:
        Budget(**given)
    assert str(seen.value) == error


@pytest.mark.parametrize("field", [{"limit": 0}, {"limit": math.nan}, {"target": -1}, {"value": -0.1}, {"max": 1}])
def test_wrong_limits_are_configuration_errors(field):
    with pytest.raises(ConfigError, match=r"^Limit: "):
        Limit(**field)


def test_penalty_weight_by_hand():
    assert penalty_weight(spent=6, cost=2, limit=4) == pytest.approx(math.exp(2))
    assert penalty_weight(spent=0, cost=0, limit=4) == 1


@given(positive, positive, positive)
def test_penalty_weight_is_clamped_and_rises(spent, cost, limit):
    weight = penalty_weight(spent, cost, limit)
    assert 1 <= weight <= math.exp(MAX_EXPONENT)
    assert weight == pytest.approx(math.exp(min((spent + cost) / limit, 50.0)))
    assert penalty_weight(spent + 1, cost, limit) >= weight


def test_queue_by_hand():
    assert advance_queue(0, 130, 100) == 30
    assert advance_queue(30, 50, 100) == 0
    assert advance_queue(30, 90, 100) == 20


@given(positive, st.lists(st.floats(0, 1e6), max_size=20))
def test_queue_bounds_the_overspending(target, spending):
    """Q after n tasks is at least Σ spent − n·target: what keeps the long-run average at the target."""
    queue = 0.0
    for spent in spending:
        after = advance_queue(queue, spent, target)
        assert after == pytest.approx(max(0.0, queue + spent - target))
        queue = after
    assert queue >= sum(spending) - len(spending) * target - 1e-6
    assert queue >= 0
