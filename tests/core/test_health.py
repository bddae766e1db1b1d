from __future__ import annotations

import pytest
from doubles import FakeClock, router

from steproute import Outcome
from steproute.health import Health, retry_after_s


def test_three_failures_in_a_row_rest_a_model_and_each_more_doubles_it():
    clock = FakeClock()
    health = Health(clock, cooldown_s=30)
    for _ in range(2):
        health.note("m", failed=True)
    assert health.rests("m") == ""
    health.note("m", failed=True)
    assert health.rests("m") == "failed 3 times in a row; rests for 30 s more"
    assert health.rests("other") == ""
    clock.tick(30)
    assert health.rests("m") == ""
    health.note("m", failed=True)
    clock.tick(59)
    assert health.rests("m") == "failed 4 times in a row; rests for 1 s more"


def test_an_answer_ends_it():
    health = Health(FakeClock())
    for failed in (True, True, False, True, True):
        health.note("m", failed)
    assert health.rests("m") == ""
    health.note("m", failed=True)
    assert health.rests("m") != ""
    health.note("m", failed=False)
    assert health.rests("m") == ""


def test_rests_have_an_end_however_many_failures():
    clock = FakeClock()
    health = Health(clock, cooldown_s=30, longest_s=600)
    for _ in range(5000):
        health.note("m", failed=True)
    clock.tick(600)
    assert health.rests("m") == ""


def test_no_cooldown_no_rest():
    health = Health(FakeClock(), cooldown_s=0)
    for _ in range(10):
        health.note("m", failed=True)
    assert health.rests("m") == ""


# --- outages and rate limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        "RateLimitError: Error code: 429 - {'error': ...}",
        "model 'm': response failed (HTTP 503): overloaded",
        "model 'm': connect failed: ConnectError: connection refused",
        "APIConnectionError: Connection error.",
        "Too Many Requests",
        "HTTP 529",
    ],
)
def test_an_outage_rests_a_model_at_once(error):
    clock = FakeClock()
    health = Health(clock, cooldown_s=30)
    health.note("m", failed=True, error=error)
    assert health.rests("m") == "is out or refuses calls; rests for 30 s more"
    clock.tick(30)
    assert health.rests("m") == ""
    health.note("m", failed=True, error=error)
    clock.tick(31)
    assert health.rests("m") == "is out or refuses calls; rests for 29 s more"


@pytest.mark.parametrize(
    "error",
    ["HTTP 500", "HTTP 400: bad request", "ValueError: no choices", "timeout failed: no answer within 9 s", "4290"],
)
def test_other_failures_are_given_three_tries(error):
    health = Health(FakeClock())
    health.note("m", failed=True, error=error)
    assert health.rests("m") == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("429: Please try again in 1.5s.", 1.5),
        ("rate limited, retry after 90", 90),
        ("429 Retry-After: 90 s", 90),
        ("429 try again in 200ms", 0.2),
        ("429 try again in 2m", 120),
        ("429", 0),
        (None, 0),
    ],
)
def test_a_wait_that_is_asked_for(text, seconds):
    assert retry_after_s(text) == pytest.approx(seconds)
    clock = FakeClock()
    health = Health(clock, cooldown_s=30, longest_s=600)
    health.note("m", failed=True, error=f"429 {text}")
    clock.tick(max(30.0, seconds) - 0.5)
    assert health.rests("m") != ""
    clock.tick(1)
    assert health.rests("m") == ""


def test_availability_falls_at_once_and_heals_with_time_and_answers():
    clock = FakeClock()
    health = Health(clock)
    assert health.availability("m") == 1.0
    health.note("m", failed=True)
    assert health.availability("m") == pytest.approx(0.8)
    health.note("m", failed=True)
    assert health.availability("m") == pytest.approx(0.64)
    clock.tick(60)
    assert health.availability("m") == pytest.approx(0.82)
    health.note("m", failed=False)
    assert health.availability("m") == pytest.approx(0.8 * 0.82 + 0.2)
    clock.tick(3600)
    assert health.availability("m") == pytest.approx(1.0)


def test_one_call_tries_a_model_that_rested_and_the_others_follow_its_answer():
    clock = FakeClock()
    steps = router(clock=clock, cooldown_s=30)
    steps.observe(steps.decide("t", step="0"), Outcome(error="HTTP 503"))
    assert steps.decide("t", step="1").score_of("a").cause == "is out or refuses calls; rests for 30 s more"
    clock.tick(30)
    first = steps.decide("t", step="2")
    second = steps.decide("t", step="3")
    assert (first.model.name, second.model.name) == ("a", "b")
    assert second.score_of("a").cause == "a first call after its rest is on its way"
    steps.observe(first, Outcome())
    assert steps.decide("t", step="4").model.name == "a"


def test_a_trial_that_nobody_reports_does_not_keep_a_model_away():
    clock = FakeClock()
    steps = router(clock=clock, cooldown_s=30)
    steps.observe(steps.decide("t", step="0"), Outcome(error="HTTP 503"))
    clock.tick(30)
    steps.decide("t", step="1")
    clock.tick(61)
    assert steps.decide("t", step="2").model.name == "a"
