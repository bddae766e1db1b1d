from __future__ import annotations

from doubles import FakeClock

from steproute.health import Health


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
