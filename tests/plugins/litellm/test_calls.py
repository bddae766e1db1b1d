"""What LiteLLM does around a call keeps working with the router's choice in it: one test each."""

from __future__ import annotations

import asyncio
from typing import Any

import litellm
import pytest
from servers import Reply

from steproute import Budget, BudgetExceeded, NoEligibleModel, Price

from .conftest import HELLO, LARGE, ONE_CALL, about, models_called


async def test_the_chosen_model_answers_and_the_router_hears_of_it(server, routing, llm_router):
    plugin = routing()
    answer = await llm_router().acompletion(model="chat", messages=HELLO, **about("t", role="coder"))
    await plugin.heard(1)
    assert answer.model == "small"
    [step] = plugin.router.ledger("t").steps
    assert (step.role, step.model, step.output) == ("coder", "small", "ok")
    assert (step.outcome.prompt_tokens, step.outcome.completion_tokens) == (11, 17)
    assert plugin.router.spent("t")["usd"] == pytest.approx(ONE_CALL["small"])


async def test_the_policy_and_not_the_price_decides(server, routing, llm_router):
    routing("strongest")
    answer = await llm_router().acompletion(model="chat", messages=HELLO, **about("t"))
    assert answer.model == "large"


async def test_a_deployment_in_cooldown_is_not_chosen(server, routing, llm_router):
    plugin = routing(cooldown_s=0)
    router = llm_router(allowed_fails=0, cooldown_time=60, num_retries=1)
    server.queue(Reply(status=429, error="slow down"))
    await router.acompletion(model="chat", messages=HELLO, **about("one"))
    answer = await router.acompletion(model="chat", messages=HELLO, **about("two"))
    await plugin.heard(3)
    assert answer.model == "large"
    assert models_called(server) == ["small", "large", "large"]
    [decision] = plugin.router.decisions("two")
    assert decision.score_of("small").cause == "excluded by the host"


@pytest.mark.parametrize(("tags", "served"), [(["paid"], "large"), (["free"], "small"), (None, "small")])
async def test_tags_are_kept(tags, served, server, routing, llm_router, deployment):
    routing("strongest" if served == "small" else "cheapest")
    router = llm_router(
        deployment("chat", "small", tags=["free", "default"]),
        deployment("chat", "large", tags=["paid"]),
        enable_tag_filtering=True,
        num_retries=0,
    )
    named = {"steproute": {"task": "t"}, **({"tags": tags} if tags else {})}
    answer = await router.acompletion(model="chat", messages=HELLO, metadata=named)
    assert answer.model == served


async def test_tags_hold_after_a_failure_too(server, routing, llm_router, deployment):
    plugin = routing()
    router = llm_router(
        deployment("chat", "small", tags=["free", "paid"]),
        deployment("chat", "large", tags=["free"]),
        deployment("chat", "other", tags=["paid"]),
        enable_tag_filtering=True,
    )
    server.queue(Reply(status=500, error="broken"))
    answer = await router.acompletion(model="chat", messages=HELLO, metadata={"tags": ["free"]})
    await plugin.heard(2)
    assert answer.model == "large"


async def test_a_fallback_group_is_routed_and_the_failures_are_booked(server, routing, llm_router, deployment):
    plugin = routing()
    router = llm_router(
        deployment("chat", "small"), deployment("spare", "large"), num_retries=0, fallbacks=[{"chat": ["spare"]}]
    )
    server.queue(Reply(status=500, error="broken"))
    answer = await router.acompletion(model="chat", messages=HELLO, **about("t"))
    await plugin.heard(2)
    assert answer.model == "large"
    assert [(d.attempt, d.model.name) for d in plugin.router.decisions("t")] == [(1, "small"), (2, "large")]
    assert plugin.router.spent("t")["usd"] == pytest.approx(ONE_CALL["large"])


async def test_an_alias_is_followed(server, routing, llm_router):
    plugin = routing("strongest")
    router = llm_router(model_group_alias={"anything": "chat"})
    answer = await router.acompletion(model="anything", messages=HELLO, **about("t"))
    await plugin.heard(1)
    assert answer.model == "large"
    assert [step.model for step in plugin.router.ledger("t").steps] == ["large"]


async def test_a_prompt_goes_only_where_it_fits(server, routing, llm_router, deployment):
    routing("cheapest")
    router = llm_router(
        deployment("chat", "small", {"max_input_tokens": 50}),
        deployment("chat", "large", {"max_input_tokens": 5000}),
        enable_pre_call_checks=True,
        num_retries=0,
    )
    long = [{"role": "user", "content": "a word " * 200}]
    assert (await router.acompletion(model="chat", messages=long, **about("t"))).model == "large"
    assert (await router.acompletion(model="chat", messages=HELLO, **about("u"))).model == "small"


@pytest.mark.parametrize("status", [500, 429])
async def test_a_retry_goes_to_another_model(status, server, routing, llm_router):
    plugin = routing()
    server.queue(Reply(status=status, error="not now", headers={"retry-after": "0"}))
    answer = await llm_router().acompletion(model="chat", messages=HELLO, **about("t"))
    await plugin.heard(2)
    assert answer.model == "large"
    assert models_called(server) == ["small", "large"]
    [step] = plugin.router.ledger("t").steps
    assert step.model == "large"
    assert [(d.step, d.attempt) for d in plugin.router.decisions("t")] == [
        (step_key(plugin, "t"), 1),
        (step_key(plugin, "t"), 2),
    ]


def step_key(plugin: Any, task: str) -> str:
    return str(plugin.router.decisions(task)[0].step)


async def test_when_every_model_has_failed_the_retry_starts_again(server, routing, llm_router):
    plugin = routing()
    server.queue(Reply(status=500, error="a"), Reply(status=500, error="b"))
    answer = await llm_router().acompletion(model="chat", messages=HELLO, **about("t"))
    await plugin.heard(3)
    assert answer.model == "small"
    assert models_called(server) == ["small", "large", "small"]
    assert plugin.router.spent("t")["usd"] == pytest.approx(ONE_CALL["small"])


async def test_a_request_the_provider_refuses_is_no_fault_of_the_model(server, routing, llm_router):
    plugin = routing(budget=Budget(usd=1.0))
    server.queue(Reply(status=400, error="bad argument"))
    with pytest.raises(litellm.BadRequestError):
        await llm_router(num_retries=0).acompletion(model="chat", messages=HELLO, **about("t"))
    await plugin.heard(1)
    assert plugin.router.accounts.spending("t").reserved.get("usd", 0) == 0
    assert plugin.router.spent("t").get("usd", 0) == 0
    assert [plugin.router.fleet.in_flight(name) for name in ("small", "large")] == [0, 0]


async def test_a_stream_is_asked_for_its_usage(server, routing, llm_router):
    plugin = routing()
    stream = await llm_router().acompletion(model="chat", messages=HELLO, stream=True, **about("t"))
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    await plugin.heard(1)
    [step] = plugin.router.ledger("t").steps
    assert (text, step.output) == ("ok", "ok")
    assert (step.outcome.prompt_tokens, step.outcome.completion_tokens) == (11, 17)
    assert not step.outcome.tokens_estimated


async def test_a_stream_without_usage_is_estimated_and_marked(server, routing, llm_router):
    plugin = routing(ask_usage=False)
    stream = await llm_router().acompletion(model="chat", messages=HELLO, stream=True, **about("t"))
    async for _ in stream:
        pass
    await plugin.heard(1)
    outcome = plugin.router.ledger("t").steps[0].outcome
    assert outcome.tokens_estimated
    assert outcome.prompt_tokens == litellm.token_counter(model="small", messages=HELLO)
    assert outcome.usd == pytest.approx((outcome.prompt_tokens * 1 + outcome.completion_tokens * 2) / 1e6)


async def test_responses_are_routed_and_go_on_by_id(server, routing, llm_router):
    plugin = routing("strongest")
    router = llm_router()
    first = await router.aresponses(model="chat", input="hello", litellm_metadata={"steproute": {"role": "writer"}})
    await plugin.heard(1)
    [task] = tasks(plugin)
    await router.aresponses(model="chat", input="and now?", previous_response_id=first.id)
    await plugin.heard(2)
    steps = plugin.router.ledger(task).steps
    assert [(step.model, step.role, step.output) for step in steps] == [("large", "writer", "ok"), ("large", "", "ok")]
    assert plugin.router.spent(task)["usd"] == pytest.approx(2 * ONE_CALL["large"])


async def test_anthropic_messages_are_routed(server, routing, llm_router, deployment):
    plugin = routing("strongest")
    router = llm_router(
        *(deployment("chat", name, model=f"anthropic/{name}", api_base=server.url) for name in ("small", "large"))
    )
    server.queue(Reply(cached_tokens=4))
    named = {"litellm_metadata": {"steproute": {"task": "t"}}}
    answer = await router.aanthropic_messages(model="chat", messages=HELLO, max_tokens=10, **named)
    await plugin.heard(1)
    [step] = plugin.router.ledger("t").steps
    assert (answer["model"], step.model, step.output) == ("large", "large", "ok")
    assert (step.outcome.prompt_tokens, step.outcome.cached_tokens, step.outcome.completion_tokens) == (11, 4, 17)


async def test_embeddings_are_paid_for_and_are_no_steps(server, routing, llm_router, deployment):
    plugin = routing("strongest")
    router = llm_router(deployment("embed", "small"))
    await router.aembedding(model="embed", input=["a text"], **about("t"))
    await plugin.heard(1)
    assert plugin.router.spent("t")["usd"] == pytest.approx(11 * 1 / 1e6)
    assert plugin.router.ledger("t").steps == []


async def test_embeddings_are_never_sent_to_another_model(server, routing, llm_router, deployment):
    """Vectors of two models do not compare: LiteLLM's own choice stands."""
    plugin = routing("strongest")
    left = await plugin.async_filter_deployments(
        "embed", [deployment("embed", "small"), deployment("embed", "large")], None, {"metadata": {}, "input": ["a"]}
    )
    assert len(left) == 2


async def test_a_hard_limit_refuses_and_names_itself_and_is_not_retried(server, routing, llm_router):
    plugin = routing(budget=Budget(usd=0.00001))
    with pytest.raises(BudgetExceeded) as refused:
        await llm_router().acompletion(model="chat", messages=HELLO, max_tokens=100, **about("t"))
    assert (refused.value.resource, refused.value.limit, refused.value.task) == ("usd", 0.00001, "t")
    assert refused.value.body()["param"] == "usd"
    assert server.calls == []
    assert plugin.router.decisions("t") == []


async def test_a_cheaper_model_that_fits_is_taken(server, routing, llm_router):
    routing("strongest", budget=Budget(usd=0.001))
    answer = await llm_router().acompletion(model="chat", messages=HELLO, max_tokens=100, **about("t"))
    assert answer.model == "small"


async def test_row_11_an_image_where_no_model_sees(server, routing, llm_router):
    routing()
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(NoEligibleModel, match="no vision"):
        await llm_router().acompletion(model="chat", messages=[{"role": "user", "content": [image]}], **about("t"))
    assert server.calls == []


async def test_a_fault_inside_leaves_litellms_own_choice(server, routing, llm_router):
    plugin = routing(on_error="fallback")
    plugin._desk.deployments = None  # nothing in here works
    answer = await llm_router().acompletion(model="chat", messages=HELLO, **about("t"))
    await plugin.heard(1)
    assert answer.model in ("small", "large")
    assert plugin.router.errors > 0


async def test_a_call_is_paid_for_even_after_a_fault_inside(server, routing, llm_router):
    plugin = routing(on_error="fallback")

    def broken(*_: Any) -> Any:
        raise RuntimeError("no question can be asked")

    plugin._desk.question = broken
    answer = await llm_router().acompletion(model="chat", messages=HELLO, **about("t"))
    await plugin.heard(1)
    assert plugin.router.errors == 1
    assert plugin.router.spent("t")["usd"] == pytest.approx(ONE_CALL[answer.model])


async def test_a_fallback_after_a_refusal_is_still_the_same_task(server, routing, llm_router, deployment):
    """A new conversation that is refused in one group must not get a new budget in the next."""
    plugin = routing(budget=Budget(usd=0.0001))
    router = llm_router(
        deployment("chat", "large"), deployment("spare", "small"), fallbacks=[{"chat": ["spare"]}], num_retries=0
    )
    answer = await router.acompletion(model="chat", messages=HELLO, max_tokens=10)
    await plugin.heard(1)
    assert answer.model == "small"
    assert len(tasks(plugin)) == 1


async def test_a_question_asked_twice_has_one_answer(server, routing, deployment):
    plugin = routing("random")
    both = [deployment("chat", "small"), deployment("chat", "large")]
    request: dict[str, Any] = {"metadata": {"steproute": {"task": "t"}}}
    answers = [await plugin.async_filter_deployments("chat", both, HELLO, request) for _ in range(5)]
    assert all(left == answers[0] and len(left) == 1 for left in answers)
    assert len(plugin.router.decisions("t")) == 1


async def test_an_outcome_heard_twice_is_paid_once(server, routing, llm_router):
    plugin = routing()
    seen: list[tuple[Any, ...]] = []
    hear = plugin.async_log_success_event

    async def twice(*given: Any, **named: Any) -> None:
        seen.append(given)
        await hear(*given, **named)
        await hear(*given, **named)

    plugin.async_log_success_event = twice
    await llm_router().acompletion(model="chat", messages=HELLO, **about("t"))
    await plugin.heard(2)
    assert plugin.router.spent("t")["usd"] == pytest.approx(ONE_CALL["small"])
    assert len(plugin.router.ledger("t").steps) == 1


async def test_a_call_to_a_deployment_by_its_id_is_paid_for(server, routing, llm_router):
    plugin = routing("cheapest")
    answer = await llm_router().acompletion(model="large", messages=HELLO, **about("t"))
    await plugin.heard(1)
    assert answer.model == "large"
    assert plugin.router.spent("t")["usd"] == pytest.approx(ONE_CALL["large"])


async def test_the_sdk_without_a_router_is_left_alone_unless_it_names_a_task(server, routing):
    plugin = routing()
    direct = {"model": "openai/small", "api_base": server.base_url, "api_key": "none", "messages": HELLO}
    await litellm.acompletion(**direct)
    await plugin.heard(1)
    assert tasks(plugin) == []
    await litellm.acompletion(**direct, **about("t"))
    await plugin.heard(2)
    assert plugin.router.spent("t")["usd"] == pytest.approx(ONE_CALL["small"])


async def test_tool_calls_and_their_results_reach_the_ledger(server, routing, llm_router):
    plugin = routing()
    router = llm_router()
    tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}
    server.queue(Reply(content="", tool_calls=[{"name": "search", "arguments": {"q": "x"}}]))
    first = await router.acompletion(model="chat", messages=HELLO, tools=[tool], **about("t"))
    await plugin.heard(1)
    [call] = plugin.router.ledger("t").steps[0].tool_calls
    assert (call.name, call.ok) == ("search", None)
    result = {"role": "tool", "tool_call_id": "call_0", "content": "Error: no network"}
    messages = [*HELLO, first.choices[0].message.model_dump(exclude_none=True), result]
    await router.acompletion(model="chat", messages=messages, tools=[tool], **about("t"))
    assert (call.ok, call.error) == (False, "Error: no network")


async def test_a_task_ends_when_its_caller_says_so(server, routing, llm_router):
    plugin = routing()
    await llm_router().acompletion(model="chat", messages=HELLO, **about("t", success=True))
    await plugin.heard(1)
    assert plugin.router.ended("t")


async def test_a_task_nobody_ends_ends_by_being_idle(server, routing, llm_router):
    now = [1000.0]
    plugin = routing(clock=lambda: now[0])
    router = llm_router()
    await router.acompletion(model="chat", messages=HELLO, **about("t"))
    await plugin.heard(1)
    now[0] += 601
    await router.acompletion(model="chat", messages=HELLO, **about("u"))
    assert plugin.router.ledger("t") is None
    assert not plugin.router.ended("t")  # success is unknown: it may go on


async def test_evidence_of_the_caller_reaches_the_step_before(server, routing, llm_router):
    plugin = routing()
    router = llm_router()
    await router.acompletion(model="chat", messages=HELLO, **about("t"))
    await plugin.heard(1)
    tests = [{"source": "examples", "score": 0.5, "count": 4}, {"source": "nonsense", "score": 7}]
    await router.acompletion(model="chat", messages=HELLO, **about("t", evidence=tests))
    [evidence] = plugin.router.ledger("t").steps[0].outcome.evidence
    assert (evidence.source, evidence.score, evidence.count) == ("examples", 0.5, 4)


async def test_parallel_calls_of_a_task_are_steps_of_their_own(server, routing, llm_router):
    plugin = routing()
    router = llm_router()
    calls = [router.acompletion(model="chat", messages=HELLO, **about("t")) for _ in range(5)]
    await asyncio.gather(*calls)
    await plugin.heard(5)
    assert len({decision.step for decision in plugin.router.decisions("t")}) == 5
    assert plugin.router.spent("t")["usd"] == pytest.approx(5 * ONE_CALL["small"])


async def test_two_deployments_of_one_model_stay_litellms_choice(server, routing, deployment):
    plugin = routing("cheapest")
    listed = [deployment("chat", "small"), deployment("chat", "large")]
    listed.append(deployment("chat", "small-eu", {"steproute": "small"}))
    left = await plugin.async_filter_deployments("chat", listed, HELLO, {"metadata": {}})
    assert [item["model_info"]["id"] for item in left] == ["small", "small-eu"]


async def test_a_model_outside_the_pool_joins_it_with_its_own_price(server, routing, llm_router, deployment):
    plugin = routing("cheapest", models=[LARGE])
    router = llm_router(
        deployment("chat", "large"),
        deployment("chat", "new", {"input_cost_per_token": 2e-6, "output_cost_per_token": 4e-6}),
    )
    answer = await router.acompletion(model="chat", messages=HELLO, **about("t"))
    await plugin.heard(1)
    assert answer.model == "new"
    assert plugin.router.pool["openai/new"].price == Price(input=2, output=4)
    assert plugin.router.spent("t")["usd"] == pytest.approx((11 * 2 + 17 * 4) / 1e6)


def tasks(plugin: Any) -> list[str]:
    """Tasks the router has running."""
    return list(plugin.router._tasks._running)
