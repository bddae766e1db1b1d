"""ε-greedy, Thompson, LinUCB, dimension-best, educated guess and task-level, through the router."""

from __future__ import annotations

import json

import numpy as np
import pytest
from doubles import free, priced, router
from hypothesis import given
from hypothesis import strategies as st
from policy_worlds import GOOD, hits, learner, play

from steproute import Budget, ConfigError, Evidence, Limit, Model, Outcome, Task
from steproute.policies import make_policy
from steproute.policies.features import describe
from steproute.policies.rewards import RewardTable
from steproute.policies.thompson import best_probabilities

LEARNERS = ["epsilon-greedy", "thompson", "linucb", "dimension-best", "task-level"]


@pytest.mark.parametrize("name", ["epsilon-greedy", "thompson", "linucb", "task-level"])
def test_after_300_steps_each_kind_of_task_goes_to_its_model(name):
    steps = learner(name)
    play(steps, 300)
    assert hits(play(steps, 100, seed=1)) >= 0.9


def test_dimension_best_takes_the_best_of_what_it_tried():
    steps = learner({"name": "dimension-best", "tries": 15})
    chosen = play(steps, 300)
    for dimension in GOOD:
        first = [name for where, name in chosen if where == dimension][:45]
        assert sorted(first) == ["a"] * 15 + ["b"] * 15 + ["c"] * 15
    assert hits(play(steps, 100, seed=1)) == 1.0


@pytest.mark.parametrize("name", [*LEARNERS, "educated-guess"])
def test_the_same_seed_gives_the_same_choices(name):
    assert play(learner(name, seed=3), 40) == play(learner(name, seed=3), 40)


@pytest.mark.parametrize("name", [*LEARNERS, "educated-guess"])
def test_arms_come_and_go(name):
    steps = learner(name)
    play(steps, 60)
    steps.pool.retire("a")
    steps.pool.add(free("d")[0])
    good = {"maths": "d", "code": "b"}
    chosen = play(steps, 250, seed=1, good=good)
    assert {model for _, model in chosen} <= {"b", "c", "d"}
    assert "d" in {model for _, model in chosen}
    assert steps.errors == 0


@pytest.mark.parametrize("name", ["epsilon-greedy", "thompson", "linucb", "task-level"])
def test_a_new_arm_that_is_better_is_found(name):
    steps = learner(name)
    play(steps, 60)
    steps.pool.retire("a")
    steps.pool.add(free("d")[0])
    good = {"maths": "d", "code": "b"}
    play(steps, 400, seed=1, good=good)
    assert hits(play(steps, 100, seed=2, good=good), good) >= 0.8


@pytest.mark.parametrize("name", ["epsilon-greedy", "thompson", "dimension-best", "educated-guess", "task-level"])
def test_what_was_learnt_round_trips_through_json(name):
    one, two = make_policy(name), make_policy(name)
    play(learner(one), 100)
    two.load(json.loads(json.dumps(one.state())))  # type: ignore[attr-defined]
    assert two.state() == one.state()  # type: ignore[attr-defined]
    assert play(learner(one, seed=5), 30, seed=7) == play(learner(two, seed=5), 30, seed=7)


@pytest.mark.parametrize("name", ["epsilon-greedy", "thompson", "linucb"])
def test_a_stated_worth_of_money_turns_the_choice(name):
    """Both solve everything; one is ten times as dear."""

    def dear_share(value: float) -> float:
        models = [priced("dear", 0.5), priced("cheap", 0.05)]
        steps = router(models, policy=name, budget=Budget(usd=Limit(value=value)))
        for i in range(150):
            decision = steps.decide(Task(id=str(i)), prompt_tokens=1000)
            good = decision.model.name == "dear" or i % 10
            evidence = [Evidence(source="tests", score=float(bool(good)), count=8)]
            steps.observe(decision, Outcome(prompt_tokens=1000), evidence=evidence)
            steps.finish(str(i))
        names = [steps.decide(Task(id=f"x{i}"), prompt_tokens=1000).model.name for i in range(40)]
        return names.count("dear") / len(names)

    assert dear_share(1.0) <= 0.2  # .1 more progress for $.45 more


# --- one by one ----------------------------------------------------------------------------------------------------


def test_epsilon_decays_to_its_floor_and_is_logged():
    steps = learner({"name": "epsilon-greedy", "epsilon": 0.6, "decay": 0.5, "epsilon_min": 0.1})
    seen = []
    for i in range(4):
        decision = steps.decide(Task(id=str(i)))
        seen.append(sorted(item.propensity for item in decision.candidates))
        steps.observe(decision, Outcome(), evidence=[Evidence(source="tests", score=1)])
    assert [low for low, _, _ in seen] == pytest.approx([0.2, 0.1, 0.05, 0.1 / 3])
    assert all(sum(row) == pytest.approx(1) for row in seen)


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(0.01, 1)), min_size=1, max_size=5),
)
def test_probabilities_of_being_best_are_those_of_many_draws(arms):
    means, sds = (np.array(values) for values in zip(*arms, strict=True))
    found = best_probabilities(means, sds)
    assert found.sum() == pytest.approx(1)
    draws = means + sds * np.random.default_rng(0).standard_normal((4000, len(means)))
    shares = np.bincount(draws.argmax(axis=1), minlength=len(means)) / 4000
    assert found == pytest.approx(shares, abs=0.05)


def test_two_equal_arms_are_drawn_alike_and_certainty_is_certain():
    assert best_probabilities(np.zeros(2), np.ones(2)) == pytest.approx([0.5, 0.5])
    assert best_probabilities(np.array([0.0, 9.0]), np.array([0.1, 0.1])) == pytest.approx([0, 1])
    assert best_probabilities(np.array([1.0]), np.array([0.1])) == pytest.approx([1])


def test_linucb_is_ridge_regression_with_a_bound():
    policy = make_policy({"name": "linucb", "alpha": 0.5, "ridge": 2.0, "buckets": 4})
    steps = learner(policy, free("a"))
    rows, rewards = [], []
    for i in range(6):
        decision = steps.decide(Task(id=str(i), dimension="xy"[i % 2]), role="r")
        before = decision.progress.g
        after = steps.observe(decision, Outcome(), evidence=[Evidence(source="tests", score=i / 6, count=3)])
        x = np.zeros(14)
        x[0], x[1], x[6] = 1, before, 1  # bias, g, invalid
        context = steps._tasks.get(str(i)).made[("0", 1)].context  # type: ignore[union-attr]
        found = describe(context, 4)
        assert found[:10] == pytest.approx(x[:10])
        rows.append(found)
        rewards.append(after.g - before)
    design = np.array(rows)
    inverse = np.linalg.inv(2.0 * np.eye(14) + design.T @ design)
    context = steps._tasks.get("5").made[("0", 1)].context  # type: ignore[union-attr]
    x = describe(context, 4)
    terms = policy.score(context).terms[0]
    assert terms["mean"] == pytest.approx(float(x @ inverse @ design.T @ np.array(rewards)))
    assert terms["bound"] == pytest.approx(0.5 * float(np.sqrt(x @ inverse @ x)))


def test_dimension_best_follows_a_published_table():
    means = {"maths": {"a": 0.2, "b": 0.7}, "code": {"a": 0.9}}
    steps = learner({"name": "dimension-best", "means": means})
    assert {name for where, name in play(steps, 30) if where == "maths"} == {"b"}
    assert steps.decide(Task(id="t", dimension="code")).model.name == "a"
    assert steps.decide(Task(id="t", dimension="code"), step="x", exclude=["a"]).model.name in "bc"


def test_dimension_best_takes_what_is_published_later_too():
    policy = make_policy("dimension-best")
    policy.set_prior(("maths", "", ""), {"a": 0.1, "c": 0.4})  # type: ignore[attr-defined]
    steps = learner(policy)
    assert steps.decide(Task(id="t", dimension="maths")).model.name == "c"
    assert steps.decide(Task(id="u", dimension="other")).reason == "to be tried first"


def test_an_educated_guess_looks_at_nothing_but_past_performance():
    good = {"maths": "b", "code": "b"}
    steps = learner("educated-guess")
    play(steps, 200, good=good)
    chosen = [name for _, name in play(steps, 100, seed=1, good=good)]
    assert chosen.count("b") > 80
    mixed = learner("educated-guess")
    play(mixed, 300)
    shares = [hits(play(mixed, 100, seed=1)), 0.5]
    assert shares[0] == pytest.approx(shares[1], abs=0.15)  # it cannot tell the two kinds apart
    greedy = learner(
        {"name": "educated-guess", "choice": "greedy"}, [Model("x", price="free", quality=0.9), *free("y")]
    )
    assert greedy.decide("t").model.name == "x"


def test_task_level_keeps_its_choice_for_the_task_and_per_role():
    steps = learner("task-level", free(*"abcdefgh"))
    seen: dict[str, set[str]] = {"planner": set(), "coder": set()}
    for i in range(12):
        role = ("planner", "coder")[i % 2]
        decision = steps.decide("t", role=role)
        seen[role].add(decision.model.name)
        steps.observe(decision, Outcome(), output=str(i), evidence=[Evidence(source="tests", score=0)])
    assert [len(names) for names in seen.values()] == [1, 1]
    kept = seen["coder"].pop()
    other = steps.decide("t", role="coder", exclude=[kept])
    assert other.model.name != kept


def test_task_level_credits_the_result_of_the_whole_task():
    """The first step of every task looks good with a; only tasks of b end well."""
    steps = learner("task-level", free("a", "b"))
    chosen = []
    for i in range(150):
        first = steps.decide(Task(id=str(i)), role="coder")
        chosen.append(first.model.name)
        for j in range(2):
            decision = first if j == 0 else steps.decide(str(i), role="coder")
            score = float((j == 0) == (first.model.name == "a"))
            steps.observe(decision, Outcome(), output=f"{j}", evidence=[Evidence(source="tests", score=score)])
        steps.finish(str(i), success=first.model.name == "b")
    assert chosen[-50:].count("b") >= 45


@pytest.mark.parametrize(
    ("name", "typo", "right"),
    [
        ("epsilon-greedy", "epsilom", "epsilon"),
        ("thompson", "nois", "noise"),
        ("linucb", "alfa", "alpha"),
        ("dimension-best", "trys", "tries"),
        ("educated-guess", "choise", "choice"),
        ("task-level", "spred", "spread"),
    ],
)
def test_typos_are_named(name, typo, right):
    with pytest.raises(ConfigError, match=f"{typo}: unknown name '{typo}'; did you mean '{right}'"):
        make_policy({"name": name, typo: 1})


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ({}, "version: seen None; allowed: 1"),
        ({"version": 1}, "cells"),
        ({"version": 1, "cells": [[["x"], "a", -1, 0]]}, "allowed: a count of 0 or more"),
        ({"version": 1, "cells": [[["x"], "a", 1]]}, "cells"),
    ],
)
def test_a_broken_state_is_refused(state, error):
    with pytest.raises(ConfigError, match=error):
        RewardTable().load(state)


def test_a_reward_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="reward of 'a': seen nan"):
        RewardTable().add((), "a", float("nan"))
