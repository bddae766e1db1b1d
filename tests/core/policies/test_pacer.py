"""PACER: the score's arithmetic, learning within and across tasks, exploration, verified calls through a router."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from doubles import free, priced, router

from steproute import Budget, ConfigError, Evidence, Ledger, Model, Outcome, Router, Task
from steproute.budget import Limit
from steproute.draws import Draws
from steproute.policies import BudgetState, Candidate, Feedback, StepContext, make_policy
from steproute.policies.pacer import Pacer
from steproute.policies.price import price
from steproute.progress import Progress, Regime

MODELS = [Model("a", price="free"), Model("b", price="free"), Model("c", price="free")]


def context(
    task: str = "t",
    dimension: str = "d",
    limits: dict[str, Limit] | None = None,
    g: float = 0.0,
    costs: tuple[float, ...] = (0.0, 0.0, 0.0),
    **more: object,
) -> StepContext:
    given = Task(id=task, dimension=dimension)
    budget = BudgetState(limits or {}, {"usd": 0.2}, {"usd": 0.1}, {"usd": 0.6})
    candidates = [Candidate(model, {"usd": cost}, {}) for model, cost in zip(MODELS, costs, strict=True)]
    fields: dict[str, object] = {
        "role": "",
        "step": 0,
        "progress": Progress(g, Regime.INVALID, 0.0, 0.0, 0.0),
        "ledger": Ledger(task=given),
        "draws": Draws(0),
        "group": (dimension, "", ""),
        **more,
    }
    return StepContext(task=given, candidates=candidates, budget=budget, **fields)  # type: ignore[arg-type]


def gain(policy: Pacer, asked: StepContext, index: int, y: float, reliability: float = 1.0) -> None:
    after = Progress(asked.progress.g + y, Regime.PARTIAL, 0.0, 0.0, 0.0)
    policy.learn(Feedback(asked, index, y, after, reliability, {"usd": 0.0}))


def trained(n: int = 60, **settings: object) -> Pacer:
    """a is right 80 % of the time in d, b 40 %, c 10 %."""
    policy = make_policy({"name": "pacer", **settings})
    assert isinstance(policy, Pacer)
    rng = np.random.default_rng(3)
    for number in range(n):
        for index, rate in enumerate((0.8, 0.4, 0.1)):
            asked = context(f"{number}-{index}")
            policy.score(asked)
            gain(policy, asked, index, float(rng.random() < rate))
            policy.finish(asked.ledger, [], None)
    return policy


def test_prices_by_hand() -> None:
    limits = {"usd": Limit(value=2.0, limit=1.0, target=0.5)}
    found = price(context(limits=limits, costs=(0.0, 0.1, 0.3)))
    # spent .2, reserved .1, queue .6: w = 2 + exp(c + .3) + .6/.25
    expected = [c * (2 + math.exp(c + 0.3) + 2.4) for c in (0.0, 0.1, 0.3)]
    np.testing.assert_allclose(found, expected)
    assert price(context(costs=(1.0, 2.0, 3.0))) == [0.0, 0.0, 0.0]


def test_a_price_that_explodes_is_clamped() -> None:
    assert np.isfinite(price(context(limits={"usd": Limit(limit=1e-4)}, costs=(0.0, 1.0, 9.0)))).all()


def test_the_score_is_worth_minus_price() -> None:
    policy = trained(horizon=0)
    asked = context(g=0.5, limits={"usd": Limit(value=2.0)}, costs=(0.4, 0.0, 0.0))
    mean, _ = policy.predict(asked)
    np.testing.assert_allclose(policy.score(asked).values, 0.5 * np.array(mean) - [0.8, 0.0, 0.0], atol=2e-6)
    assert mean[0] == pytest.approx(0.5 * 0.78, abs=0.08)


def test_it_learns_which_model_serves_a_group_and_explores_less_with_time() -> None:
    few, many = trained(4), trained(100)
    assert int(np.argmax(many.score(context()).values)) == 0
    bonus = [max(term["exploration"] for term in policy.score(context()).terms) for policy in (few, many)]
    assert bonus[0] > bonus[1] > 0


def test_it_tries_every_model_of_a_fresh_group() -> None:
    policy, tried = Pacer(), set()
    for number in range(12):
        asked = context(str(number))
        index = int(np.argmax(policy.score(asked).values))
        tried.add(index)
        gain(policy, asked, index, 0.0)
    assert tried == {0, 1, 2}


def test_one_weak_step_counts_for_the_task_most_for_its_model_and_not_for_other_tasks() -> None:
    policy = trained()
    before, _ = policy.predict(context("fresh"))
    asked = context("hard")
    policy.score(asked)
    gain(policy, asked, 0, -0.5)
    within, _ = policy.predict(context("hard"))
    assert np.less(within, before).all()
    assert before[0] - within[0] > before[1] - within[1]
    elsewhere, _ = policy.predict(context("fresh"))
    assert before[1] - elsewhere[1] < 0.3 * (before[1] - within[1])
    policy.finish(Ledger(task=Task(id="hard")), [], None)
    again, _ = policy.predict(context("hard"))
    np.testing.assert_allclose(again, elsewhere)


def test_unreliable_evidence_moves_less() -> None:
    moved = []
    for reliability in (1.0, 0.1):
        policy = trained()
        asked = context("x")
        before, _ = policy.predict(asked)
        policy.score(asked)
        gain(policy, asked, 1, 1.0, reliability)
        moved.append(policy.predict(context("x"))[0][1] - before[1])
    assert moved[0] > 2 * moved[1] > 0


def test_published_means_from_config_and_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prior.json"
    file.write_text(json.dumps({"scores": {"a": {"d": 0.2}, "b": {"d": 0.7}, "c": {"d": 0.1}}}))
    stated = make_policy({"name": "pacer", "prior": {"d": {"a": 0.2, "b": 0.7, "c": 0.1}}})
    for policy in (stated, make_policy({"name": "pacer", "prior_file": str(file)})):
        assert int(np.argmax(policy.score(context()).values)) == 1
    file.write_text("{}")
    with pytest.raises(ConfigError, match=r"prior_file: .*needed"):
        make_policy({"name": "pacer", "prior_file": str(file)})
    with pytest.raises(ConfigError, match="did you mean 'horizon'"):
        make_policy({"name": "pacer", "horizn": 3})


def test_full_information_counts_for_every_model() -> None:
    policy = Pacer()
    for _ in range(30):
        policy.learn_all(context(), {"a": 0.2, "b": 0.9, "c": 0.1})
    mean, _ = policy.predict(context())
    assert int(np.argmax(mean)) == 1
    assert mean[1] - mean[0] == pytest.approx(0.7, abs=0.1)


def test_state_round_trips_and_keeps_running_tasks() -> None:
    policy = trained()
    asked = context("open")
    policy.score(asked)
    gain(policy, asked, 0, -0.5)
    copy = Pacer()
    copy.load(json.loads(json.dumps(policy.state())))
    for task in ("open", "other"):
        np.testing.assert_allclose(copy.predict(context(task))[0], policy.predict(context(task))[0])
    with pytest.raises(ConfigError, match="version: seen 9; allowed: 1"):
        copy.load({**policy.state(), "version": 9})


def test_another_estimator_may_give_the_gains() -> None:
    policy = Pacer()
    asked = context()
    for candidate, value in zip(asked.candidates, (0.1, 0.9, 0.3), strict=True):
        candidate.gain, candidate.gain_sd = value, 0.01
    assert int(np.argmax(policy.score(asked).values)) == 1


def verified(flips: float, dear: float = 0.0) -> tuple[Pacer, float, float]:
    """Tasks under a verifier: share solved and calls a task in the second half. b solves what a cannot half of the time."""
    policy, rng = Pacer(), np.random.default_rng(5)
    limits = {"usd": Limit(value=1.0)}
    solved = calls = 0
    for number in range(400):
        right = [bool(rng.random() < rate) for rate in (0.6, 0.5, 0.05)]
        ledger = Ledger(task=Task(id=str(number), dimension="d"))
        asked: list[tuple[StepContext, int]] = []
        while len(asked) < 3:
            step = context(
                str(number),
                limits=limits,
                costs=(0.01, 0.02, dear),
                ledger=ledger,
                step=len(asked),
                tried=tuple(MODELS[index].name for _, index in asked),
            )
            called = [index for _, index in asked]
            step.candidates = [item for index, item in enumerate(step.candidates) if index not in called]
            scores = policy.score(step)
            if asked and (scores.stop is None or scores.stop >= max(scores.values)):
                break
            name = step.candidates[int(np.argmax(scores.values))].name
            index = "abc".index(name)
            asked.append((step, index))
            verdict = right[index] ^ bool(rng.random() < flips)
            evidence = [Evidence(source="verifier", score=float(verdict))]
            ledger.steps.append(_step(name, evidence))
        delivered = asked[policy.answer(ledger)][1]
        for step, index in asked:
            local = step.names.index("abc"[index])
            gain(policy, step, local, float(right[index]))
        policy.finish(ledger, [], None)
        if number >= 200:
            solved += right[delivered]
            calls += len(asked)
    return policy, solved / 200, calls / 200


def _step(name: str, evidence: list[Evidence]) -> object:
    from steproute.ledger import Step

    return Step(model=name, outcome=Outcome(evidence=evidence))


def test_verified_calls_go_on_until_a_pass_and_stop_when_too_dear() -> None:
    _, solved, calls = verified(0.0, dear=5.0)
    assert solved == pytest.approx(1 - 0.4 * 0.5, abs=0.08)  # c is never worth 5 dollars
    assert 1.2 < calls < 1.6
    policy, solved, _ = verified(0.1, dear=5.0)
    assert 0.68 < solved < 0.85
    assert policy.verified.rates("d").specificity == pytest.approx(0.9, abs=0.06)


def test_through_a_router() -> None:
    models = [priced("dear", 0.5), priced("cheap", 0.01)]
    steps: Router = router(models, policy="pacer", budget=Budget(usd=Limit(value=1.0)))
    rng = np.random.default_rng(0)
    names = []
    for number in range(120):
        task = Task(id=str(number), dimension="d")
        decision = steps.decide(task, prompt_tokens=1000)
        names.append(decision.model.name)
        good = bool(rng.random() < (0.7 if decision.model.name == "cheap" else 0.8))
        steps.observe(
            decision, Outcome(prompt_tokens=1000), output="x", evidence=[Evidence(source="test", score=float(good))]
        )
        steps.finish(str(number), success=good)
    assert steps.errors == 0
    assert names[60:].count("cheap") > 50  # .1 more is not worth half a dollar


def test_three_free_models_and_no_feedback_still_answer() -> None:
    steps = router(free("x", "y", "z"), policy="pacer")
    assert steps.decide("t").model.name in "xyz"
