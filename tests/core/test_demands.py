"""What users of routers ask for, each as one case through the public API (rows of `cases/demands.md`)."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from doubles import Wants, free, paid, priced, router
from servers.fixtures import ollama_server

from steproute import (
    Budget,
    BudgetExceeded,
    ConfigError,
    Evidence,
    Limit,
    Model,
    Needs,
    NoEligibleModel,
    Outcome,
    Price,
    Router,
    Task,
)
from steproute.backend import ChatRequest
from steproute.progress import DEFAULT_WEIGHTS, GenericView, RegimeWeights, Weights

__all__ = ["ollama_server"]


@pytest.mark.parametrize("none", [None, Limit(limit=None, hard=True), Limit(target=1.0)])
def test_row_4_no_limit_leaves_every_deployment_eligible(none):
    """`budget.usd = None` is no limit, not a limit of nothing."""
    decision = router([priced("a", 1e9), priced("b", 0.1)], budget=Budget(usd=none)).decide("t", prompt_tokens=1000)
    assert [item.cause for item in decision.candidates] == ["", ""]
    assert decision.model.name == "a"


def test_row_5_ten_parallel_calls_of_a_fifth_under_a_limit_of_one():
    """Exactly five are granted, the rest refused; settled at five cents each, more are granted."""
    steps = router([priced("a", 0.2)], budget=Budget(usd=1.0))
    granted, refused = [], 0
    for i in range(10):
        try:
            granted.append(steps.decide("t", step=str(i), prompt_tokens=1000))
        except BudgetExceeded:
            refused += 1
    assert (len(granted), refused) == (5, 5)
    for decision in granted:
        steps.observe(decision, paid(0.05))
    assert [steps.decide("t", step=f"again {i}", prompt_tokens=1000).model.name for i in range(3)] == ["a"] * 3
    with pytest.raises(BudgetExceeded, match=r"spent 0.25, reserved by calls in flight 0.6"):
        steps.decide("t", step="one too many", prompt_tokens=1000)


def test_row_5_a_cheaper_model_that_fits_is_granted_instead():
    steps = router([priced("a", 0.2), priced("b", 0.02)], budget=Budget(usd=0.3))
    assert [steps.decide("t", step=str(i), prompt_tokens=1000).model.name for i in range(3)] == ["a", "b", "b"]


def test_row_6_two_routers_of_one_default_configuration_do_not_share_it():
    """Changing one leaves the other's settings, pool, limits, views and learning as they were."""
    models = free("a", "b")
    one, other = Router(models), Router(models)
    before = (other.pool.names, other.budget, other.accounts.limits, other.accounts.queues)
    one.pool.add(Model("c", price="free"))
    one.pool.retire("a")
    one.policy.capability.add("z", 0.9)  # type: ignore[attr-defined]
    one.accounts.limits["usd"] = Limit(limit=1e-9)
    one.accounts.queues["usd"] = 7.0
    one.observe(one.decide("t"), Outcome(completion_tokens=9, evidence=[Evidence(source="judge", score=1)]))
    assert (other.pool.names, other.budget, other.accounts.limits, other.accounts.queues) == before
    assert "z" not in other.policy.capability.models  # type: ignore[attr-defined]
    assert other.estimator is not one.estimator
    assert other.decide("t").model.name in ("a", "b")


def test_row_7_thresholds_out_of_order_name_the_field_and_the_order():
    with pytest.raises(ConfigError) as seen:
        GenericView(thresholds=(0.5, 0.2, 0.6))
    assert str(seen.value) == (
        "thresholds: seen (0.5, 0.2, 0.6); needed in rising order: 0 <= recoverable < partial < complete <= 1"
    )
    with pytest.raises(ConfigError, match=r"^config: thresholds: seen .* needed in rising order"):
        Router.from_config({"models": [{"name": "a", "price": "free"}], "progress": {"thresholds": [0.5, 0.2, 0.6]}})


def test_row_7_regime_boundaries_out_of_order_name_the_field_and_the_order():
    with pytest.raises(
        ConfigError, match=r"^progress\.partial\.base: .* regimes must be in the order invalid < recoverable"
    ):
        Weights(partial=RegimeWeights(0.2, 0.1, 0.05, 0.05))
    assert DEFAULT_WEIGHTS.partial.base == 0.5


def test_row_8_every_one_of_five_candidates_is_scored_with_its_terms():
    models = [Model(f"m{i}", price="free", size_b=2.0**i) for i in range(5)]
    decision = router(models, policy="progrouter").decide("t")
    assert [item.model for item in decision.candidates] == [f"m{i}" for i in range(5)]
    assert all(item.score == pytest.approx(sum(item.terms.values())) and item.terms for item in decision.candidates)
    assert decision.model.name == "m4"
    assert all(f"m{i}: score" in decision.why() for i in range(5))


def test_row_9_with_nothing_but_ollama_no_key_is_asked_for(ollama_server, monkeypatch):
    pytest.importorskip("ollama", reason="needs the extra ollama")
    from steproute.integrations.ollama import OllamaBackend

    for name in list(os.environ):
        if name.endswith(("_KEY", "_TOKEN")):
            monkeypatch.delenv(name)
    small, large = ollama_server.models[:2]
    steps = router(
        [Model(small, price="free", size_b=1), Model(large, price="free", size_b=7)], policy=Wants({large: 1})
    )
    decision = steps.decide("t", "coder")
    backend = OllamaBackend(host=ollama_server.url)
    response = backend.complete(ChatRequest(decision.model.provider_name, [{"role": "user", "content": "hello"}]))
    steps.observe(
        decision, Outcome(prompt_tokens=response.usage.prompt_tokens, seconds=response.seconds), output=response.content
    )
    assert response.content
    assert steps.ledger("t").steps[0].model == large  # type: ignore[union-attr]
    assert steps.spent("t")["usd"] == 0
    assert ollama_server.requests[-1].body["model"] == large


def test_row_11_an_image_needs_a_model_that_sees():
    models = [Model("blind", price="free", quality=1.0), Model("sees", price="free", vision=True, quality=0.1)]
    assert router(models).decide("t", needs=Needs(vision=True)).model.name == "sees"
    with pytest.raises(NoEligibleModel, match=r"^no model is eligible for role 'reader' \(blind: no vision\)$"):
        router(models[:1]).decide("t", "reader", needs=Needs(vision=True))


@pytest.mark.parametrize("limit", [None, 0.05, 0.3, 1.0])
def test_row_13_a_loop_that_gets_nowhere_does_not_change_models_out_of_curiosity(limit):
    """18 calls at one state of the ledger, on a provider that caches what a model has read before."""
    models = [
        Model("small", price=Price(input=1, output=2, cached_input=0.1), quality=0.3, max_output=300),
        Model("large", price=Price(input=10, output=20, cached_input=1), quality=0.9, max_output=300),
    ]

    def bill(policy):
        budget = Budget(usd=Limit(limit=limit, hard=False)) if limit else None
        made, read, used = Router(models, budget, policy, seed=0, on_error="raise"), {}, []
        for number in range(18):
            prompt = 1500 + 30 * number
            decision = made.decide("t", "coder", prompt_tokens=prompt, max_tokens=300, cached_tokens=dict(read))
            name = decision.model.name
            cached = read.get(name, 0)
            made.observe(decision, Outcome(prompt_tokens=prompt, completion_tokens=40, cached_tokens=cached))
            read[name] = prompt
            used.append(name)
        return made.spent("t")["usd"], used

    usd, used = bill("pacer")
    switches = sum(one != two for one, two in pairwise(used))
    assert switches <= (2 if limit == 0.05 else 0)  # five cents: small gains nothing, large neither and would break it
    assert usd <= bill("fixed:large")[0]
    assert limit is None or usd <= limit or usd <= bill("fixed:small")[0]


def test_row_14_a_price_of_zero_is_free_and_an_unknown_one_has_to_be_said():
    models = [Model("local", price=Price(input=0, output=0)), priced("paid", 0.4)]
    decision = router(models, policy="cheapest").decide("t", prompt_tokens=1000)
    assert decision.model.name == "local"
    assert decision.score_of("local").cost["usd"] == 0
    steps = router(models, budget=Budget(usd=0.1))
    steps.observe(steps.decide("t", prompt_tokens=10**6, pin="local"), Outcome(prompt_tokens=10**6))
    assert steps.spent("t")["usd"] == 0
    with pytest.raises(ConfigError, match=r"^Model 'm': price: missing; it is required$"):
        Model("m")
    with pytest.raises(ConfigError, match=r"^Model 'm': price: seen None; allowed: Price\(input=…, output=…\)"):
        Model("m", price=None)
    unknown = Model("m", price="unknown")
    decision = router([unknown, *models], policy="cheapest").decide("t", prompt_tokens=1000)
    assert decision.score_of("m").cost["usd"] >= 0.4  # as dear as the dearest known one, never free
    assert decision.model.name == "local"


def test_row_15_the_second_model_answers_after_the_first_failed():
    """Outcome, cost and credit go to the one that answered, the failure to the one that failed."""
    policy = Wants({"a": 2, "b": 1})
    steps = router([priced("a", 0.5), priced("b", 0.1)], policy=policy)
    first = steps.decide("t", "coder", step="s", prompt_tokens=1000)
    steps.observe(first, Outcome(error="HTTP 500", seconds=0.5))
    second = steps.decide("t", "coder", step="s", prompt_tokens=1000)
    assert (second.model.name, second.attempt) == ("b", 2)
    assert second.score_of("a").cause == "failed at this step"
    progress = steps.observe(
        second, Outcome(prompt_tokens=1000, seconds=1.0, evidence=[Evidence(source="judge", score=1.0)]), output="x"
    )
    ledger = steps.ledger("t")
    assert ledger is not None
    assert [(step.model, step.outcome.error) for step in ledger.steps] == [("b", None)]
    assert steps.spent("t")["usd"] == pytest.approx(0.1)
    assert steps.spent("t")["seconds"] == 1.5
    [feedback] = policy.learnt
    assert feedback.context.names[feedback.index] == "b"
    assert feedback.gain == pytest.approx(progress.g - second.progress.g)
    steps.decide("t", "coder")
    assert list(policy.seen[-1].tried) == ["a", "b"]
    for key in "12":
        steps.observe(steps.decide("t", "coder", step=key), Outcome(error="HTTP 500"))
    assert "failed 3 times in a row" in steps.decide("t", "coder", step="3").score_of("a").cause


def test_row_16_a_sub_agents_spending_is_seen_by_its_parents_next_decision():
    """Of five cents the sub-agent spends three while the parent runs: the parent has two left."""
    policy = Wants({"a": 1})
    steps = router([priced("a", 0.02)], budget=Budget(usd=0.05), policy=policy)
    running = steps.decide(Task(id="parent"), step="running", prompt_tokens=0)
    steps.observe(steps.decide(Task(id="sub-agent", parent="parent"), prompt_tokens=1000), paid(0.03))
    with pytest.raises(
        BudgetExceeded, match=r"usd=0.05 reached: spent 0.03, reserved by calls in flight 0, .* asks 0.021"
    ):
        steps.decide("parent", step="next", prompt_tokens=1050)
    assert steps.decide("parent", step="next", prompt_tokens=1000).model.name == "a"
    state = policy.seen[-1].budget
    limit = state.limits["usd"].limit
    assert limit is not None
    assert limit - state.spent["usd"] == pytest.approx(0.02)
    assert running.model.name == "a"
