"""A profile that is not right any more is noticed, said, and made up for."""

from __future__ import annotations

import logging
import random

import pytest

from steproute import Model, Outcome, Profile
from steproute.drift import Drift
from steproute.forecast import CostForecast

PROFILE = Profile(
    prefill_tokens_per_s=1000, decode_tokens_per_s=50, prefill_j_per_token=0.1, decode_j_per_token=2, source="fitted"
)
MODEL = Model("m", price="free", profile=PROFILE)


def outcome(factor: float = 1.0, joules: float = 1.0, **more: object) -> Outcome:
    return Outcome(
        prompt_tokens=1000,
        completion_tokens=100,
        seconds=factor * PROFILE.seconds(1000, 100),
        energy_j=joules * (PROFILE.energy_j(1000, 100) or 0),
        energy_source="meter",
        **more,  # type: ignore[arg-type]
    )


def test_noise_around_the_profile_is_no_drift():
    rng = random.Random(0)
    drift = Drift()
    for _ in range(5000):
        drift.note(MODEL, outcome(rng.lognormvariate(0, 0.12), rng.lognormvariate(0, 0.12)))
    assert drift.found == {}


def test_one_cold_load_is_no_drift():
    drift = Drift()
    for i in range(100):
        drift.note(MODEL, outcome(20 if i % 20 == 0 else 1))
    assert drift.found == {}


@pytest.mark.parametrize("factor", [0.5, 0.7, 1.5, 2.0, 4.0])
def test_a_factor_is_found_within_a_few_calls(factor, caplog):
    rng = random.Random(1)
    drift = Drift()
    for _ in range(50):
        drift.note(MODEL, outcome(rng.lognormvariate(0, 0.1)))
    calls = 0
    with caplog.at_level(logging.WARNING):
        while ("m", "seconds") not in drift.found:
            drift.note(MODEL, outcome(factor * rng.lognormvariate(0, 0.1)))
            calls += 1
            assert calls <= 15
    assert drift.found["m", "seconds"] == pytest.approx(factor, rel=0.3)
    assert ("m", "energy_j") not in drift.found
    assert "the profile of m has drifted" in caplog.text


def test_forecasts_follow_and_a_new_profile_starts_anew():
    forecast = CostForecast(100)
    before, _ = forecast.predict(MODEL, "", 1000, 100)
    for _ in range(12):
        forecast.learn(MODEL, "", outcome(2.0, 3.0))
    after, worst = forecast.predict(MODEL, "", 1000, 100)
    assert after["seconds"] == pytest.approx(2 * before["seconds"], rel=1e-6)
    assert after["energy_j"] == pytest.approx(3 * before["energy_j"], rel=1e-6)
    assert worst["seconds"] >= after["seconds"]
    fitted = MODEL.model_copy(update={"profile": PROFILE.model_copy(update={"decode_tokens_per_s": 25.0})})
    forecast.learn(fitted, "", outcome())
    assert forecast.drift.found == {}


def test_it_comes_back():
    drift = Drift()
    for _ in range(10):
        drift.note(MODEL, outcome(2.0))
    assert drift.found["m", "seconds"] == pytest.approx(2.0)
    for _ in range(20):
        drift.note(MODEL, outcome(1.0))
    assert drift.found == {}


def test_a_stated_profile_is_not_watched():
    stated = MODEL.model_copy(update={"profile": PROFILE.model_copy(update={"source": ""})})
    drift = Drift()
    for _ in range(30):
        drift.note(stated, outcome(3.0))
    assert drift.found == {}


def test_estimates_say_nothing():
    drift = Drift()
    for _ in range(30):
        drift.note(
            MODEL, Outcome(prompt_tokens=1000, completion_tokens=100, energy_j=9e9, energy_source="estimate from x")
        )
        drift.note(MODEL, outcome(3.0, 3.0, tokens_estimated=True))
        drift.note(MODEL, Outcome(prompt_tokens=5, seconds=99))
    assert drift.found == {}


def test_a_state_goes_on_where_it_was():
    one, other = Drift(), Drift()
    for _ in range(3):
        one.note(MODEL, outcome(2.0, 3.0))
    other.load(one.state(), [MODEL])
    for drift in (one, other):
        for _ in range(4):
            drift.note(MODEL, outcome(2.0, 3.0))
    assert one.found == other.found
    assert set(one.found) == {("m", "seconds"), ("m", "energy_j")}
    assert one.state() == other.state()
