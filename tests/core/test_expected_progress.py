"""Transition progress: a pass that may be wrong is worth less than a pass, and a source that lies less is believed more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute import Evidence, Ledger, Model, Outcome, Router, Task
from steproute.policies.pacer import Pacer
from steproute.progress import Regime, expected_progress, score

UNIT = st.floats(0, 1)


def test_by_hand() -> None:
    complete = score(Regime.COMPLETE, 1, 1, 1)
    assert expected_progress(complete, 1.0) == 1
    assert expected_progress(complete, 0.6) == pytest.approx(0.6 + 0.4 * 0.5)
    partial = score(Regime.PARTIAL, 0.5, 0, 0)  # g = .5 + .34 * .5 = .67
    assert expected_progress(partial, 0.0) == pytest.approx(0.67)
    assert expected_progress(partial, 0.1) == pytest.approx(0.1 + 0.9 * 0.67)
    with pytest.raises(ValueError, match=r"seen 1\.5"):
        expected_progress(partial, 1.5)


@given(st.sampled_from(Regime), UNIT, st.floats(-1, 1), UNIT, UNIT, UNIT)
def test_a_probability_rises_with_belief_and_stays_one(
    regime: Regime, r: float, d: float, e: float, p: float, q: float
):
    state = score(regime, r, d, e)
    low, high = sorted((p, q))
    assert 0 <= expected_progress(state, low) <= expected_progress(state, high) + 1e-12 <= 1 + 1e-9


def teach(router: Router, right: bool, n: int, prefix: str) -> None:
    for i in range(n):
        ledger = Ledger(task=Task(id=f"{prefix}{i}", domain="code"))
        decision = router.decide(ledger, "coder", prompt_tokens=100)
        passed = [Evidence(source="examples", score=1.0, count=2)]
        router.observe(
            decision, Outcome(prompt_tokens=100, completion_tokens=50, seconds=1, evidence=passed), output=f"{i}"
        )
        router.finish(ledger.task.id, success=right)


def remaining_after_a_pass(router: Router) -> float:
    ledger = Ledger(task=Task(id="judged", domain="code"))
    decision = router.decide(ledger, "coder", prompt_tokens=100)
    passed = [Evidence(source="examples", score=1.0, count=2)]
    router.observe(decision, Outcome(prompt_tokens=100, completion_tokens=50, seconds=1, evidence=passed), output="x")
    assert router.progress("judged").regime is Regime.COMPLETE
    after = router.decide(ledger, "fixer", prompt_tokens=100)
    gain = after.candidates[0].gain
    router.finish("judged")
    assert gain is not None
    return gain


def test_passes_that_prove_wrong_leave_more_to_be_gained() -> None:
    models = [Model("a", price="free"), Model("b", price="free")]
    honest, lying = Router(models, policy=Pacer(), seed=0), Router(models, policy=Pacer(), seed=0)
    teach(honest, True, 60, "h")
    teach(lying, False, 60, "l")
    assert remaining_after_a_pass(lying) > 2 * remaining_after_a_pass(honest) > 0
