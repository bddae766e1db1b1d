"""What a switch costs: another model reads the whole prompt at the uncached price."""

from __future__ import annotations

import pytest

from steproute import Model, Price, Profile, Router
from steproute.forecast import CostForecast

CACHING = Model("caching", price=Price(input=10, output=20, cached_input=1), max_output=100)


def test_a_cached_prefix_is_expected_at_its_price_and_feared_at_the_full_one() -> None:
    forecast = CostForecast(completion_tokens=10)
    cost, worst = forecast.predict(CACHING, "", 1000, None, cached_tokens=900)
    assert cost["usd"] == pytest.approx((100 * 10 + 900 * 1 + 10 * 20) / 1e6)
    assert worst["usd"] == pytest.approx((1000 * 10 + 100 * 20) / 1e6)
    assert forecast.predict(CACHING, "", 1000, None)[0]["usd"] == pytest.approx((1000 * 10 + 10 * 20) / 1e6)


def test_more_than_the_prompt_cannot_be_cached() -> None:
    assert CostForecast(0).predict(CACHING, "", 100, None, cached_tokens=500)[0]["usd"] == pytest.approx(100 * 1 / 1e6)


def test_a_cached_prefix_is_not_computed_again() -> None:
    profile = Profile(prefill_tokens_per_s=100, decode_tokens_per_s=10, prefill_j_per_token=2, decode_j_per_token=5)
    cost, _ = CostForecast(10).predict(Model("m", price="free", profile=profile), "", 1000, None, cached_tokens=900)
    assert (cost["seconds"], cost["energy_j"]) == pytest.approx((100 / 100 + 10 / 10, 100 * 2 + 10 * 5))


def test_the_model_that_served_the_conversation_may_be_cheaper_than_a_cheaper_one() -> None:
    other = Model("other", price=Price(input=5, output=10), max_output=100)
    router = Router([CACHING, other], policy="cheapest", on_error="raise")
    assert router.decide("t", step="a", prompt_tokens=10_000).model.name == "other"
    assert router.decide("t", step="b", prompt_tokens=10_000, cached_tokens={"caching": 9_900}).model.name == "caching"
