"""What `decide` answers: the choice, its explanation, and the draw."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from doubles import FakeClock, Wants, free, paid, priced, router
from hypothesis import given, settings
from hypothesis import strategies as st

from steproute import Budget, Evidence, Ledger, Limit, Model, Needs, NoEligibleModel, Outcome, Router, Task
from steproute.policies import Scores
from steproute.router import DEFAULT_POLICY


def test_the_best_score_wins_and_the_first_of_equals():
    assert router(policy=Wants({"a": 1, "b": 5, "c": 5})).decide("t").model.name == "b"


def test_a_router_needs_nothing_but_models():
    decision = Router(free("a", "b")).decide(Task(goal="write a poem"), "writer")
    assert decision.model.name in ("a", "b")
    assert decision.policy == DEFAULT_POLICY
    assert decision.prompt_tokens == len("write a poem") // 4


def test_a_decision_shows_every_candidate_with_its_terms_or_its_cause():
    models = [
        priced("a", 0.01),
        priced("b", 0.02),
        priced("c", 0.03, tools=False),
        priced("d", 0.9),
        Model("e", price="free"),
    ]
    step = router(models, budget=Budget(usd=0.5), policy=Wants({"a": 3, "b": 2})).decide(
        "t", "coder", prompt_tokens=1000, needs=Needs(tools=True), exclude=["e"]
    )
    assert [item.model for item in step.candidates] == ["a", "b", "c", "e", "d"]
    assert [item.score for item in step.candidates] == [3, 2, None, None, None]
    assert step.score_of("a").terms == {"wish": 3}
    assert step.score_of("a").cost["usd"] == pytest.approx(0.01)
    assert step.score_of("c").cause == "no tool calls"
    assert step.score_of("e").cause == "excluded by the host"
    assert step.score_of("d").cause == (
        "hard limit usd=0.5 reached: spent 0, reserved by calls in flight 0, the cheapest candidate asks 0.9"
    )


def test_why_tells_the_whole_story():
    models = [priced("a", 0.01), priced("b", 0.02, tools=False), priced("c", 0.03)]
    decision = router(models).decide("t", "coder", prompt_tokens=1000, needs=Needs(tools=True))
    lines = decision.why().splitlines()
    assert lines[0] == "task t · step 0 · attempt 1 · role coder · policy wants"
    assert lines[1] == "progress g=0.050 (invalid: r=0.00 d=+0.00 e=0.00)"
    assert lines[2] == "→ a with probability 1: as told"
    assert lines[3].startswith("  a: score +3  [wish=+3]  gain 0.475±0.190  expected cost: tokens 1256, usd 0.01")
    assert lines[4].startswith("  c: score +1  [wish=+1]")
    assert lines[5] == "  b: not eligible: no tool calls"


def test_why_shows_every_term_of_the_papers_score():
    budget = Budget(energy_j=Limit(limit=50, hard=False, target=5), seconds=Limit(limit=10, hard=False))
    why = router(policy="progrouter", budget=budget).decide("t").why()
    for name in "abc":
        line = next(line for line in why.splitlines() if line.startswith(f"  {name}: score"))
        for term in ("V(1-g)y=", "-Q(E-target)=", "-time=", "-energy="):
            assert term in line


def test_a_decision_is_plain_json():
    decision = router().decide("t", "coder")
    data = json.loads(json.dumps(decision.as_dict(), allow_nan=False))
    assert data["model"] == "a"
    assert data["reservation"] == decision.reservation
    assert [item["model"] for item in data["candidates"]] == ["a", "b", "c"]


def test_the_policy_sees_the_ledger_and_what_was_spent():
    policy, clock = Wants({"b": 1}), FakeClock()
    steps = router(policy=policy, budget=Budget(usd=Limit(limit=9, target=2)), clock=clock)
    first = steps.decide(Task(id="t", dimension="sql", source="spider"), "coder", text="select", extra={"q": 1})
    steps.observe(first, paid(0.5), output="select 1")
    steps.decide("t", "critic")
    seen = policy.seen[-1]
    assert (seen.step, seen.role, list(seen.tried)) == (1, "critic", ["b"])
    assert seen.group == ("sql", "spider", "critic")
    assert (seen.budget.spent["usd"], seen.budget.queues) == (0.5, {"usd": 0})
    assert (policy.seen[0].text, policy.seen[0].extra, list(policy.seen[0].tried)) == ("select", {"q": 1}, [])


def test_facts_reach_the_policy_and_the_hosts_own_win():
    policy = Wants({})
    steps = router(policy=policy, facts=lambda ledger: {"id": ledger.task.id, "x": 1})
    steps.decide("t", extra={"x": 2})
    assert policy.seen[0].extra == {"id": "t", "x": 2}


# --- who may serve -------------------------------------------------------------------------------------------------


def test_no_model_for_a_role_says_why_for_each():
    models = [Model("a", price="free", roles=("critic",)), Model("b", price="free", roles=("critic", "judge"))]
    with pytest.raises(NoEligibleModel) as refusal:
        router(models).decide("t", "coder")
    assert str(refusal.value) == (
        "no model is eligible for role 'coder' (a: not allowed for role 'coder' (allowed: critic); "
        "b: not allowed for role 'coder' (allowed: critic, judge))"
    )
    assert refusal.value.reasons.keys() == {"a", "b"}


def test_the_prompt_must_fit_the_context_window_even_when_the_host_forgets_to_say():
    models = [Model("short", price="free", context_window=100), Model("long", price="free")]
    steps = router(models, policy=Wants({"short": 1}))
    assert steps.decide("t", prompt_tokens=100, needs=Needs(tools=True)).model.name == "short"
    assert steps.decide("t2", prompt_tokens=101, needs=Needs(tools=True)).model.name == "long"


@pytest.mark.parametrize("tokens", [-5, 0])
def test_a_nonsensical_prompt_length_counts_as_none(tokens):
    assert router().decide("t", prompt_tokens=tokens).prompt_tokens == 0


def test_a_pin_is_kept_and_metered_and_has_to_fit():
    steps = router([priced("a", 0.1), priced("b", 0.4)], budget=Budget(usd=0.5), policy=Wants({"a": 1}))
    decision = steps.decide("t", "coordinator", prompt_tokens=1000, pin="b")
    assert (decision.model.name, decision.propensity, decision.reason) == ("b", 1.0, "pinned by the host")
    assert decision.score_of("a").cause == "the host pinned b"
    assert steps.accounts.spending("t").reserved["usd"] == pytest.approx(0.4)
    steps.observe(decision, Outcome(prompt_tokens=1000))
    assert steps.spent("t")["usd"] == pytest.approx(0.4)
    with pytest.raises(Exception, match=r"hard limit usd=0.5 reached") as refusal:
        steps.decide("t", "coordinator", prompt_tokens=1000, pin="b")
    assert type(refusal.value).__name__ == "BudgetExceeded"


def test_a_pin_that_is_not_in_the_pool_is_no_eligible_model():
    with pytest.raises(NoEligibleModel, match=r"pinned: model: unknown name 'larg'; did you mean 'large'\?"):
        router(free("small", "large")).decide("t", pin="larg")


def test_a_pin_replaces_an_unanswered_decision_of_another_model():
    steps = router()
    assert steps.decide("t", step="s").model.name == "a"
    assert steps.decide("t", step="s", pin="b").model.name == "b"
    assert steps.decide("t", step="s").model.name == "b"


# --- stopping ------------------------------------------------------------------------------------------------------


def test_a_policy_may_end_the_task_only_where_the_host_allows_it():
    policy = Wants({"a": 1.0, "b": 2.0}, stop=2.5)
    steps = router(policy=policy, budget=Budget(usd=1))
    stop = steps.decide("t", can_stop=True)
    assert (stop.stop, stop.stop_score, stop.propensity, stop.reservation) == (True, 2.5, 1.0, None)
    assert "→ stop with probability 1: ending the task is worth more than any call" in stop.why()
    assert "(end the task): score +2.5" in stop.why()
    go_on = steps.decide("t")
    assert (go_on.stop, go_on.model.name, go_on.stop_score) == (False, "b", None)
    assert go_on.reservation is not None
    assert steps.decide("t", can_stop=True) is go_on


def test_a_low_stop_score_is_shown_but_not_taken():
    decision = router(policy=Wants({"a": 1.0}, stop=0.5)).decide("t", can_stop=True)
    assert (decision.stop, decision.stop_score) == (False, 0.5)


# --- the draw ------------------------------------------------------------------------------------------------------


class Drawn:
    name = "drawn"

    def __init__(self, *weights: float):
        self.weights = weights

    def score(self, context):
        values = np.arange(len(context.candidates), 0, -1, dtype=float)
        return Scores(values, propensities=np.array(self.weights))


def test_the_same_seed_draws_the_same_models():
    def run(seed: int | None) -> list[str]:
        steps = router(policy="random", seed=seed)
        return [steps.decide(f"t{i}").model.name for i in range(40)]

    assert run(7) == run(7)
    assert run(7) != run(8)


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.floats(0.05, 5), min_size=3, max_size=3),
    st.sampled_from([0.0, 0.3]),
    st.integers(0, 10**6),
)
def test_frequencies_match_the_logged_propensities(weights, explore, seed):
    steps = router(policy=Drawn(*weights), explore=explore, seed=seed)
    expected = [(1 - explore) * weight / sum(weights) + explore / 3 for weight in weights]
    n, seen = 3000, Counter()
    for i in range(n):
        decision = steps.decide(f"t{i}")
        seen[decision.model.name] += 1
        assert decision.propensity == pytest.approx(expected["abc".index(decision.model.name)])
        assert [item.propensity for item in decision.candidates] == pytest.approx(expected)
        assert decision.explored == (decision.model.name != "a")
        steps.finish(f"t{i}")
    for name, p in zip("abc", expected, strict=True):
        assert abs(seen[name] / n - p) < 5 * (p * (1 - p) / n) ** 0.5 + 1e-9


def test_a_certain_choice_draws_no_random_number():
    policy = Wants({"a": 1})
    steps = router(policy=policy)
    for i in range(3):
        steps.decide(f"t{i}")
    fresh = np.random.default_rng(0).random()
    assert policy.seen[-1].rng.random() == fresh


def test_exploring_keeps_every_candidate_possible():
    steps = router(explore=0.3)
    propensities = [item.propensity for item in steps.decide("t").candidates]
    assert propensities == pytest.approx([0.8, 0.1, 0.1])


def test_two_roles_that_ask_at_once_get_keys_of_their_own():
    steps = router()
    coder, critic = steps.decide("t", "coder"), steps.decide("t", "critic")
    assert (coder.step, critic.step) == ("0", "0:critic")
    assert steps.decide("t", "coder") is coder
    assert steps.decide("t", "critic") is critic


def test_the_host_may_bring_a_ledger_that_grows():
    ledger = Ledger(task=Task(id="t", domain="code"))
    steps = router()
    decision = steps.decide(ledger, "coder")
    progress = steps.observe(
        decision, Outcome(evidence=[Evidence(source="examples", score=1, count=2)]), output="def f(): ..."
    )
    assert (ledger.steps[0].model, ledger.steps[0].output, ledger.steps[0].g) == ("a", "def f(): ...", 1.0)
    assert progress.g == 1.0
    assert steps.ledger("t") is ledger
    assert steps.progress("t") == progress


async def test_async_twins_mean_the_same():
    steps = router()
    decision = await steps.adecide("t", "coder", prompt_tokens=8)
    assert decision is steps.decide("t", "coder")
    progress = await steps.aobserve(decision, paid(0.25), output="x")
    assert progress == steps.progress("t")
    assert await steps.areport("t", [Evidence(source="judge", score=1.0)]) == steps.progress("t")
    assert (await steps.afinish("t", success=True))["usd"] == 0.25
    assert Router.adecide.__doc__ == Router.decide.__doc__
