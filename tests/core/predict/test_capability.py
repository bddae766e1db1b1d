"""The capability model against dense linear algebra, and what makes it more than a table of means."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steproute.errors import ConfigError
from steproute.predict.capability import CapabilityConfig, CapabilityModel

FIXED = CapabilityConfig(noise=0.2, noise_strength=1e12, root_sd=0.3, level_sd=0.5)
"""Noise that stays as stated, so that everything is linear."""


def dense(seen: list[tuple[int, float, float]], n: int, base: float) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of v = base + level + θ by brute force over (level, θ_1 … θ_n): mean, and variance given the level."""
    prior = np.diag([FIXED.level_sd**2] + [FIXED.root_sd**2] * n)
    precision, product = np.linalg.inv(prior), np.zeros(n + 1)
    for model, z, weight in seen:
        row = np.zeros(n + 1)
        row[[0, model + 1]] = 1.0
        precision += weight / FIXED.noise * np.outer(row, row)
        product += weight / FIXED.noise * row * (z - base)
    mean = np.linalg.solve(precision, product)
    known_level = np.linalg.inv(precision[1:, 1:])
    return base + mean[0] + mean[1:], np.diag(known_level)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(-1, 1), st.floats(0.05, 1)), max_size=25),
    st.floats(0, 1),
)
def test_one_level_is_exact(seen: list[tuple[int, float, float]], base: float) -> None:
    model = CapabilityModel(FIXED)
    for name in "abcd":
        model.add(name, base)
    for index, z, weight in seen:
        model.observe((), "abcd"[index], z, weight)
    found = model.estimate((), "abcd")
    mean, variance = dense(seen, 4, base)
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)
    np.testing.assert_allclose(found.variance, variance, atol=1e-9)


def test_shrinkage_by_hand() -> None:
    """One model, one group, a level that is known: n observations against k of the parent's opinion."""
    model = CapabilityModel(CapabilityConfig(root_sd=1e-6, level_sd=1e-6, strength=4, noise=0.2, noise_strength=1e12))
    model.add("a", 0.5)
    for _ in range(6):
        model.observe(("d",), "a", 1.0)
    found = model.estimate(("d",), ["a"])
    assert found.mean[0] == pytest.approx((4 * 0.5 + 6 * 1.0) / 10)
    assert found.variance[0] == pytest.approx(0.2 / 10)
    assert found.noise == pytest.approx(0.2)


def test_a_hard_group_does_not_make_its_usual_model_look_weak() -> None:
    model = CapabilityModel()
    for _ in range(50):
        model.observe(("hard",), "good", 0.2)
        model.observe(("easy",), "poor", 0.7)
    for _ in range(5):
        model.observe(("hard",), "poor", 0.0)
        model.observe(("easy",), "good", 0.95)
    # raw means would say .27 against .64
    new = model.estimate(("new",), ["good", "poor"])
    assert new.mean[0] > new.mean[1]


def test_children_share_with_their_siblings_and_override_them_with_data() -> None:
    model = CapabilityModel()
    for source in ("s1", "s2", "s3"):
        for _ in range(40):
            model.observe(("d", source), "a", 0.9)
            model.observe(("d", source), "b", 0.3)
    unseen = model.estimate(("d", "s9"), ["a", "b"])
    assert unseen.mean[0] - unseen.mean[1] > 0.3
    for _ in range(60):
        model.observe(("d", "s9"), "a", 0.1)
        model.observe(("d", "s9"), "b", 0.8)
    seen = model.estimate(("d", "s9"), ["a", "b"])
    assert seen.mean[1] - seen.mean[0] > 0.4
    assert np.less(seen.variance, unseen.variance).all()
    np.testing.assert_allclose(model.estimate(("d", "s9", ""), ["a", "b"]).mean, seen.mean)


def test_a_group_without_noise_says_nothing_about_models_not_tried() -> None:
    model = CapabilityModel()
    for name in ("a", "b"):
        model.add(name)
    for _ in range(50):
        model.observe(("d",), "a", 0.3)
    found = model.estimate(("d",), ["a", "b"])
    assert found.variance[0] < 1e-4
    assert found.variance[1] >= 0.01


def test_noise_is_learnt_per_group() -> None:
    rng, model = np.random.default_rng(0), CapabilityModel()
    for _ in range(300):
        model.observe(("quiet",), "a", float(0.5 + 0.05 * rng.standard_normal()))
        model.observe(("coin",), "a", float(rng.random() < 0.5))
    assert model.estimate(("quiet",), ["a"]).noise < 0.01
    assert model.estimate(("coin",), ["a"]).noise == pytest.approx(0.25, abs=0.02)


def test_unreliable_observations_count_less() -> None:
    sure, unsure = CapabilityModel(FIXED), CapabilityModel(FIXED)
    for model, weight in ((sure, 1.0), (unsure, 0.1)):
        model.add("b")
        for _ in range(5):
            model.observe(("d",), "a", 1.0, weight)
    gaps = [np.subtract(*model.estimate(("d",), ["a", "b"]).mean) for model in (sure, unsure)]
    assert gaps[0] > gaps[1] > 0


def test_a_published_mean_is_believed_until_data_say_otherwise() -> None:
    model = CapabilityModel()
    model.set_prior(("d",), {"a": 0.9, "b": 0.5, "c": 0.5})
    before = model.estimate(("d",), "abc")
    np.testing.assert_allclose(before.mean, [0.9, 0.5, 0.5])
    for number in range(400):
        model.observe(("d",), "a", 0.6 * (number % 2))
        model.observe(("d",), "c", float(number % 2))
    after = model.estimate(("d",), "abc")
    lost = np.subtract(before.mean, after.mean)
    assert 0 < lost[1] < lost[0] / 2  # b was not tried: what a lost lowers it by less than half as much
    assert after.mean[2] == pytest.approx(0.5, abs=0.05)
    # the published group tells nothing to others
    np.testing.assert_allclose(*model.estimate(("e",), ["a", "b"]).mean)


def test_tasks_seen_in_full_tell_models_apart_better() -> None:
    """Common difficulty of a task cancels between its models."""
    rng = np.random.default_rng(1)
    full, single = CapabilityModel(), CapabilityModel()
    for _ in range(40):
        difficulty = 0.4 * rng.standard_normal()
        gains = {"a": 0.5 + difficulty, "b": 0.4 + difficulty}
        gains = {name: float(value + 0.02 * rng.standard_normal()) for name, value in gains.items()}
        full.observe_all(("d",), gains)
        for name, value in gains.items():
            single.observe(("d",), name, value)
    paired, plain = (model.estimate(("d",), ["a", "b"]) for model in (full, single))
    assert paired.mean[0] - paired.mean[1] == pytest.approx(0.1, abs=0.02)
    assert np.less(paired.variance, 0.5 * np.array(plain.variance)).all()
    assert paired.noise == pytest.approx(plain.noise, rel=0.2)


def test_models_come_and_go() -> None:
    model = CapabilityModel()
    for _ in range(30):
        model.observe(("d",), "a", 0.9)
        model.observe(("d",), "b", 0.1)
    model.forget("a")
    assert model.models == ["b"]
    model.add("c", prior=0.5)
    model.observe(("d",), "a", 0.2)
    fresh = model.estimate(("d",), ["a", "b", "c"])
    assert fresh.variance[0] > fresh.variance[1]
    assert fresh.mean[0] < 0.6  # nothing is left of the first a
    model.forget("nobody")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([(), ("d",), ("d", "s"), ("e",)]), st.sampled_from("abc"), st.floats(-1, 1)),
        max_size=30,
    )
)
def test_state_round_trips_through_json(seen: list[tuple[tuple[str, ...], str, float]]) -> None:
    model = CapabilityModel()
    model.set_prior(("e",), {"a": 0.3})
    for name in "abc":
        model.add(name)
    for group, name, z in seen:
        model.observe(group, name, z)
    copy = CapabilityModel()
    copy.load(json.loads(json.dumps(model.state())))
    for again in (model, copy):
        again.observe(("d", "s"), "b", 0.4)
    for group in ((), ("d",), ("d", "s"), ("e",), ("f", "g")):
        one, other = model.estimate(group, "abc"), copy.estimate(group, "abc")
        np.testing.assert_allclose(one.mean, other.mean, atol=1e-9)
        np.testing.assert_allclose(one.variance, other.variance, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 7}, "version 7; allowed: 1"),
        ({"nodes": []}, "the root group is missing"),
        ({"models": ["a", "b"]}, "allowed: 2 finite numbers"),
    ],
)
def test_states_that_do_not_fit_are_refused(change: dict[str, object], message: str) -> None:
    model = CapabilityModel()
    model.observe(("d",), "a", 0.5)
    with pytest.raises(ConfigError, match=message):
        CapabilityModel().load({**model.state(), **change})


def test_impossible_priors_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"prior of 'a' in 'd': seen 3; allowed: -1 to 1"):
        CapabilityModel().set_prior(("d",), {"a": 3})
    with pytest.raises(ConfigError, match="prior strength: seen 0"):
        CapabilityModel().set_prior(("d",), {"a": 0.3}, strength=0)
    with pytest.raises(ConfigError, match="strenght"):
        CapabilityConfig(strenght=3)


def test_numbers_of_numpy_become_plain_ones() -> None:
    model = CapabilityModel()
    model.add("a", np.float32(0.25))
    model.set_prior(("d",), {"a": np.float32(0.5)})
    state = json.loads(json.dumps(model.state()))
    assert (state["base"], state["nodes"][1]["prior"]) == ([0.25], [0.5])
