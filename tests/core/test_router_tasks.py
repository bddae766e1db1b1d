"""How tasks end: by the host, by idling, with children open, and what comes after the end."""

from __future__ import annotations

import pytest
from doubles import FakeClock, Wants, free, paid, priced, router

from steproute import Budget, BudgetExceeded, Evidence, Ledger, Limit, ModelPool, Outcome, Step, Task

TARGET = Budget(usd=Limit(target=0.1))


def test_finishing_twice_changes_nothing():
    policy = Wants({"a": 1})
    steps = router(policy=policy, budget=TARGET)
    steps.observe(steps.decide("t"), paid(0.3))
    assert steps.finish("t", success=True)["usd"] == 0.3
    assert steps.finish("t", success=False) == {}
    assert steps.finish("never seen") == {}
    assert policy.ends == [(["a"], 1.0)]
    assert steps.accounts.queues["usd"] == pytest.approx(0.2)
    assert (steps.ledger("t"), steps.progress("t"), steps.decisions("t")) == (None, None, [])


@pytest.mark.parametrize(
    ("ending", "reward"),
    [
        ({}, None),
        ({"success": True}, 1.0),
        ({"success": False}, 0.0),
        ({"reward": 0.3}, 0.3),
        ({"success": True, "reward": 0.0}, 0.0),
    ],
)
def test_success_becomes_a_reward(ending, reward):
    policy = Wants({"a": 1})
    steps = router(policy=policy)
    steps.observe(steps.decide("t"), paid(0.3))
    steps.finish("t", **ending)
    assert policy.ends == [(["a"], reward)]


def test_an_idle_task_ends_with_success_unknown():
    clock, policy = FakeClock(), Wants({"a": 1})
    steps = router(policy=policy, budget=TARGET, clock=clock, idle_timeout=600)
    steps.observe(steps.decide("old"), paid(0.3))
    clock.tick(300)
    steps.observe(steps.decide("young"), paid(0.1))
    clock.tick(300)
    steps.decide("other")
    assert policy.ends == []
    clock.tick(1)
    steps.decide("other")
    assert policy.ends == [(["a"], None)]
    assert steps.accounts.queues["usd"] == pytest.approx(0.2)
    assert steps.ledger("old") is None
    assert steps.ledger("young") is not None


def test_booked_calls_end_idle_tasks_too():
    clock = FakeClock()
    steps = router(clock=clock, idle_timeout=600)
    for number in range(5):
        steps.observe(steps.book(f"t{number}", "a"), paid(0.1))
        clock.tick(400)
    assert [number for number in range(5) if steps.ledger(f"t{number}") is not None] == [3, 4]


def test_too_many_running_tasks_end_the_longest_idle_ones(monkeypatch):
    monkeypatch.setattr("steproute.tasks.MOST_RUNNING", 3)
    policy = Wants({"a": 1})
    steps = router(policy=policy, budget=Budget(usd=9.0))
    steps.decide("calling")
    for number in range(9):
        steps.observe(steps.decide(f"t{number}"), paid(0.1))
        steps.decide("calling")
    running = [name for name in ("calling", *(f"t{number}" for number in range(9))) if steps.ledger(name) is not None]
    assert running == ["calling", "t7", "t8"]
    assert policy.ends == [(["a"], None)] * 7
    again = steps.decide("t6")  # it goes on where it was
    assert steps.spent("t6")["usd"] == 0.1
    assert again.step == "1"


def test_whatever_happens_in_a_task_keeps_it_awake():
    clock = FakeClock()
    steps = router(clock=clock, idle_timeout=600)
    first = steps.decide("t")
    steps.decide("elsewhere", step="0")
    for act in (
        lambda: steps.observe(first, paid(0.1), output="x"),
        lambda: steps.report("t", [Evidence(source="judge", score=0.5)]),
        lambda: steps.decide("t"),
    ):
        clock.tick(599)
        act()
        clock.tick(2)
        steps.decide("elsewhere", step=str(clock.now))
        assert steps.ledger("t") is not None


def test_a_call_in_flight_keeps_its_task_awake_until_the_lease_ends():
    clock, policy = FakeClock(), Wants({"a": 1})
    steps = router(clock=clock, policy=policy, idle_timeout=60, budget=Budget(usd=Limit(limit=9), lease_s=900))
    steps.decide("slow", step="0")
    steps.decide("slower", step="0")
    for _ in range(8):
        clock.tick(100)
        steps.decide("elsewhere", step=str(clock.now))
    assert steps.ledger("slow") is not None
    clock.tick(101)
    steps.decide("elsewhere", step="end")
    assert steps.ledger("slow") is None
    assert steps.ledger("slower") is None


def test_a_running_child_keeps_its_parent_awake():
    clock = FakeClock()
    steps = router(clock=clock, idle_timeout=60)
    steps.observe(steps.decide(Task(id="parent")), paid(0.1))
    for i in range(5):
        clock.tick(50)
        steps.observe(steps.decide(Task(id="child", parent="parent"), step=str(i)), paid(0.1))
    assert steps.spent("parent")["usd"] == pytest.approx(0.6)


def test_a_task_that_only_idled_goes_on_where_it_was():
    clock, policy = FakeClock(), Wants({"a": 1, "b": 0})
    steps = router(policy=policy, clock=clock, idle_timeout=600, budget=Budget(usd=Limit(limit=0.5, target=0.1)))
    first = steps.decide("t", step="1")
    outcome = paid(0.3)
    steps.observe(first, outcome, output="x")
    clock.tick(601)
    steps.decide("other", step="1")
    assert steps.ledger("t") is None
    again = steps.decide("t", step="1")
    assert again is first
    steps.observe(again, outcome)  # a replay: the same call id
    assert steps.spent("t")["usd"] == 0.3
    assert len(steps.ledger("t").steps) == 1  # type: ignore[union-attr]
    steps.pool.add(priced("dear", 0.3))
    with pytest.raises(BudgetExceeded):
        steps.decide("t", step="2", prompt_tokens=1000, pin="dear")
    steps.observe(steps.decide("t", step="3"), paid(0.05))
    steps.finish("t", success=True)
    assert policy.ends == [(["a"], None), (["a"], 1.0)]  # the first part when it idled, the rest at the end
    assert steps.accounts.queues["usd"] == pytest.approx(0.3 - 0.1 + 0.05)


def test_a_task_that_was_finished_starts_anew_under_its_name():
    steps = router(budget=Budget(usd=0.5), models=[priced("a", 0.4)])
    first = steps.decide("t", step="1", prompt_tokens=1000)
    steps.observe(first, paid(0.4))
    steps.finish("t")
    second = steps.decide("t", step="1", prompt_tokens=1000)
    assert second is not first
    steps.observe(first, paid(0.1), output="late, of the first task")
    assert steps.ledger("t").steps == []  # type: ignore[union-attr]
    assert steps.decide("t", step="1", prompt_tokens=1000) is second


def test_an_outcome_after_the_end_is_billed_once_and_teaches_nothing():
    policy = Wants({"a": 1})
    steps = router(policy=policy, budget=TARGET)
    decision = steps.decide("t")
    steps.finish("t")
    for _ in range(2):
        progress = steps.observe(decision, paid(0.35, call_id="c"))
    assert progress == decision.progress
    assert steps.accounts.queues["usd"] == pytest.approx(0.25)  # .35 − the target's .1, as if it had been on time
    assert policy.learnt == []
    assert steps.finish("t") == {}


def test_a_late_outcome_of_a_child_counts_for_its_running_parent():
    steps = router(budget=TARGET)
    steps.decide(Task(id="parent"))
    decision = steps.decide(Task(id="child", parent="parent"))
    steps.finish("child")
    steps.observe(decision, paid(0.3))
    assert steps.spent("parent")["usd"] == 0.3
    steps.finish("parent")
    assert steps.accounts.queues["usd"] == pytest.approx(0.2)


def test_a_decision_of_another_router_is_billed_and_no_more():
    policy = Wants({"a": 1})
    steps, other = router(policy=policy, budget=TARGET), router()
    for _ in range(2):
        steps.observe(other.decide("t"), paid(0.35, call_id="c"))
    assert steps.accounts.queues["usd"] == pytest.approx(0.35)
    assert policy.learnt == []


def test_the_past_does_not_pile_up():
    steps = router(free("a"))
    decisions = []
    for i in range(1200):
        decisions.append(steps.decide(f"t{i}"))
        steps.finish(f"t{i}")
    for decision in decisions:
        steps.observe(decision, paid(0.1))
    assert len(steps._tasks._ended) == 1000
    assert len(steps.accounts._closed) == 1000
    assert steps.accounts._open == {}


def test_a_ledger_that_says_its_domain_late_is_read_by_the_right_view():
    steps = router()
    steps.decide("t", step="0")
    evidence = [Evidence(source="syntax", score=0.0)]
    ledger = Ledger(task=Task(id="t", domain="code"), steps=[Step(output="x", outcome=Outcome(evidence=evidence))])
    decision = steps.decide(ledger, step="1")
    assert decision.progress.regime.label == "invalid"


def test_a_task_known_by_its_id_alone_is_described_later():
    policy = Wants({})
    steps = router(policy=policy)
    steps.decide(Task(id="child", parent="parent"))
    steps.decide(Task(id="parent", domain="code", source="mine"), "coder")
    assert policy.seen[-1].group == ("code", "mine", "coder")
    steps.decide(Task(id="parent", domain="math"), "coder", step="next")
    assert policy.seen[-1].task.domain == "code"  # the first description stands
    steps.observe(
        steps.decide("parent", step="next"), Outcome(evidence=[Evidence(source="syntax", score=0)]), output="x"
    )
    assert steps.progress("parent").regime.label == "invalid"  # type: ignore[union-attr]


def test_a_router_has_a_pool_of_its_own():
    pool = ModelPool(free("a", "b"))
    one, other = router(pool), router(pool)
    one.pool.retire("b")
    assert other.pool.names == ["a", "b"]
    assert pool.names == ["a", "b"]
    one.pool.add(priced("new", 0.1))
    one.policy.scores["new"] = 9
    assert one.decide("t").model.name == "new"
