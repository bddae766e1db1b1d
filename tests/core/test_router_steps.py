"""Idempotence by key, failed calls, and who is credited with what."""

from __future__ import annotations

import threading

import pytest
from doubles import FakeClock, Wants, free, paid, priced, router
from hypothesis import given
from hypothesis import strategies as st

from steproute import Budget, Evidence, Ledger, Model, NoEligibleModel, Outcome, Price, Step, Subtask, Task


def judged(score: float, source: str = "judge") -> Evidence:
    return Evidence(source=source, score=score)


def gains(policy: Wants) -> list[tuple[str, float]]:
    return [(item.context.names[item.index], round(item.gain, 6)) for item in policy.learnt]


# --- the same step decided twice -----------------------------------------------------------------------------------


def test_the_same_step_decided_twice_is_one_decision_and_one_reservation():
    policy = Wants({"a": 1})
    steps = router([priced("a", 0.4)], budget=Budget(usd=1), policy=policy)
    first = steps.decide("t", step="s", prompt_tokens=1000)
    assert steps.decide("t", step="s", prompt_tokens=1000) is first
    assert len(policy.seen) == 1
    assert steps.accounts.spending("t").reserved["usd"] == pytest.approx(0.4)
    assert steps.decide("t", step="other", prompt_tokens=1000) is not first
    assert steps.decide("t2", step="s", prompt_tokens=1000) is not first
    steps.observe(first, paid(0.1))
    assert steps.decide("t", step="s", prompt_tokens=1000) is first


def test_threads_that_decide_one_step_get_one_decision():
    steps = router([priced("a", 0.4)], budget=Budget(usd=1))
    start, found = threading.Barrier(6), []

    def work() -> None:
        start.wait()
        found.append(steps.decide("t", step="s", prompt_tokens=1000))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({decision.id for decision in found}) == 1


def test_a_decision_that_the_host_excludes_now_opens_the_next_attempt():
    steps = router([priced("a", 0.4), priced("b", 0.4)], budget=Budget(usd=0.5))
    first = steps.decide("t", step="s", prompt_tokens=1000)
    second = steps.decide("t", step="s", prompt_tokens=1000, exclude=["a"])
    assert (first.model.name, second.model.name, second.attempt) == ("a", "b", 2)
    assert steps.accounts.spending("t").reserved["usd"] == pytest.approx(0.4)
    assert steps.decide("t", step="s", prompt_tokens=1000) is second


def test_a_decision_for_a_retired_model_does_not_stand():
    steps = router()
    assert steps.decide("t", step="s").model.name == "a"
    steps.pool.retire("a")
    assert steps.decide("t", step="s").model.name == "b"


def test_a_lapsed_lease_is_renewed_where_it_fits_and_decided_anew_where_not():
    clock = FakeClock()
    models = [priced("a", 0.6), priced("b", 0.1)]
    steps = router(models, budget=Budget(usd=1, lease_s=60), clock=clock)
    first = steps.decide("t", step="s", prompt_tokens=1000)
    clock.tick(61)
    assert steps.accounts.spending("t").reserved["usd"] == 0
    assert steps.decide("t", step="s", prompt_tokens=1000) is first
    assert steps.accounts.spending("t").reserved["usd"] == pytest.approx(0.6)
    clock.tick(61)
    steps.decide("t", step="other", prompt_tokens=1000)
    again = steps.decide("t", step="s", prompt_tokens=1000)
    assert (again.model.name, again.attempt, again.id != first.id) == ("b", 1, True)
    steps.observe(first, paid(0.5), output="late")  # it was called after all: billed, nothing else
    assert steps.spent("t")["usd"] == 0.5
    assert steps.ledger("t").steps == []  # type: ignore[union-attr]


# --- billing and learning once -------------------------------------------------------------------------------------


def test_a_call_is_billed_once_by_its_id():
    steps = router()
    decision, outcome = steps.decide("t"), paid(0.25, call_id="c1")
    steps.observe(decision, outcome)
    steps.observe(decision, outcome)
    steps.observe(decision, paid(0.25, call_id="c1"))
    assert steps.spent("t")["usd"] == 0.25


def test_a_repeated_call_is_billed_again_but_learnt_and_recorded_once():
    policy = Wants({"a": 1})
    steps = router(policy=policy)
    decision = steps.decide("t")
    for _ in range(3):
        steps.observe(decision, paid(0.25, evidence=[judged(0.6)]), output="x")
    steps.finish("t")
    assert len(policy.learnt) == 1
    assert len(policy.ends[0][0]) == 1
    assert steps.accounts._closed["t"].spent["usd"] == 750_000_000


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=12))
def test_any_order_of_repeats_bills_each_call_and_learns_each_attempt_once(events):
    policy = Wants({"a": 1})
    steps = router(policy=policy)
    decisions = [steps.decide("t", step=str(i)) for i in range(3)]
    for step, call in events:
        steps.observe(decisions[step], paid(0.125, call_id=f"{step}-{call}", evidence=[judged(0.5)]))
    assert steps.spent("t").get("usd", 0) == 0.125 * len(set(events))
    steps.finish("t")
    assert len(policy.learnt) == len({step for step, _ in events})


# --- failed calls --------------------------------------------------------------------------------------------------


def test_a_failed_call_opens_the_next_attempt_without_its_model():
    policy = Wants({"a": 3, "b": 2, "c": 1})
    steps = router(policy=policy)
    names = []
    for attempt in (1, 2, 3):
        decision = steps.decide("t", step="s")
        assert decision.attempt == attempt
        names.append(decision.model.name)
        steps.observe(decision, Outcome(error="HTTP 500"))
    assert names == ["a", "b", "c"]
    with pytest.raises(NoEligibleModel, match="a: failed at this step; b: failed at this step; c: failed at this step"):
        steps.decide("t", step="s")
    assert steps.decide("t", step="next").model.name == "a"
    assert policy.learnt == []
    assert steps.ledger("t").steps == []  # type: ignore[union-attr]


def test_cost_and_credit_go_to_the_model_that_answered():
    policy = Wants({"a": 3, "b": 2})
    models = [priced("a", 0.1), Model("b", price=Price(input=400, output=0), deployment="vendor/b-2")]
    steps = router(models, policy=policy)
    decision = steps.decide("t", step="s", prompt_tokens=1000)
    steps.observe(decision, Outcome(error="HTTP 500", model="a"))
    # the host fell back by itself, and names the deployment
    outcome = Outcome(model="vendor/b-2", prompt_tokens=1000, evidence=[judged(1.0)])
    steps.observe(decision, outcome, output="x")
    assert outcome.usd == pytest.approx(0.4)
    assert [step.model for step in steps.ledger("t").steps] == ["b"]  # type: ignore[union-attr]
    assert gains(policy) == [("b", 0.95)]
    assert policy.learnt[0].cost["usd"] == pytest.approx(0.4)
    assert steps.decide("t", step="s") is decision  # answered: a replay gets the same


def test_a_name_nobody_knows_is_billed_to_the_model_decided():
    steps = router([priced("a", 0.1)])
    outcome = Outcome(model="a-2026-11-01", prompt_tokens=1000)
    steps.observe(steps.decide("t"), outcome)
    assert outcome.usd == pytest.approx(0.1)


def test_a_failure_that_arrives_after_the_answer_opens_no_attempt():
    steps = router()
    decision = steps.decide("t", step="s")
    steps.observe(decision, paid(0.1))
    steps.observe(decision, Outcome(error="timeout of a duplicate"))
    assert steps.decide("t", step="s") is decision


def test_an_answer_does_not_undo_a_later_attempt_under_way():
    steps = router()
    first = steps.decide("t", step="s")
    steps.observe(first, Outcome(error="timeout"))
    second = steps.decide("t", step="s")
    steps.observe(first, paid(0.1))  # it came after all
    assert steps.decide("t", step="s") is second


def test_a_model_that_keeps_failing_rests_and_comes_back():
    clock = FakeClock()
    steps = router(clock=clock, cooldown_s=30)
    for i in range(3):
        decision = steps.decide(f"t{i}")
        assert decision.model.name == "a"
        steps.observe(decision, Outcome(error="HTTP 500"))
    resting = steps.decide("t9")
    assert resting.model.name == "b"
    assert resting.score_of("a").cause == "failed 3 times in a row; rests for 30 s more"
    assert steps.decide("pinned", pin="a").model.name == "a"
    clock.tick(30)
    assert steps.decide("t10").model.name == "a"


def test_when_every_model_rests_all_are_tried():
    steps = router(free("a"))
    for i in range(4):
        steps.observe(steps.decide(f"t{i}"), Outcome(error="HTTP 500"))
    assert steps.decide("again").model.name == "a"


# --- what a step is credited with ----------------------------------------------------------------------------------


def test_gain_is_the_difference_of_progress():
    policy = Wants({"a": 1})
    steps = router(policy=policy)
    first = steps.decide("t")
    after = steps.observe(first, Outcome(evidence=[judged(0.6)]), output="x")
    assert gains(policy) == [("a", round(after.g - 0.05, 6))]
    second = steps.decide("t")
    end = steps.observe(second, Outcome(evidence=[judged(1.0)]), output="y")
    assert end.g == 1.0
    assert gains(policy)[1] == ("a", round(1.0 - after.g, 6))
    assert policy.learnt[1].progress == end
    assert policy.learnt[1].context.progress == after


def test_evidence_that_comes_by_report_is_waited_for():
    policy = Wants({"a": 1})
    steps = router(policy=policy)
    steps.observe(steps.decide("t"), Outcome(), output="x")
    assert policy.learnt == []
    progress = steps.report("t", [judged(1.0)])
    assert progress is not None
    assert progress.g == 1.0
    assert gains(policy) == [("a", 0.95)]
    assert steps.ledger("t").steps[0].g == 1.0  # type: ignore[union-attr]
    steps.finish("t")
    assert len(policy.learnt) == 1


def test_a_step_without_evidence_is_learnt_when_a_later_one_has_been_observed_or_at_the_end():
    policy = Wants({"a": 1})
    steps = router(policy=policy)
    steps.observe(steps.decide("t"), Outcome(), output="x")
    second = steps.decide("t")
    assert policy.learnt == []
    steps.observe(second, Outcome(), output="y")
    assert len(policy.learnt) == 1
    assert policy.learnt[0].reliability == 0.25
    steps.finish("t")
    assert len(policy.learnt) == 2


def test_parallel_steps_are_each_credited_with_their_own_gain():
    policy = Wants({"a": 1})
    steps = router(policy=policy)
    left, right = (steps.decide("t", step=key) for key in ("left", "right"))
    middle = steps.observe(left, Outcome(evidence=[judged(0.4)]), output="x")
    end = steps.observe(right, Outcome(evidence=[judged(0.7)]), output="y")
    assert gains(policy) == [("a", round(middle.g - 0.05, 6)), ("a", round(end.g - middle.g, 6))]


def test_late_evidence_about_parallel_steps_finds_its_step():
    policy = Wants({"a": 1})
    steps = router(policy=policy)
    left, right = (steps.decide("t", step=key) for key in ("left", "right"))
    steps.observe(left, Outcome(), output="x")
    before = steps.observe(right, Outcome(), output="y")
    steps.report("t", [judged(0.7)], left)
    steps.report("t", [judged(1.0)], right)
    ledger = steps.ledger("t")
    assert ledger is not None
    assert [step.outcome.evidence[0].score for step in ledger.steps] == [0.7, 1.0]
    assert before.g < 0.5
    assert [name for name, _ in gains(policy)] == ["a", "a"]
    first, second = (gain for _, gain in gains(policy))
    assert first == pytest.approx(0.50 + 0.34 * 0.7 + 0.05 + 0.09 - 0.05)  # partial, up from nothing
    assert first + second == pytest.approx(0.95)


def test_subtasks_done_between_two_steps_are_credited_to_the_one_that_was_under_way():
    policy = Wants({"a": 1})
    ledger = Ledger(task=Task(id="t"), subtasks=[Subtask(id="1"), Subtask(id="2")])
    steps = router(policy=policy)
    steps.observe(steps.decide(ledger), Outcome(), output="x")
    second = steps.decide(ledger)
    for subtask in ledger.subtasks:
        subtask.status = "done"
    steps.observe(second, Outcome(), output="y")
    steps.finish("t")
    # nothing → partial with nothing done (.5 + .05 + .09) → complete
    assert [gain for _, gain in gains(policy)] == pytest.approx([0.64 - 0.05, 1.0 - 0.64])


def test_evidence_for_a_step_that_is_not_there_is_dropped_and_said(caplog):
    steps = router()
    steps.observe(steps.decide("t", step="1"), Outcome(), output="x")
    failed = steps.decide("t", step="2")
    steps.observe(failed, Outcome(error="HTTP 500"))
    steps.report("t", [judged(1.0)], failed)
    assert steps.ledger("t").steps[0].outcome.evidence == []  # type: ignore[union-attr]
    assert "evidence for a step that is not in the ledger" in caplog.text
    assert steps.report("unknown", [judged(1.0)]) is None


def test_a_step_the_host_put_into_the_ledger_is_completed_not_doubled():
    ledger = Ledger(task=Task(id="t"))
    steps = router()
    decision = steps.decide(ledger)
    ledger.steps.append(Step(id=decision.id, role="coder", output="mine", outcome=Outcome(evidence=[judged(0.3)])))
    steps.observe(decision, paid(0.1), evidence=[judged(0.9, "tests")])
    assert len(ledger.steps) == 1
    assert ledger.steps[0].output == "mine"
    assert [item.source for item in ledger.steps[0].outcome.evidence] == ["judge", "tests"]
    assert ledger.steps[0].outcome.usd == 0.1


def test_replies_cut_inside_a_character_are_recorded():
    steps = router()
    steps.observe(steps.decide("t"), Outcome(), output="half \ud83d")
    ledger = steps.ledger("t")
    assert ledger is not None
    assert ledger.steps[0].output == "half ?"
    assert Ledger.from_json(ledger.to_json()) == ledger


def test_reliability_grows_with_the_number_of_checks():
    policy = Wants({"a": 1})
    steps = router(policy=policy)
    for count, expected in ((1, 0.5), (3, 0.75), (0, 0.25)):
        steps.observe(steps.decide("t"), Outcome(evidence=[Evidence(source="examples", score=1, count=count)]))
        assert policy.learnt[-1].reliability == expected
    steps.observe(steps.decide("t"), Outcome(evidence=[judged(1.0, "syntax")]))
    assert policy.learnt[-1].reliability == 0.25


def test_old_decisions_of_a_long_task_are_forgotten_not_piled_up():
    steps = router(free("a"))
    for _ in range(1100):
        steps.observe(steps.decide("t"), Outcome(), output="x")
    assert len(steps.decisions("t")) == 1000
    assert len(steps.ledger("t").steps) == 1100  # type: ignore[union-attr]
