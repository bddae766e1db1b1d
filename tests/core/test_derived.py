"""Lateness and carbon: what is expected, what is billed, and their queues."""

from __future__ import annotations

import math

import pytest
from doubles import FakeClock, Wants, router
from hypothesis import given
from hypothesis import strategies as st

from steproute import Budget, ConfigError, Limit, Model, Outcome, Profile
from steproute.budget import Grid, Tail
from steproute.derived import chance_above

SLOW = Model("slow", price="free", profile=Profile(latency_s=9, power_w=100))
FAST = Model("fast", price="free", profile=Profile(latency_s=1, power_w=400))


def test_chances_of_a_log_normal():
    assert chance_above(10, 10, 0.5) == pytest.approx(0.5 * math.erfc(0.25 / math.sqrt(2)))
    assert chance_above(0, 1, 0.5) == 1.0
    assert chance_above(5, 0, 0.5) == 0.0
    assert (chance_above(5, 4, 0.0), chance_above(5, 6, 0.0)) == (0.0, 1.0)


@given(st.floats(0.1, 100), st.floats(0.1, 100), st.floats(0.01, 2))
def test_a_chance_is_a_chance_and_falls_with_the_bound(bound, mean, spread):
    assert 0 <= chance_above(bound * 2, mean, spread) <= chance_above(bound, mean, spread) <= 1


def test_a_late_call_fills_the_queue_by_its_excess_over_the_share():
    steps = router([SLOW, FAST], budget=Budget(tail=Tail(slo_s=10)), policy=Wants({"slow": 1}))
    decision = steps.decide("t", step="0")
    costs = {name: decision.score_of(name).cost["late"] for name in ("slow", "fast")}
    assert costs["slow"] == pytest.approx(chance_above(10, 9, 0.5))
    assert costs["fast"] < 0.001
    steps.observe(decision, Outcome(seconds=12))
    for i in range(1, 5):
        steps.observe(steps.decide("t", step=str(i)), Outcome(seconds=8))
    spent = steps.finish("t")
    assert (spent["late"], spent["calls"]) == (1, 5)
    assert steps.accounts.queues["late"] == pytest.approx(1 - 5 * 0.05)


def test_a_late_task_counts_once_and_its_next_calls_no_more():
    steps = router([SLOW, FAST], budget=Budget(tail=Tail(slo_s=20, per="task")), policy=Wants({"slow": 1}))
    late = []
    for i in range(4):
        decision = steps.decide("t", step=str(i))
        late.append(decision.score_of("slow").cost["late"])
        steps.observe(decision, Outcome(seconds=9))
    assert late[0] < late[1] < late[2] < 1
    assert late[3] == 0
    assert steps.finish("t")["late"] == 1
    assert steps.accounts.queues["late"] == pytest.approx(0.95)


def test_the_spread_of_latency_is_learnt_per_model():
    steps = router([SLOW], budget=Budget(tail=Tail(slo_s=18)))
    first = steps.decide("t", step="0").score_of("slow").cost["late"]
    for i in range(60):
        steps.observe(steps.decide("t", step=str(i)), Outcome(seconds=9))
    assert steps.decide("t", step="x").score_of("slow").cost["late"] < first / 4


def test_carbon_follows_joules_and_the_hour():
    clock = FakeClock(0.0)
    grid = [(0, 100.0), (3600, 500.0), (7200, 300.0)]
    steps = router([SLOW, FAST], budget=Budget(carbon_g=Limit(limit=0.2), grid=grid), clock=clock)
    decision = steps.decide("t", step="0")
    assert decision.score_of("slow").cost["carbon_g"] == pytest.approx(900 / 3.6e6 * 100)
    steps.observe(decision, Outcome(energy_j=3.6e5, energy_source="meter"))
    assert steps.spent("t")["carbon_g"] == pytest.approx(10)
    clock.tick(3600)
    steps.observe(steps.decide("t2", step="1"), Outcome(energy_j=3.6e5, energy_source="meter"))
    assert steps.spent("t2")["carbon_g"] == pytest.approx(50)


def test_a_grid_holds_until_the_next_point():
    grid = Grid(g_per_kwh=[(10, 1), (20, 2)])
    assert [grid.at(t) for t in (0, 10, 19.9, 20, 99)] == [1, 1, 1, 2, 2]
    assert Budget(carbon_g=1, grid=420).grid == Grid(g_per_kwh=420)
    for wrong in ([], [(2, 1), (1, 1)], -1):
        with pytest.raises(ConfigError, match="in rising order"):
            Budget(carbon_g=1, grid=wrong)
    with pytest.raises(ConfigError, match="carbon_g: needs `grid`"):
        Budget(carbon_g=1)


def test_the_routers_own_counts_cannot_be_named():
    with pytest.raises(ConfigError, match="late is counted by the router itself"):
        Budget(other={"late": 1})


def test_a_target_per_call():
    budget = Budget(energy_j=Limit(target=100, per="call"))
    steps = router([FAST], budget=budget)
    for i in range(3):
        steps.observe(steps.decide("t", step=str(i)), Outcome(energy_j=150, energy_source="meter"))
    steps.finish("t")
    assert steps.accounts.queues["energy_j"] == pytest.approx(150)
