"""Cost is right where LiteLLM's is not."""

from __future__ import annotations

import pytest
from servers.fixtures import ollama_server

from steproute import Model, Price
from steproute.plugins.litellm.prices import price_of
from steproute.plugins.litellm.replies import outcome_of

from .conftest import HELLO, LARGE, SMALL, about

__all__ = ["ollama_server"]


async def one_call(plugin, router, group="chat", **more):
    await router.acompletion(model=group, messages=HELLO, **about("t"), **more)
    await plugin.heard(1)
    return plugin.router.ledger("t").steps[0].outcome


async def test_an_explicit_price_of_zero_is_free(server, routing, llm_router, deployment):
    plugin = routing(models=[LARGE])
    router = llm_router(deployment("chat", "gratis", input_cost_per_token=0, output_cost_per_token=0))
    outcome = await one_call(plugin, router)
    assert plugin.router.pool["openai/gratis"].price == Price(input=0, output=0)
    assert outcome.usd == 0.0


async def test_a_model_litellm_does_not_know_costs_what_the_pool_says(server, routing, llm_router, deployment):
    plugin = routing(models=[Model("house-model", price=Price(input=5, output=7))])
    outcome = await one_call(plugin, llm_router(deployment("chat", "house-model")))
    assert outcome.usd == pytest.approx((11 * 5 + 17 * 7) / 1e6)


async def test_prices_in_model_info_are_used(server, routing, llm_router, deployment):
    plugin = routing(models=[SMALL])
    info = {"input_cost_per_token": 3e-6, "output_cost_per_token": 9e-6}
    outcome = await one_call(plugin, llm_router(deployment("chat", "own", info)))
    assert outcome.usd == pytest.approx((11 * 3 + 17 * 9) / 1e6)


async def test_a_model_on_litellms_list_costs_what_the_list_says(server, routing, llm_router, deployment):
    import litellm

    plugin = routing(models=[SMALL])
    outcome = await one_call(plugin, llm_router(deployment("chat", "gpt-4o-mini")))
    listed = litellm.model_cost["gpt-4o-mini"]
    expected = 11 * listed["input_cost_per_token"] + 17 * listed["output_cost_per_token"]
    assert outcome.usd == pytest.approx(expected)
    assert expected > 0


async def test_a_model_without_any_price_is_unknown_and_not_free(server, routing, llm_router, deployment):
    plugin = routing(models=[SMALL])
    outcome = await one_call(plugin, llm_router(deployment("chat", "secret")))
    assert plugin.router.pool["openai/secret"].price == "unknown"
    assert outcome.usd is None


async def test_ollama_costs_what_the_pool_says_or_nothing(ollama_server, routing, llm_router, monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    own = {"model_name": "chat", "litellm_params": {"model": "ollama_chat/small", "api_base": ollama_server.url}}
    priced = routing(models=[Model("electricity", deployment="ollama_chat/small", price=Price(input=0.1, output=0.3))])
    outcome = await one_call(priced, llm_router(own))
    assert outcome.usd == pytest.approx((11 * 0.1 + 17 * 0.3) / 1e6)
    free = routing(models=[LARGE])
    outcome = await one_call(free, llm_router(own))
    assert free.router.pool["ollama_chat/small"].price == Price(input=0, output=0)
    assert outcome.usd == 0.0


def test_hosted_ollama_is_not_taken_for_free():
    params = {"model": "ollama_chat/big", "api_base": "https://ollama.com"}
    assert price_of({"litellm_params": params, "model_info": {}}) == "unknown"


async def test_an_answer_of_litellms_cache_costs_nothing(server, routing, llm_router):
    import litellm

    pytest.importorskip("fastapi")  # LiteLLM's cache needs it
    plugin = routing()
    router = llm_router(cache_responses=True)
    try:
        for number in (1, 2):
            await router.acompletion(model="chat", messages=HELLO, temperature=0, **about("t"))
            await plugin.heard(number)
    finally:
        litellm.cache = None
    assert len(server.calls) == 1
    assert [step.outcome.usd for step in plugin.router.ledger("t").steps] == [pytest.approx(45e-6), 0.0]


async def test_cached_prompt_tokens_cost_their_own_price(server, routing, llm_router):
    from servers import Reply

    plugin = routing(models=[Model("small", price=Price(input=1, output=2, cached_input=0.1)), LARGE])
    server.queue(Reply(cached_tokens=10))
    outcome = await one_call(plugin, llm_router())
    assert outcome.cached_tokens == 10
    assert outcome.usd == pytest.approx((1 * 1 + 10 * 0.1 + 17 * 2) / 1e6)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 30, "cache_creation_tokens": 50}},
        {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 30}, "cache_creation_input_tokens": 50},
        {"input_tokens": 20, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 50},
    ],
)
def test_prompt_tokens_written_to_a_cache_cost_their_own_price(usage):
    event = {"call_type": "acompletion"}
    seen = outcome_of(event, {"usage": usage}, None, None, use_cost=False, call_id="1", model="m")
    assert (seen.prompt_tokens, seen.cached_tokens, seen.written_tokens) == (100, 30, 50)
    price = price_of(
        {
            "litellm_params": {
                "model": "x/y",
                "input_cost_per_token": 1e-6,
                "output_cost_per_token": 2e-6,
                "cache_read_input_token_cost": 1e-7,
                "cache_creation_input_token_cost": 1.25e-6,
            }
        }
    )
    assert price.usd(100, 0, 30, 50) == pytest.approx((20 + 3 + 62.5) / 1e6)


@pytest.mark.parametrize("kind", ["aimage_generation", "aspeech", "atranscription", "arerank"])
def test_kinds_of_call_without_tokens_cost_what_litellm_says(kind):
    event = {"call_type": kind, "response_cost": 0.04}
    assert outcome_of(event, object(), None, None, use_cost=False, call_id="1", model="m").usd == 0.04


def test_litellms_cost_of_tokens_counts_only_where_the_pool_has_no_price():
    event = {"call_type": "acompletion", "response_cost": 0.04}
    assert outcome_of(event, object(), None, None, use_cost=False, call_id="1", model="m").usd is None
    assert outcome_of(event, object(), None, None, use_cost=True, call_id="1", model="m").usd == 0.04
    assert (
        outcome_of({**event, "response_cost": 0.0}, object(), None, None, use_cost=True, call_id="1", model="m").usd
        is None
    )
