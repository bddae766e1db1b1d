"""Verified calls: Weitzman's order and stopping by brute force, Bayes by hand, and what is learnt of verifiers and retries."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute.errors import ConfigError
from steproute.ledger import Evidence, Ledger, Outcome, Step
from steproute.policies.index import gittins_bonus, quick_bonus
from steproute.policies.verified import Beliefs, Rates, VerifiedCalls, after_verdict, reservation

EXACT = Rates(1 - 1e-9, 1 - 1e-9)


def test_reservation_values_by_hand() -> None:
    # exact verifier: E[(q − σ)+] = p·(1 − σ) = price, so σ = 1 − price/p
    found = reservation(np.array([0.5, 0.2]), np.array([0.1, 0.1]), EXACT)
    np.testing.assert_allclose(found, [0.8, 0.5], atol=1e-6)
    # dearer than it can bring: the price exceeds the chance itself, σ < 0
    assert reservation(np.array([0.1]), np.array([0.3]), EXACT)[0] == pytest.approx(-0.2)


@given(st.floats(0.01, 0.99), st.floats(1e-4, 0.9), st.floats(0.55, 0.99), st.floats(0.55, 0.99))
def test_reservation_solves_its_equation(chance: float, price: float, sensitivity: float, specificity: float) -> None:
    rates = Rates(sensitivity, specificity)
    sigma = float(reservation(np.array([chance]), np.array([price]), rates)[0])
    passes = chance * sensitivity + (1 - chance) * (1 - specificity)
    good, bad = after_verdict(chance, rates, True), after_verdict(chance, rates, False)
    gain = passes * max(good - sigma, 0) + (1 - passes) * max(bad - sigma, 0)
    assert gain == pytest.approx(price, abs=1e-9)


def test_after_verdict_is_bayes_rule() -> None:
    rates = Rates(0.9, 0.8)
    assert after_verdict(0.5, rates, True) == pytest.approx(0.45 / (0.45 + 0.1))
    assert after_verdict(0.5, rates, False) == pytest.approx(0.05 / (0.05 + 0.4))


def test_gittins_bonus_shrinks_with_knowledge_and_grows_with_the_horizon() -> None:
    assert gittins_bonus(0.0) == 0.0
    assert gittins_bonus(0.08) == pytest.approx(0.2)
    assert gittins_bonus(4.0) == pytest.approx(0.63 - 0.13)
    xs = np.geomspace(1e-4, 1e5, 300)
    exact = np.array([gittins_bonus(x) for x in xs])
    assert (np.diff(exact) > -0.02).all()  # monotone but for the tiny steps between the pieces
    np.testing.assert_allclose([quick_bonus(x) for x in xs], exact, atol=0.04)


def taught(flips: float = 0.1, n: int = 600) -> VerifiedCalls:
    """First calls of one model in dimension d, right half the time, under a verifier that lies."""
    rng, calls = np.random.default_rng(0), VerifiedCalls()
    for _ in range(n):
        right = bool(rng.random() < 0.5)
        verdict = right ^ bool(rng.random() < flips)
        calls.learn(None, ("d",), "a", float(right), (), verdict)
    return calls


def test_it_learns_how_often_the_verifier_lies() -> None:
    rates = taught(0.1).rates("d")
    assert rates.sensitivity == pytest.approx(0.9, abs=0.03)
    assert rates.specificity == pytest.approx(0.9, abs=0.03)
    assert taught(0.0).rates("d").specificity > 0.99
    assert taught().rates("elsewhere").sensitivity == pytest.approx(0.95)


def test_only_dimensions_of_right_or_wrong_are_verified_and_only_where_a_verifier_was_seen() -> None:
    calls = VerifiedCalls()
    for number in range(20):
        calls.learn(None, ("binary",), "a", float(number % 2), (), True)
        calls.learn(None, ("graded",), "a", 0.1 + 0.04 * number, (), False)
        calls.learn(None, ("unverified",), "a", float(number % 2), (), None)
    assert calls.applies("binary")
    assert not calls.applies("graded")
    assert not calls.applies("unverified")
    assert not calls.applies("new")


def beliefs(calls: VerifiedCalls, **base: float) -> Beliefs:
    found = Beliefs(("d",), calls.rates("d"))
    found.base.update(base)
    return found


def test_a_failure_lowers_every_model_and_a_pass_raises_them() -> None:
    calls = taught(0.0)
    for passed in (False, True):
        kept = beliefs(calls, a=0.5, b=0.5, c=0.1)
        before = calls.chances(kept, ["a", "b", "c"], [])
        np.testing.assert_allclose(before, [0.5, 0.5, 0.1])
        after = calls.chances(kept, ["b", "c"], [("a", passed)])
        # correlation .5, an exact verdict: E[δ] = ±.5 standard deviations of one outcome
        sign = 1 if passed else -1
        np.testing.assert_allclose(after, [0.5 + sign * 0.25, 0.1 + sign * 0.15], atol=0.06)
        assert (after > before[1:]).all() if passed else (after < before[1:]).all()


def test_counted_outcomes_after_failures_overrule_the_posterior() -> None:
    calls = taught(0.0)
    for _ in range(300):  # whenever a fails, b is right
        kept = beliefs(calls, a=0.5, b=0.5)
        calls.chances(kept, ["a", "b"], [])
        calls.chances(kept, ["b"], [("a", False)])
        calls.learn(kept, ("d",), "a", 0.0, [], False)
        calls.learn(kept, ("d",), "b", 1.0, [("a", False)], True)
    kept = beliefs(calls, a=0.5, b=0.5)
    calls.chances(kept, ["a", "b"], [])
    assert calls.chances(kept, ["b"], [("a", False)])[0] > 0.9
    assert calls.correlation(("d",)) < 0.1


def test_what_is_learnt_of_a_retry_is_freed_of_the_tasks_difficulty() -> None:
    calls = taught(0.0)
    kept = beliefs(calls, a=0.5, b=0.5)
    calls.chances(kept, ["a", "b"], [])
    calls.chances(kept, ["b"], [("a", False)])
    assert calls.learn(kept, ("d",), "a", 0.0, [], False) == 0.0
    adjusted = calls.learn(kept, ("d",), "b", 0.0, [("a", False)], False)
    assert adjusted == pytest.approx(0.25, abs=0.05)  # to fail on a hard task is no news


def test_verdicts_are_read_from_the_ledger() -> None:
    steps = [
        Step(model="a", outcome=Outcome(evidence=[Evidence(source="verifier", score=0.0)])),
        Step(model="b", outcome=Outcome(evidence=[Evidence(source="syntax", score=1.0)])),
        Step(model="c", outcome=Outcome(evidence=[Evidence(source="verifier", score=1.0)])),
    ]
    assert VerifiedCalls().verdicts(Ledger(steps=steps)) == [("a", False), ("c", True)]


def test_state_round_trips() -> None:
    calls = taught()
    kept = beliefs(calls, a=0.5, b=0.4)
    calls.chances(kept, ["a", "b"], [])
    calls.chances(kept, ["b"], [("a", False)])
    calls.learn(kept, ("d",), "b", 1.0, [("a", False)], True)
    copy = VerifiedCalls()
    copy.load(json.loads(json.dumps(calls.state())))
    assert copy.state() == calls.state()
    assert copy.rates("d") == calls.rates("d")
    with pytest.raises(ConfigError, match="verified state"):
        copy.load({"verdicts": {}})
