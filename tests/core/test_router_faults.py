"""The router never breaks its host: whatever fails inside, the host gets a model, and hard limits hold."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from doubles import Wants, free, paid, priced, router

from steproute import (
    Budget,
    BudgetExceeded,
    ConfigError,
    Evidence,
    Model,
    Needs,
    NoEligibleModel,
    Outcome,
    Router,
    Task,
)
from steproute.policies import Scores
from steproute.predict import CapabilityPrior
from steproute.progress import GenericView

SECRET = "the customer's secret plan"


class Breaks:
    """A policy and estimator that fails where it is told."""

    name = "breaks"

    def __init__(self, where: str, scores: object = None):
        self.where, self.scores = where, scores

    def _maybe(self, where: str) -> None:
        if self.where == where:
            raise RuntimeError(SECRET)

    def score(self, context):
        self._maybe("score")
        return self.scores or Scores(np.ones(len(context.candidates)))

    def predict(self, context):
        self._maybe("predict")
        n = len(context.candidates)
        return (np.full(n, np.nan) if self.where == "nan gains" else np.zeros(n)), np.zeros(n)

    def learn(self, feedback):
        self._maybe("learn")

    def finish(self, ledger, steps, reward):
        self._maybe("finish")


class BrokenView:
    domain = "generic"

    def read(self, ledger, step, memory):
        raise RuntimeError(SECRET)


class NotANumber(GenericView):
    def read(self, ledger, step, memory):
        signals = super().read(ledger, step, memory)
        return type(signals)(signals.regime, float("nan"), signals.e)


def facts(ledger):
    raise RuntimeError(SECRET)


BROKEN = {
    "policy raises": {"policy": Breaks("score")},
    "policy gives NaN": {"policy": Breaks("", Scores(np.array([np.nan, 1.0, 1.0])))},
    "policy gives infinity": {"policy": Breaks("", Scores(np.array([1.0, np.inf, 1.0])))},
    "policy gives too few scores": {"policy": Breaks("", Scores(np.array([1.0])))},
    "policy gives too many scores": {"policy": Breaks("", Scores(np.arange(9.0)))},
    "policy gives too few terms": {"policy": Breaks("", Scores(np.ones(3), [{}]))},
    "policy gives no scores": {"policy": Breaks("", object())},
    "propensities are negative": {"policy": Breaks("", Scores(np.ones(3), propensities=np.array([2.0, -1.0, 0.0])))},
    "propensities are zero": {"policy": Breaks("", Scores(np.ones(3), propensities=np.zeros(3)))},
    "propensities are NaN": {"policy": Breaks("", Scores(np.ones(3), propensities=np.full(3, np.nan)))},
    "propensities are too few": {"policy": Breaks("", Scores(np.ones(3), propensities=np.ones(2)))},
    "stop is NaN": {"policy": Breaks("", Scores(np.ones(3), stop=float("nan")))},
    "estimator raises": {"estimator": Breaks("predict")},
    "facts raise": {"facts": facts},
}


@pytest.mark.parametrize("case", BROKEN)
def test_the_default_model_stands_in(case, caplog):
    models = [
        Model("a", price="free", size_b=1),
        Model("b", price="free", size_b=70),
        Model("c", price="free", size_b=7),
    ]
    steps = router(models, on_error="fallback", **BROKEN[case])
    decision = steps.decide("t", "coder", text=SECRET)
    assert (decision.model.name, decision.fallback, decision.propensity) == ("b", True, 1.0)
    assert decision.reason == "the router failed inside; the default model stands in"
    assert steps.errors == 1
    assert "decide failed inside" in caplog.text
    progress = steps.observe(decision, Outcome(evidence=[Evidence(source="judge", score=1.0)]))
    assert progress.g == 1.0
    assert steps.decide("t", "coder").fallback


@pytest.mark.parametrize("case", BROKEN)
def test_tests_see_the_fault_itself(case):
    with pytest.raises((RuntimeError, ValueError, AttributeError)):
        router(**BROKEN[case]).decide("t")


def test_gains_that_are_no_numbers_are_a_fault_of_the_policy_that_uses_them():
    steps = router(policy="progrouter", estimator=Breaks("nan gains"), on_error="fallback")
    assert steps.decide("t").fallback
    fixed = router(policy="fixed:c", estimator=Breaks("nan gains"), on_error="fallback")
    assert fixed.decide("t").model.name == "c"


def test_standing_in_respects_capabilities_and_hard_limits():
    models = [
        Model("best", price="free", quality=0.9, tools=False),
        priced("good", 0.9, quality=0.8),
        priced("small", 0.1, quality=0.2),
    ]
    steps = router(models, policy=Breaks("score"), on_error="fallback", budget=Budget(usd=0.5))
    decision = steps.decide("t", "coder", needs=Needs(tools=True), prompt_tokens=1000)
    assert (decision.model.name, decision.fallback) == ("small", True)
    assert decision.score_of("best").cause == "no tool calls"
    assert steps.accounts.spending("t").reserved["usd"] == pytest.approx(0.1)
    with pytest.raises(BudgetExceeded):
        steps.decide("t", "coder", step="2", needs=Needs(tools=True), prompt_tokens=4500)
    with pytest.raises(NoEligibleModel):
        steps.decide("t", "coder", step="3", needs=Needs(vision=True))
    assert steps.decide("t", "coder", step="4", pin="small").model.name == "small"


def test_the_default_of_the_pool_stands_in_before_the_strongest():
    from steproute import ModelPool

    pool = ModelPool([Model("a", price="free", quality=0.9), Model("b", price="free", quality=0.1)], default="b")
    steps = router(pool, policy=Breaks("score"), on_error="fallback")
    assert steps.decide("t").model.name == "b"


@pytest.mark.parametrize("where", ["learn", "finish"])
@pytest.mark.parametrize("part", ["policy", "estimator"])
def test_faults_in_learning_are_counted_and_the_rest_goes_on(part, where):
    learner = Wants({"a": 1})
    broken = Breaks(where)
    steps = router(
        policy=broken if part == "policy" else learner,
        estimator=broken if part == "estimator" else None,
        on_error="fallback",
    )
    progress = steps.observe(steps.decide("t"), paid(0.1, evidence=[Evidence(source="judge", score=1.0)]))
    assert progress.g == 1.0
    assert steps.finish("t", success=True)["usd"] == 0.1
    assert steps.errors == 1
    if part == "estimator":
        assert len(learner.learnt) == 1
        assert len(learner.ends) == 1


def test_a_fault_in_learning_is_not_learnt_twice():
    broken = Breaks("learn")
    steps = router(policy=broken, on_error="fallback")
    for key in "12":
        steps.observe(steps.decide("t", step=key), paid(0.1), evidence=[Evidence(source="judge", score=0.5)])
    assert steps.errors == 2
    broken.where = ""
    steps.observe(steps.decide("t", step="3"), paid(0.1), evidence=[Evidence(source="judge", score=0.5)])
    steps.finish("t")
    assert steps.errors == 2


@pytest.mark.parametrize("view", [BrokenView(), NotANumber()])
def test_a_broken_view_leaves_progress_where_it_was(view, caplog):
    policy = Wants({"a": 1})
    steps = router(policy=policy, views={"generic": view}, on_error="fallback")
    decision = steps.decide("t")
    assert not decision.fallback
    assert steps.observe(decision, paid(0.1), output=SECRET) == decision.progress
    assert steps.report("t", [Evidence(source="judge", score=1.0)]) == decision.progress
    assert steps.progress("t") == decision.progress
    assert steps.decide("t").model.name == "a"
    assert steps.finish("t")["usd"] == 0.1
    assert steps.errors >= 4
    assert SECRET not in caplog.text


def test_no_text_of_the_user_is_logged(caplog):
    caplog.set_level(logging.DEBUG)
    for options in ({"policy": Breaks("score")}, {"policy": Breaks("learn")}, {"views": {"generic": BrokenView()}}, {}):
        steps = router(on_error="fallback", **options)
        decision = steps.decide(Task(id="t", goal=SECRET), "coder", text=SECRET)
        steps.observe(decision, Outcome(error=SECRET))
        decision = steps.decide("t", "coder", text=SECRET)
        steps.observe(decision, paid(0.1, evidence=[Evidence(source="judge", score=0.5, detail=SECRET)]), output=SECRET)
        steps.finish("t", success=True)
    assert SECRET not in caplog.text
    assert "RuntimeError at test_router_faults.py:" in caplog.text
    assert isinstance(router(on_error="fallback").faults.last, type(None))


def test_the_latest_fault_is_kept_for_whoever_looks():
    steps = router(policy=Breaks("score"), on_error="fallback")
    steps.decide("t")
    assert repr(steps.faults.last) == f"RuntimeError({SECRET!r})"


def test_an_interrupt_is_not_a_fault():
    class Interrupted(Wants):
        def score(self, context):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        router(policy=Interrupted({}), on_error="fallback").decide("t")


def test_another_holder_of_the_books_may_take_the_room_between_filter_and_reservation():
    steps = router([priced("a", 0.6), priced("b", 0.3), priced("c", 0.2)], budget=Budget(usd=1))

    class Taking(Wants):
        def score(self, context):
            if len(self.seen) < 2:
                steps.accounts.reserve("t", {"usd": 0.5 - 0.2 * len(self.seen)}, {"usd": 0.5 - 0.2 * len(self.seen)})
            return super().score(context)

    steps._chooser._policy = Taking({"a": 3, "b": 2, "c": 1})
    decision = steps.decide("t", prompt_tokens=1000)
    assert decision.model.name == "c"
    assert decision.score_of("a").cause.startswith("hard limit usd=1 reached: ")
    assert decision.score_of("b").cause.startswith("hard limit usd=1 reached: ")


def test_the_estimator_of_the_policy_is_used_and_ends_tasks_once():
    class Both(Wants):
        def __init__(self):
            super().__init__({})
            self.estimator = self

        def predict(self, context):
            return np.full(len(context.candidates), 0.125), np.zeros(len(context.candidates))

    policy = Both()
    steps = router(policy=policy)
    decision = steps.decide("t")
    assert decision.score_of("a").gain == 0.125
    steps.observe(decision, paid(0.1, evidence=[Evidence(source="judge", score=1.0)]))
    steps.finish("t", reward=0.75)
    assert len(policy.learnt) == 1
    assert policy.ends == [(["a"], 0.75)]
    assert isinstance(router(free("a")).estimator, CapabilityPrior)


def test_what_is_no_call_no_seed_and_no_config_is_said_so():
    steps = router()
    decision = steps.decide("t")
    with pytest.raises(ConfigError, match="decision: seen a NoneType; allowed: what `decide` or `book` returned"):
        steps.observe(None, paid(0.1))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"outcome: seen a dict; allowed: Outcome\(...\)"):
        steps.observe(decision, {"usd": 0.1})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="seed: seen 'x'; allowed: a whole number of 0 or more, or None"):
        Router(free("a"), seed="x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="seed: seen -1"):
        Router(free("a"), seed=-1)
    with pytest.raises(ConfigError, match="seed: seen Generator"):  # its state would be another's, and of any kind
        Router(free("a"), seed=np.random.default_rng(0))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="config: seen int; allowed: a path, or a mapping with the key `models`"):
        Router.from_config(5)  # type: ignore[arg-type]
