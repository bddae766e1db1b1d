"""A call that was decided and then given up leaves no trace but what it cost."""

from __future__ import annotations

import pytest

from steproute import Budget, BudgetExceeded, Model, Price, Router

MODELS = [Model("a", price=Price(input=0, output=1000), max_output=100)]  # at most 0.1 USD a call


def test_its_room_is_free_again_and_its_model_no_longer_busy() -> None:
    router = Router(MODELS, Budget(usd=0.15), on_error="raise")
    decision = router.decide("t", step="0", prompt_tokens=1)
    assert router.fleet.in_flight("a") == 1
    with pytest.raises(BudgetExceeded):
        router.decide("t", step="1", prompt_tokens=1)
    router.withdraw(decision)
    assert router.fleet.in_flight("a") == 0
    assert router.spent("t").get("usd", 0) == 0
    router.decide("t", step="1", prompt_tokens=1)


def test_what_it_cost_all_the_same_is_billed_and_teaches_nothing() -> None:
    router = Router(MODELS, Budget(usd=1), on_error="raise")
    router.withdraw(router.decide("t", prompt_tokens=1), {"usd": 0.03})
    assert router.spent("t")["usd"] == pytest.approx(0.03)
    assert router.accounts.spending("t").reserved["usd"] == 0
    assert router.ledger("t").steps == []  # type: ignore[union-attr]


def test_an_earlier_decision_of_the_step_does_not_end_the_running_call() -> None:
    router = Router([*MODELS, Model("b", price=Price(input=0, output=1), max_output=100)], on_error="raise")
    first = router.decide("t", step="0", pin="a")
    router.decide("t", step="0", pin="b", exclude=["a"])
    router.withdraw(first)
    assert router.fleet.in_flight("b") == 1
