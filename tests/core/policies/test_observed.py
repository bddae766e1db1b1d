from __future__ import annotations

import numpy as np
import pytest

from steproute.policies.observed import DimensionMeans, dimension_of
from steproute.policies.policy_model import DIMENSIONS, SoftmaxPolicyModel

EVEN = {"a": 0.5, "b": 0.5}


def test_means_by_hand():
    means = DimensionMeans(strength=2.0)
    means.add("d", "a", 1.0)
    means.add("d", "b", 0.0)
    means.add("other", "a", 0.25)
    assert means.group_mean("d") == pytest.approx(0.5)
    assert means.group_mean("other") == pytest.approx(0.75 / 2)
    everywhere = (0.5 + (0.25 - 0.375)) / (2 + 2)
    expected = 0.5 + (0.5 + 2 * everywhere) / (1 + 2)
    assert means.estimate("d", EVEN)["a"] == pytest.approx(expected)
    assert means.counted("d", "a") == (1, 1.0)
    assert means.counted("d", "c") == (0, 0.5)


def test_the_order_of_scores_does_not_matter():
    one, two = DimensionMeans(), DimensionMeans()
    scores = [("a", 0.9), ("a", 0.9), ("b", 1.0), ("b", 1.0)]
    for (first, score), (other, again) in zip(scores, reversed(scores), strict=True):
        one.add("d", first, score)
        two.add("d", other, again)
    assert one.estimate("d", EVEN) == pytest.approx(two.estimate("d", EVEN))
    assert one.estimate("d", EVEN)["b"] > one.estimate("d", EVEN)["a"]


def test_only_differences_between_priors_count():
    means = DimensionMeans()
    found = means.estimate("d", {"a": 0.9, "b": 0.7})
    assert found["a"] - found["b"] == pytest.approx(0.2)
    assert (found["a"] + found["b"]) / 2 == pytest.approx(0.5)


def test_a_hard_dimension_does_not_make_its_usual_model_look_weak():
    means = DimensionMeans()
    for _ in range(50):
        means.add("hard", "a", 0.1)
    for _ in range(50):
        means.add("easy", "b", 0.9)
    found = means.estimate("new", EVEN)
    assert found["a"] == pytest.approx(found["b"], abs=0.08)


def test_dimension_of_is_the_coarsest_group_that_is_known():
    assert dimension_of(("", "humaneval", "coder")) == "humaneval"
    assert dimension_of(()) == ""


def test_the_policy_model_follows_the_reward_not_the_habit():
    model = SoftmaxPolicyModel(dim=0, seed=3)
    rng = np.random.default_rng(0)
    for _ in range(400):  # `a` is drawn nine times in ten and is the worse one
        drawn = "a" if rng.random() < 0.9 else "b"
        model.learn("d", None, drawn, 0.4 if drawn == "a" else 0.8, 0.9 if drawn == "a" else 0.1)
    shares = model.probabilities("d", None, ["a", "b"])
    assert shares is not None
    assert shares[1] > 0.8
    assert shares.sum() == pytest.approx(1.0)


def test_the_policy_model_has_no_opinion_before_it_saw_anything():
    model = SoftmaxPolicyModel(dim=4)
    assert model.probabilities("d", None, ["a"]) is None
    model.learn("d", np.ones(4, np.float32), "a", 1.0)
    assert model.probabilities("d", None, ["x", "y"]) is None
    assert model.probabilities("d", None, ["a", "y"]) is not None


def test_the_policy_model_is_bounded():
    model = SoftmaxPolicyModel(dim=2, keep=50)
    for i in range(200):
        model.learn(f"d{i}", np.ones(2, np.float32), f"m{i % 3}", 0.5)
    assert model.seen == 200
    assert model.width == 2 + DIMENSIONS + 1
    assert len(model._actions) == 50
