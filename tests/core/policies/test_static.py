"""Logistic regression, decision tree and nearest neighbours, through the router."""

from __future__ import annotations

import math

import numpy as np
import pytest
from doubles import free, priced, router
from hypothesis import given
from hypothesis import strategies as st
from policy_worlds import GOOD, TEXTS, hits, learner, play

from steproute import Budget, ConfigError, Evidence, Limit, Outcome, Task
from steproute.embed import HashEmbedder
from steproute.memory import ExactMemory, Experience
from steproute.policies import make_policy
from steproute.policies.decision_tree import grow
from steproute.policies.knn import KNN
from steproute.policies.logreg import fit_logistic
from steproute.policies.static import Example

STATIC = ["logreg", "decision-tree"]


@pytest.mark.parametrize("name", STATIC)
def test_after_the_warmup_each_kind_of_task_goes_to_its_model_and_nothing_changes_any_more(name):
    steps = learner({"name": name, "warmup": 250})
    first = play(steps, 250)
    assert {model for _, model in first} == {"a", "b", "c"}
    assert hits(first) < 0.6
    assert hits(play(steps, 100, seed=1)) >= 0.9
    turned = {"maths": "b", "code": "a"}
    play(steps, 200, seed=2, good=turned)
    assert hits(play(steps, 60, seed=3, good=turned), turned) <= 0.1


@pytest.mark.parametrize("name", STATIC)
def test_draws_of_the_warmup_are_logged(name):
    decision = learner(name, free(*"abcd")).decide("t")
    assert [item.propensity for item in decision.candidates] == [0.25] * 4


@pytest.mark.parametrize("name", STATIC)
def test_it_can_be_trained_from_a_table(name):
    source = learner("random")
    contexts = []
    for i, dimension in enumerate(["maths", "code"] * 20):
        decision = source.decide(Task(id=str(i), dimension=dimension))
        made = source._tasks.get(str(i)).made[(decision.step, 1)]  # type: ignore[union-attr]
        contexts.append((dimension, made.context))
    policy = make_policy(name)
    rows = [
        policy.example(context, model, float((model == "a") == (dimension == "maths")))  # type: ignore[attr-defined]
        for dimension, context in contexts
        for model in ("a", "b")
    ]
    policy.fit(rows)  # type: ignore[attr-defined]
    assert hits(play(learner(policy), 40)) == 1.0


@pytest.mark.parametrize("name", STATIC)
def test_bad_tables_are_refused(name):
    policy = make_policy(name)
    with pytest.raises(ConfigError, match="fit: seen no examples"):
        policy.fit([])  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="gain: seen nan; allowed: 0 to 1"):
        policy.fit([Example(np.ones(3), "a", math.nan)])  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"seen a description of shape \(2,\); allowed: \(3,\)"):
        policy.fit([Example(np.ones(3), "a", 0.0), Example(np.ones(2), "a", 0.0)])  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [*STATIC, "knn"])
def test_arms_come_and_go(name):
    steps = learner(name)
    play(steps, 220, text=True)
    steps.pool.retire("a")
    steps.pool.add(free("d")[0])
    chosen = play(steps, 60, seed=1, text=True)
    assert {model for _, model in chosen} <= {"b", "c", "d"}
    assert steps.errors == 0


@pytest.mark.parametrize("name", [*STATIC, "knn"])
def test_a_stated_worth_of_money_turns_the_choice(name):
    models = [priced("dear", 0.5), priced("cheap", 0.05)]
    steps = router(models, policy=name, budget=Budget(usd=Limit(value=1.0)))
    for i in range(220):
        decision = steps.decide(Task(id=str(i)), prompt_tokens=1000, text="the same question")
        good = decision.model.name == "dear" or i % 10
        steps.observe(
            decision, Outcome(prompt_tokens=1000), evidence=[Evidence(source="tests", score=float(bool(good)))]
        )
        steps.finish(str(i))
    names = [steps.decide(Task(id=f"x{i}"), prompt_tokens=1000, text="the same question").model.name for i in range(40)]
    assert names.count("cheap") >= 36


@pytest.mark.parametrize(
    ("name", "typo", "right"), [("logreg", "rige", "ridge"), ("decision-tree", "dept", "depth"), ("knn", "kk", "k")]
)
def test_typos_are_named(name, typo, right):
    with pytest.raises(ConfigError, match=f"{typo}: unknown name '{typo}'; did you mean '{right}'"):
        make_policy({"name": name, typo: 1})


# --- the two learners ----------------------------------------------------------------------------------------------


def test_logistic_regression_finds_the_log_odds_of_a_table():
    """9 of 10 where x = 1 and 2 of 10 where x = 0, hardly any penalty: w = logit(.9) − logit(.2), bias logit(.2)."""
    x = np.array([[1.0, 1.0]] * 10 + [[1.0, 0.0]] * 10)
    y = np.array([1.0] * 9 + [0.0] + [1.0] * 2 + [0.0] * 8)
    weights = fit_logistic(x, y, ridge=1e-6)
    assert weights == pytest.approx([math.log(0.2 / 0.8), math.log(9) - math.log(0.25)], abs=1e-3)


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), min_size=1, max_size=30), st.floats(0.1, 10))
def test_logistic_regression_ends_where_the_gradient_is_nought(rows, ridge):
    x = np.array([[1.0, value] for value, _ in rows])
    y = np.array([label for _, label in rows])
    weights = fit_logistic(x, y, ridge)
    p = 1 / (1 + np.exp(-x @ weights))
    assert x.T @ (p - y) + np.array([1e-3, 1.0]) * ridge * weights == pytest.approx(np.zeros(2), abs=1e-5)


def test_a_tree_asks_the_question_that_matters():
    rng = np.random.default_rng(0)
    x = rng.random((200, 3))
    y = (x[:, 1] > 0.5).astype(float)
    tree = grow(x, y, depth=3, leaf=5)
    assert tree.column == 1
    assert tree.threshold == pytest.approx(0.5, abs=0.02)
    assert [tree(np.array([0.9, value, 0.9])) for value in (0.1, 0.9)] == [0.0, 1.0]


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), min_size=1, max_size=40))
def test_a_tree_never_fits_its_examples_worse_than_their_mean(rows):
    x, y = np.array([[value] for value, _ in rows]), np.array([label for _, label in rows])
    tree = grow(x, y, depth=4, leaf=2)
    found = np.array([tree(row) for row in x])
    assert ((found - y) ** 2).sum() <= ((y.mean() - y) ** 2).sum() + 1e-9
    assert found.mean() == pytest.approx(y.mean())


# --- nearest neighbours --------------------------------------------------------------------------------------------


def test_neighbours_tell_two_kinds_of_text_apart():
    steps = learner({"name": "knn", "k": 15})
    play(steps, 300, text=True)
    assert hits(play(steps, 100, seed=1, text=True)) >= 0.9


def test_without_text_the_predicted_gain_decides():
    steps = learner({"name": "knn", "epsilon": 0.0, "epsilon_min": 0.0})
    decision = steps.decide("t")
    assert decision.reason == "no text, the predicted gain decides"
    assert [item.score for item in decision.candidates] == [item.gain for item in decision.candidates]
    steps.observe(decision, Outcome(), evidence=[Evidence(source="tests", score=1)])
    assert len(steps.policy.memory) == 0  # type: ignore[attr-defined]


def test_a_memory_that_is_filled_already_is_asked_from_the_start():
    embedder = HashEmbedder()
    memory = ExactMemory(embedder.dim)
    for i, (dimension, text) in enumerate(TEXTS.items()):
        for model in "abc":
            score = float((model, dimension) in (("a", "maths"), ("b", "code")))
            memory.add(Experience(embedder.embed([text.format(i)])[0], model, score))
    policy = KNN(KNN.Config(epsilon=0.0, epsilon_min=0.0, k=3), memory, embedder)
    steps = learner(policy)
    for dimension, good in GOOD.items():
        text = TEXTS[dimension].format(99)
        assert steps.decide(Task(id=dimension), text=text).model.name == good


def test_an_embedder_of_another_dimension_than_the_memory_is_refused():
    with pytest.raises(ConfigError, match="holds vectors of dimension 64"):
        KNN(memory=ExactMemory(64))


def test_the_memory_forgets_the_oldest():
    steps = learner({"name": "knn", "capacity": 5})
    play(steps, 8, text=True)
    assert len(steps.policy.memory) == 5  # type: ignore[attr-defined]
