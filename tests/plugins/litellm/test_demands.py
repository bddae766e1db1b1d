"""Rows 5, 9, 14 and 15 of what users of routers ask for, through LiteLLM's SDK; test_proxy.py has them through its proxy."""

from __future__ import annotations

import asyncio
import threading

import pytest
from servers import Reply
from servers.fixtures import ollama_server
from servers.litellm_upstream import LiteLLMUpstream

from steproute import Budget, BudgetExceeded, Model, Price

from .conftest import HELLO, ONE_CALL, about, models_called

__all__ = ["ollama_server"]


async def test_row_5_ten_parallel_calls_of_a_fifth_under_a_limit_of_one(routing, llm_router):
    """Five are let through, five refused; settled at five cents each, more are let through."""
    opened = threading.Event()

    def script(body):
        assert opened.wait(60)
        return Reply(prompt_tokens=0, completion_tokens=250)

    dear = Model("dear", price=Price(input=0, output=200), max_output=1000)
    plugin = routing(models=[dear], budget=Budget(usd=1.0))
    with LiteLLMUpstream(script) as upstream:
        params = {"model": "openai/dear", "api_base": upstream.base_url, "api_key": "none"}
        router = llm_router({"model_name": "costly", "litellm_params": params, "model_info": {"id": "dear"}})

        async def one():
            return await router.acompletion(model="costly", messages=HELLO, max_tokens=1000, **about("t"))

        calls = [asyncio.create_task(one()) for _ in range(10)]
        for first_done in list(asyncio.as_completed(calls))[:5]:
            with pytest.raises(BudgetExceeded):
                await first_done
        opened.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(result, BudgetExceeded) for result in results) == 5
        await plugin.heard(5)
        assert plugin.router.spent("t")["usd"] == pytest.approx(0.25)
        await asyncio.gather(*(one() for _ in range(3)))
        await plugin.heard(8)
        assert plugin.router.spent("t")["usd"] == pytest.approx(0.40)


async def test_row_9_only_ollama_models_and_no_keys(ollama_server, routing, llm_router, monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    plugin = routing(
        "strongest", models=[Model(name, price="free", size_b=size) for name, size in (("small", 1), ("large", 70))]
    )
    listed = [
        {"model_name": "chat", "litellm_params": {"model": f"ollama_chat/{name}", "api_base": ollama_server.url}}
        for name in ("small", "large")
    ]
    answer = await llm_router(*listed).acompletion(model="chat", messages=HELLO, **about("t"))
    await plugin.heard(1)
    assert answer.choices[0].message.content == "ok"
    assert [step.model for step in plugin.router.ledger("t").steps] == ["large"]
    assert plugin.router.spent("t")["usd"] == 0.0


async def test_row_14_a_price_of_zero_is_free_and_not_unknown(server, routing, llm_router, deployment):
    plugin = routing(
        budget=Budget(usd=0.001), models=[Model("free", price=0), Model("priced", price=Price(input=1, output=2))]
    )
    router = llm_router(deployment("chat", "free"), deployment("chat", "priced"))
    answer = await router.acompletion(model="chat", messages=HELLO, max_tokens=100_000, **about("t"))
    await plugin.heard(1)
    assert answer.model == "free"
    assert plugin.router.ledger("t").steps[0].outcome.usd == 0.0


async def test_row_15_what_failed_and_what_answered_are_told_apart(server, routing, llm_router):
    plugin = routing()
    server.queue(Reply(status=500, error="broken"))
    answer = await llm_router().acompletion(model="chat", messages=HELLO, **about("t"))
    await plugin.heard(2)
    assert answer.model == "large"
    assert models_called(server) == ["small", "large"]
    assert [step.model for step in plugin.router.ledger("t").steps] == ["large"]
    assert plugin.router.spent("t")["usd"] == pytest.approx(ONE_CALL["large"])
    first, second = plugin.router.decisions("t")
    assert (first.model.name, second.model.name, second.score_of("small").cause) == (
        "small",
        "large",
        "failed at this step",
    )
