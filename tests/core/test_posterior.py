from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steproute.errors import ConfigError
from steproute.posterior import PosteriorConfig, TaskPosterior

MODELS = ("a", "b", "c", "unseen")
step = st.tuples(st.sampled_from(MODELS[:3]), st.floats(-1, 1), st.floats(0.01, 1))
config = st.builds(
    PosteriorConfig,
    difficulty_sd=st.floats(0.02, 2),
    model_sd=st.floats(0.02, 2),
    noise_sd=st.floats(0.05, 2),
)


def posterior(steps: list[tuple[str, float, float]], config: PosteriorConfig | None = None) -> TaskPosterior:
    found = TaskPosterior(config)
    for model, residual, reliability in steps:
        found.update(model, residual, reliability)
    return found


def brute_force(
    steps: list[tuple[str, float, float]], config: PosteriorConfig
) -> tuple[dict[str, tuple[float, float]], tuple[float, float]]:
    """Condition the joint Gaussian of (δ, κ…) on the residuals in the plain way: gain matrix, no structure used."""
    n = 1 + len(MODELS)
    prior = np.diag([config.difficulty_sd**2, *[config.model_sd**2] * len(MODELS)])
    design = np.zeros((len(steps), n))
    for row, (model, _, _) in zip(design, steps, strict=True):
        row[0], row[1 + MODELS.index(model)] = -1, 1
    noise = np.diag([config.noise_sd**2 / reliability for _, _, reliability in steps])
    gain = prior @ design.T @ np.linalg.inv(design @ prior @ design.T + noise)
    mean = gain @ np.array([residual for _, residual, _ in steps])
    covariance = prior - gain @ design @ prior
    shifts = {}
    for i, model in enumerate(MODELS):
        look = np.zeros(n)
        look[0], look[1 + i] = -1, 1
        shifts[model] = (float(look @ mean), float(look @ covariance @ look))
    return shifts, (float(mean[0]), float(covariance[0, 0]))


@settings(max_examples=60)
@given(steps=st.lists(step, min_size=1, max_size=12), config=config)
def test_it_is_the_conditioned_joint_gaussian(steps, config):
    found, (shifts, difficulty) = posterior(steps, config), brute_force(steps, config)
    for model in MODELS:
        assert found.shift(model) == pytest.approx(shifts[model], rel=1e-6, abs=1e-8)
    assert found.difficulty == pytest.approx(difficulty, rel=1e-6, abs=1e-8)


def test_it_is_the_product_of_prior_and_likelihood_on_a_grid():
    """Two models, three steps; the density is summed numerically over (δ, κ_a, κ_b)."""
    config = PosteriorConfig(difficulty_sd=0.3, model_sd=0.2, noise_sd=0.25)
    steps = [("a", -0.4, 1.0), ("b", 0.1, 0.5), ("a", -0.1, 0.25)]
    axis = np.linspace(-1.5, 1.5, 121)
    delta, a, b = np.meshgrid(axis, axis, axis, indexing="ij")
    log = -0.5 * ((delta / 0.3) ** 2 + (a / 0.2) ** 2 + (b / 0.2) ** 2)
    for model, residual, reliability in steps:
        log -= 0.5 * reliability * (residual + delta - (a if model == "a" else b)) ** 2 / 0.25**2
    density = np.exp(log - log.max())
    density /= density.sum()
    found = posterior(steps, config)
    for model, kappa in (("a", a), ("b", b)):
        mean = float((density * (kappa - delta)).sum())
        variance = float((density * (kappa - delta - mean) ** 2).sum())
        assert found.shift(model) == pytest.approx((mean, variance), abs=1e-4)


def test_one_step_by_hand():
    """s_δ = s_κ = σ = 1, residual −1: Var δ = 1/(1 + 1/2) = 2/3, E[−δ] = −1/3, E[−δ + κ] = (−1/3 − 1)/2 = −2/3."""
    found = posterior([("a", -1.0, 1.0)], PosteriorConfig(difficulty_sd=1, model_sd=1, noise_sd=1))
    assert found.difficulty == pytest.approx((1 / 3, 2 / 3))
    assert found.shift("a") == pytest.approx((-2 / 3, 1 / 2 + 1 / 6))
    assert found.shift("other") == pytest.approx((-1 / 3, 1 + 2 / 3))


def test_one_weak_step_says_harder_to_all_and_worse_to_one():
    found = posterior([("a", -0.6, 1.0)])
    assert found.difficulty[0] > 0
    assert found.shift("a")[0] < found.shift("b")[0] < 0
    assert found.shift("b") == found.shift("never heard of")


def test_a_task_hard_for_all_is_told_from_a_model_that_is_weak_here():
    hard = posterior([("a", -0.6, 1.0), ("b", -0.6, 1.0)])
    weak = posterior([("a", -0.6, 1.0), ("b", 0.0, 1.0)])
    assert hard.shift("c")[0] < weak.shift("c")[0] < 0
    assert hard.shift("a")[0] < weak.shift("a")[0] < weak.shift("b")[0]


@given(steps=st.lists(step, max_size=8), data=st.data())
def test_the_order_of_steps_does_not_matter(steps, data):
    shuffled = data.draw(st.permutations(steps))
    first, second = posterior(steps), posterior(shuffled)
    for model in MODELS:
        assert first.shift(model) == pytest.approx(second.shift(model), rel=1e-9, abs=1e-12)


@given(steps=st.lists(step, max_size=6), more=step)
def test_a_step_narrows_every_spread_and_an_unreliable_one_changes_nothing(steps, more):
    found = posterior(steps)
    before = {model: found.shift(model) for model in MODELS}
    found.update(more[0], more[1], 0.0)
    assert {model: found.shift(model) for model in MODELS} == before
    found.update(*more)
    for model in MODELS:
        assert found.shift(model)[1] <= before[model][1] + 1e-12
    assert found.shift(more[0])[1] < before[more[0]][1]


@given(residual=st.floats(-1, 1), low=st.floats(0.01, 1), high=st.floats(0.01, 1))
def test_reliable_evidence_moves_more(residual, low, high):
    low, high = sorted((low, high))
    weak, strong = posterior([("a", residual, low)]), posterior([("a", residual, high)])
    for model in ("a", "b"):
        assert abs(weak.shift(model)[0]) <= abs(strong.shift(model)[0]) + 1e-12


def test_half_reliable_twice_is_reliable_once():
    assert posterior([("a", 0.3, 0.5)] * 2).shift("b") == pytest.approx(posterior([("a", 0.3, 1.0)]).shift("b"))


@given(steps=st.lists(step, max_size=6), config=config)
def test_it_round_trips_through_json(steps, config):
    found = posterior(steps, config)
    back = TaskPosterior.from_json(found.to_json(), config)
    assert [back.shift(model) for model in MODELS] == [found.shift(model) for model in MODELS]
    assert back.state() == found.state() == json.loads(found.to_json())
    assert len(back) == len({model for model, _, _ in steps})


def test_a_spread_of_nought_switches_a_part_off():
    no_models = posterior([("a", -0.5, 1.0)], PosteriorConfig(model_sd=0))
    assert no_models.shift("a") == pytest.approx(no_models.shift("b"))
    no_difficulty = posterior([("a", -0.5, 1.0)], PosteriorConfig(difficulty_sd=0))
    assert no_difficulty.shift("b") == (0.0, pytest.approx(0.04))
    assert no_difficulty.shift("a")[0] < 0


def test_noise_of_one_residual():
    found = TaskPosterior(PosteriorConfig(noise_sd=1))
    found.update("a", 0.5, 1.0, noise_sd=0.1)
    assert found.shift("a") == pytest.approx(posterior([("a", 0.5, 1.0)], PosteriorConfig(noise_sd=0.1)).shift("a"))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("a", float("nan"), 1.0), "residual: seen nan"),
        (("a", 0.0, float("nan")), "reliability: seen nan"),
        (("a", 0.0, 1.5), "reliability: seen 1.5"),
        (("a", 0.0, -0.1), "reliability: seen -0.1"),
        (("a", 0.0, 1.0, 0.0), "noise_sd: seen 0.0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_and_change_nothing(arguments, field):
    found = TaskPosterior()
    with pytest.raises(ValueError, match=field):
        found.update(*arguments)
    assert len(found) == 0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "no JSON"),
        ("[]", "version: seen None"),
        ('{"version": 2, "models": {}}', "version: seen 2; allowed: 1"),
        ('{"version": 1}', "models"),
        ('{"version": 1, "models": {"a": [1]}}', "models"),
        ('{"version": 1, "models": {"a": [-1, 0]}}', "allowed: a weight of 0 or more"),
        ('{"version": 1, "models": {"a": [1, NaN]}}', "allowed: a weight of 0 or more"),
        ('{"version": 1, "models": {"a": ["x", 0]}}', "models"),
    ],
)
def test_a_broken_state_is_refused(text, error):
    with pytest.raises(ConfigError, match=error):
        TaskPosterior.from_json(text)


def test_a_typo_in_the_settings_is_named():
    with pytest.raises(ConfigError, match="PosteriorConfig: noise: unknown name 'noise'; did you mean 'noise_sd'"):
        PosteriorConfig(noise=1)  # type: ignore[call-arg]
