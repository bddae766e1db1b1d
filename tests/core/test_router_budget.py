"""Hard limits, soft ones, long-run targets, and tasks that pay for each other."""

from __future__ import annotations

import logging
import pickle
import threading

import pytest
from doubles import FakeClock, Wants, free, paid, priced, router

from steproute import (
    Budget,
    BudgetExceeded,
    ConfigError,
    Limit,
    Model,
    NoEligibleModel,
    Outcome,
    Price,
    Profile,
    Router,
    Task,
)


def reserved(steps, task="t"):
    return steps.accounts.spending(task).reserved


def test_a_cheaper_model_that_fits_takes_the_place_of_one_that_does_not():
    steps = router([priced("a", 0.4), priced("b", 0.1)], budget=Budget(usd=0.5))
    names = [steps.decide("t", step=str(i), prompt_tokens=1000).model.name for i in range(2)]
    assert names == ["a", "b"]
    with pytest.raises(BudgetExceeded) as refusal:
        steps.decide("t", step="2", prompt_tokens=1000)
    assert (refusal.value.resource, refusal.value.limit, refusal.value.asked) == ("usd", 0.5, 0.1)
    assert str(refusal.value) == (
        "task 't': hard limit usd=0.5 reached: spent 0, reserved by calls in flight 0.5, the cheapest candidate asks 0.1"
    )


def test_the_worst_case_counts_not_the_expectation():
    model = Model("m", price=Price(input=0, output=1e6), max_output=4)
    assert router([model], budget=Budget(usd=4)).decide("t").model is not None
    with pytest.raises(BudgetExceeded):
        router([model], budget=Budget(usd=3.99)).decide("t")
    assert router([model], budget=Budget(usd=3.99)).decide("t", max_tokens=3).model is not None


def test_a_soft_limit_refuses_nobody_but_shows_in_the_score():
    budget = Budget(seconds=Limit(limit=10, hard=False))
    models = [
        Model("slow", price="free", profile=Profile(latency_s=9)),
        Model("fast", price="free", profile=Profile(latency_s=1)),
    ]
    steps = router(models, budget=budget, policy={"name": "progrouter", "V": 1})
    assert steps.decide("t").model.name == "fast"
    steps.observe(steps.decide("t"), Outcome(seconds=500))
    decision = steps.decide("t")
    assert decision.score_of("fast").terms["-time"] < -1e20
    assert decision.model.name == "fast"


@pytest.mark.parametrize("limit", [None, Limit(limit=None), Limit(target=0.01)])
def test_no_limit_refuses_nobody(limit):
    assert router([priced("a", 1e6)], budget=Budget(usd=limit)).decide("t", prompt_tokens=1000).model.name == "a"


@pytest.mark.parametrize(
    "error",
    [
        BudgetExceeded("usd", 1.0, 0.5, 0.2, 0.4, "child", "parent"),
        NoEligibleModel("coder", {"a": "no vision"}),
    ],
)
def test_refusals_cross_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_threads_are_granted_what_fits_and_no_more():
    steps = router([priced("a", 0.2)], budget=Budget(usd=1))
    granted, refused, start = [], [], threading.Barrier(10)

    def call(key: str) -> None:
        start.wait()
        try:
            granted.append(steps.decide("t", step=key, prompt_tokens=1000))
        except BudgetExceeded as error:
            refused.append(error)

    threads = [threading.Thread(target=call, args=(str(i),)) for i in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(granted), len(refused)) == (5, 5)
    assert reserved(steps)["usd"] == pytest.approx(1.0)


def test_every_way_out_of_a_decision_frees_its_reservation():
    clock = FakeClock()
    steps = router(
        [priced("a", 0.4), priced("b", 0.3)], budget=Budget(usd=10, lease_s=60), clock=clock, on_error="fallback"
    )
    ok, failed, _, lapsed = (steps.decide("t", step=key, prompt_tokens=1000) for key in ("ok", "no", "ex", "lapse"))
    assert reserved(steps)["usd"] == pytest.approx(1.6)
    steps.observe(ok, paid(0.1))
    steps.observe(failed, Outcome(error="HTTP 500"))
    assert steps.decide("t", step="ex", prompt_tokens=1000, exclude=["a"]).model.name == "b"
    assert reserved(steps)["usd"] == pytest.approx(0.4 + 0.3)
    clock.tick(60)
    assert reserved(steps)["usd"] == 0
    steps.policy.scores["a"] = float("nan")
    fallen = steps.decide("t", step="fallback", prompt_tokens=1000)
    assert fallen.fallback
    assert reserved(steps)["usd"] == pytest.approx(fallen.score_of(fallen.model.name).cost["usd"])
    steps.observe(fallen, paid(0.1))
    assert reserved(steps)["usd"] == 0
    steps.observe(lapsed, paid(0.2))
    assert (reserved(steps)["usd"], steps.spent("t")["usd"]) == (0, pytest.approx(0.4))
    steps.decide("t", step="open", prompt_tokens=1000)
    steps.finish("t")
    assert steps.accounts._reservations == {}


def test_a_child_sees_and_spends_its_parents_budget():
    policy = Wants({"a": 1})
    steps = router([priced("a", 0.02)], budget=Budget(usd=0.05), policy=policy)
    parent, child = Task(id="parent"), Task(id="child", parent="parent")
    steps.decide(parent, step="start", prompt_tokens=500)
    steps.observe(steps.decide(child, prompt_tokens=1000), paid(0.03))
    assert steps.spent("parent")["usd"] == 0.03
    steps.decide(parent, step="next", prompt_tokens=0)
    assert policy.seen[-1].budget.spent["usd"] == 0.03
    with pytest.raises(BudgetExceeded, match="task 'child'"):
        steps.decide(child, step="again", prompt_tokens=1000)
    steps.decide(child, step="third", prompt_tokens=400)
    assert policy.seen[-1].budget.spent["usd"] == 0.03  # a child is pressed by what its parent has left


def test_a_child_that_comes_first_opens_its_parents_account():
    steps = router([priced("a", 0.02)], budget=Budget(usd=Limit(limit=0.05, target=0.01)))
    steps.observe(steps.decide(Task(id="child", parent="parent"), prompt_tokens=1000), paid(0.03))
    steps.finish("child")
    assert steps.spent("parent")["usd"] == 0.03
    assert steps.accounts.queues == {"usd": 0}
    with pytest.raises(BudgetExceeded):
        steps.decide(Task(id="parent", domain="code"), prompt_tokens=1050)
    assert steps.finish("parent")["usd"] == 0.03
    assert steps.accounts.queues["usd"] == pytest.approx(0.02)


def test_queues_press_on_later_tasks():
    budget = Budget(energy_j=Limit(target=100))
    models = [
        Model("hungry", price="free", size_b=70, profile=Profile(decode_j_per_token=1)),
        Model("frugal", price="free", size_b=1, profile=Profile(decode_j_per_token=0.1)),
    ]
    steps = router(models, budget=budget, policy={"name": "progrouter", "V": 1000})
    first = steps.decide("t1")
    assert first.model.name == "hungry"
    steps.observe(first, Outcome(completion_tokens=300))
    steps.finish("t1")
    assert steps.accounts.queues == {"energy_j": 200}
    assert steps.decide("t2").model.name == "frugal"


# --- prices and profiles that are not known ------------------------------------------------------------------------


def test_a_free_model_is_free_and_an_unknown_price_is_the_dearest_known():
    models = [Model("free", price=0), priced("dear", 0.5), Model("unknown", price="unknown", max_output=1)]
    decision = router(models).decide("t", prompt_tokens=999)
    assert decision.score_of("free").cost["usd"] == 0
    assert decision.score_of("unknown").cost["usd"] == pytest.approx(0.5)


def test_an_unknown_price_is_not_taken_for_free_under_a_hard_limit():
    models = [Model("free", price=0), Model("unknown", price="unknown")]
    steps = router(models, budget=Budget(usd=1), policy=Wants({"unknown": 1}))
    decision = steps.decide("t")
    assert decision.model.name == "free"
    assert decision.score_of("unknown").cause == "price unknown: a hard limit on usd cannot be kept"
    with pytest.raises(NoEligibleModel, match="unknown: price unknown: a hard limit on usd cannot be kept"):
        steps.decide("t", pin="unknown")
    assert router(models, policy=Wants({"unknown": 1})).decide("t").model.name == "unknown"


def test_a_hard_limit_on_money_needs_a_price():
    with pytest.raises(ConfigError) as seen:
        router([Model("m", price="unknown")], budget=Budget(usd=1))
    assert str(seen.value) == (
        "budget.usd: a hard limit needs prices, and every model has price='unknown'; "
        "give a Price, or make the limit soft: Limit(limit=..., hard=False)"
    )
    router([Model("m", price="unknown")], budget=Budget(usd=Limit(limit=1, hard=False)))


def test_a_free_model_serves_on_when_the_money_is_spent():
    steps = router([priced("a", 0.5), Model("b", price="free")], budget=Budget(usd=0.5))
    steps.observe(steps.decide("t", prompt_tokens=1000), paid(0.5))
    assert steps.decide("t", prompt_tokens=1000).model.name == "b"


def test_a_limit_on_time_without_a_profile_is_said_to_be_blind_and_learns(caplog):
    with caplog.at_level(logging.WARNING):
        steps = router(free("a"), budget=Budget(seconds=10))
    assert "hard limit on seconds: no profile says what a call of a takes" in caplog.text
    steps.observe(steps.decide("t"), Outcome(seconds=6))
    with pytest.raises(BudgetExceeded, match=r"spent 6, .* asks 6"):
        steps.decide("t")
    assert steps.decide("t", timeout_s=4).model.name == "a"


def test_without_any_measure_the_limit_still_ends_a_task_that_passed_it():
    steps = router(free("a"), budget=Budget(other={"pages": 10}))
    steps.observe(steps.decide("t", step="1"), Outcome(error="HTTP 500"))
    steps.observe(steps.decide("t", step="2"), Outcome(amounts={"pages": 4}))
    steps.observe(steps.decide("t", step="3"), Outcome(amounts={"pages": 6}))
    with pytest.raises(BudgetExceeded, match="hard limit pages=10 reached: spent 10"):
        steps.decide("t", step="4")


def test_a_known_profile_is_no_reason_to_warn(caplog):
    profile = Profile(decode_tokens_per_s=10, power_w=5, amounts={"slots": 1})
    router(
        [Model("a", price="free", profile=profile)],
        budget=Budget(seconds=1e6, energy_j=1e6, tokens=1e6, other={"slots": 3}),
    )
    assert caplog.text == ""
    router([Model("a", price="free", profile=Profile(decode_j_per_token=0))], budget=Budget(energy_j=1))
    assert caplog.text == ""


def test_the_users_own_resource_is_reserved_by_its_profile():
    models = [Model("a", price="free", profile=Profile(amounts={"slots": 2}))]
    steps = router(models, budget=Budget(other={"slots": 5}))
    assert [steps.decide("t", step=str(i)).model.name for i in range(2)] == ["a", "a"]
    with pytest.raises(BudgetExceeded, match="hard limit slots=5 reached"):
        steps.decide("t", step="2")


def test_joules_come_from_the_meter_or_from_the_profile_and_say_so():
    models = [Model("a", price="free", profile=Profile(power_w=100))]
    steps = router(models, budget=Budget(energy_j=Limit(limit=1e9)))
    estimated, measured = Outcome(seconds=2), Outcome(seconds=2, energy_j=7, energy_source="meter")
    for outcome in (estimated, measured):
        steps.observe(steps.decide("t"), outcome)
    assert (estimated.energy_j, estimated.energy_source) == (200, "estimate from the model's profile")
    assert steps.spent("t")["energy_j"] == 207


def test_minus_one_for_no_limit_gives_a_hard_limit_no_room():
    # Ollama and llama.cpp read max_tokens = -1 as "no limit": the worst case is the model's own, $0.20 here
    model = Model("m", price=Price(input=0, output=200), max_output=1000)
    router = Router([model], Budget(usd=Limit(limit=1.0)))
    for i in range(5):
        router.decide("t", step=str(i), max_tokens=-1)
    with pytest.raises(BudgetExceeded, match="hard limit usd=1 reached: spent 0, reserved by calls in flight 1"):
        router.decide("t", step="5", max_tokens=-1)
