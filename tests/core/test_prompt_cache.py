"""What is expected of prompt caches: TTL, shortest prompt, prefix kept or lost, and what providers really keep."""

from __future__ import annotations

import pytest
from doubles import FakeClock, Wants, router

from steproute import Model, Outcome, Price
from steproute.prompt_cache import PromptCaches

CACHING = Model("a", price=Price(input=3, output=15, cached_input=0.3, cache_write=3.75, cache_ttl_s=300))
PLAIN = Model("b", price=Price(input=1, output=5))


def served(caches: PromptCaches, tokens: int, cached: int = 0, model: Model = CACHING) -> None:
    caches.note("t", "coder", model, tokens, Outcome(prompt_tokens=tokens, cached_tokens=cached))


def test_a_growing_prompt_is_cached_until_its_time_is_over():
    clock = FakeClock()
    caches = PromptCaches(clock)
    assert caches.expected("t", "coder", CACHING, 2000) == 0
    served(caches, 2000)
    assert caches.expected("t", "coder", CACHING, 2600) == 2000
    assert caches.expected("t", "tester", CACHING, 2600) == 0
    assert caches.expected("other", "coder", CACHING, 2600) == 0
    clock.tick(300)
    assert caches.expected("t", "coder", CACHING, 2600) == 2000
    clock.tick(1)
    assert caches.expected("t", "coder", CACHING, 2600) == 0


def test_short_prompts_and_models_without_a_cache():
    caches = PromptCaches(FakeClock())
    served(caches, 1023)
    assert caches.expected("t", "coder", CACHING, 2000) == 0
    served(caches, 2000, model=PLAIN)
    assert caches.expected("t", "coder", PLAIN, 2600) == 0
    assert caches.expected("t", "coder", Model("u", price="unknown"), 2600) == 0


def test_a_prefix_that_was_cut_is_lost():
    caches = PromptCaches(FakeClock())
    served(caches, 8000)
    assert caches.expected("t", "coder", CACHING, 3000) == 0
    served(caches, 3000)
    assert caches.expected("t", "coder", CACHING, 9000) == 3000


def test_a_call_by_another_model_leaves_the_prefix_where_it_was():
    caches = PromptCaches(FakeClock())
    served(caches, 2000)
    served(caches, 4000, model=PLAIN)
    assert caches.expected("t", "coder", CACHING, 5000) == 2000


def test_a_cache_that_never_hits_is_not_counted_on():
    caches = PromptCaches(FakeClock())
    for tokens in range(2000, 40_000, 1000):
        served(caches, tokens)
    assert caches.hit_rate("a") < 0.1
    for tokens in range(40_000, 80_000, 1000):
        served(caches, tokens, cached=tokens - 1000)
    assert caches.hit_rate("a") > 0.9


def test_a_failed_call_caches_nothing():
    caches = PromptCaches(FakeClock())
    caches.note("t", "coder", CACHING, 2000, Outcome(error="HTTP 500"))
    assert caches.expected("t", "coder", CACHING, 2600) == 0


def test_the_router_prices_what_a_switch_gives_up_and_the_host_may_know_better():
    steps = router([CACHING, PLAIN], policy=Wants({"a": 1}))
    first = steps.decide("t", "coder", step="1", prompt_tokens=10_000)
    fresh = first.score_of("a").cost["usd"]
    assert fresh == pytest.approx((10_000 * 3.75 + 256 * 15) / 1e6)
    steps.observe(first, Outcome(prompt_tokens=10_000, written_tokens=10_000, completion_tokens=256))
    assert steps.spent("t")["usd"] == pytest.approx(fresh)
    again = steps.decide("t", "coder", step="2", prompt_tokens=11_000)
    assert again.score_of("a").cost["usd"] == pytest.approx((10_000 * 0.3 + 1000 * 3.75 + 256 * 15) / 1e6)
    assert again.score_of("b").cost["usd"] == pytest.approx((11_000 * 1 + 256 * 5) / 1e6)
    told = steps.decide("t", "coder", step="3", prompt_tokens=11_000, cached_tokens={"a": 11_000})
    assert told.score_of("a").cost["usd"] == pytest.approx((11_000 * 0.3 + 256 * 15) / 1e6)
    steps.finish("t")
    assert steps.decide("t", "coder", step="4", prompt_tokens=11_000).score_of("a").cost["usd"] == pytest.approx(
        (11_000 * 3.75 + 256 * 15) / 1e6
    )


def test_the_worst_case_finds_nothing_in_the_cache():
    steps = router([CACHING], policy=Wants({"a": 1}))
    steps.decide("t", step="1", prompt_tokens=10_000, max_tokens=100, cached_tokens={"a": 9000})
    worst = steps._tasks.get("t").made["1", 1].context.candidates[0].worst["usd"]
    assert worst == pytest.approx((10_000 * 3.75 + 100 * 15) / 1e6)


def test_a_price_by_hand():
    price = CACHING.price
    assert price != "unknown"
    assert price.usd(10_000, 500, 6_000, 3_000) == pytest.approx(
        (1_000 * 3 + 6_000 * 0.3 + 3_000 * 3.75 + 500 * 15) / 1e6
    )
    assert price.usd(100, 0, 500, 500) == pytest.approx(100 * 0.3 / 1e6)
