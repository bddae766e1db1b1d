"""ag2 ≥ 1.0 agents over real HTTP: whose model is called, what goes with the call, what is counted."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("ag2.network")

from ag2 import Agent
from ag2.agent import TaskConfig
from ag2.config import OpenAIConfig
from ag2.events import ImageInput
from ag2.testing import TestConfig
from pydantic import BaseModel
from servers import Hang, OpenAIServer, Reply

from steproute import Budget, BudgetExceeded, ConfigError, Model, NoEligibleModel, Router, Task
from steproute.plugins.ag2 import attach
from steproute.plugins.ag2.modern import RoutedConfig

MakeRouter = Callable[..., Router]


def models_called(server: OpenAIServer) -> list[str]:
    return [received.body["model"] for received in server.calls]


def config(server: OpenAIServer, model: str = "own", **more: Any) -> OpenAIConfig:
    return OpenAIConfig(model=model, base_url=server.base_url, api_key="none", max_retries=0, **more)


async def test_one_line_routes_an_agent_that_has_a_config(server: OpenAIServer, make_router: MakeRouter) -> None:
    agent = Agent("coder", "Be brief.", config=config(server, temperature=0.5))
    attachment = attach(make_router("fixed:large"), agent)
    reply = await agent.ask("hello")
    assert reply.body == "large-70b speaking"
    body = server.calls[0].body
    assert (body["model"], body["temperature"]) == ("large-70b", 0.5)
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    row = attachment.meter.rows["large", "coder"]
    assert (row.calls, row.prompt_tokens, row.completion_tokens, row.estimated) == (1, 11, 17, 0)
    assert row.usd == pytest.approx((11 * 10 + 17 * 20) / 1e6)
    assert row.seconds > 0


async def test_a_call_is_priced_by_the_model_chosen_not_by_the_name_that_comes_back(
    server: OpenAIServer, make_router: MakeRouter
) -> None:
    renamed = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    head = {"id": "1", "object": "chat.completion", "created": 1, "model": "large-70b-2026-09", "usage": usage}
    server.queue(Reply(raw=json.dumps({**head, **renamed}).encode()))
    agent = Agent("coder", config=config(server))
    attachment = attach(make_router("fixed:small"), agent)
    await agent.ask("hello")
    assert attachment.meter.total.usd == pytest.approx((100 * 1 + 10 * 2) / 1e6)


async def test_a_models_mapping_is_used_as_it_is(server: OpenAIServer, make_router: MakeRouter) -> None:
    agent = Agent("coder", config=config(server, temperature=0.5))
    attach(make_router("fixed:small"), agent, models={"small": config(server, "elsewhere", temperature=0.1)})
    await agent.ask("hello")
    assert (server.calls[0].body["model"], server.calls[0].body["temperature"]) == ("elsewhere", 0.1)


async def test_an_agent_without_a_config_needs_a_mapping_of_every_model(
    server: OpenAIServer, make_router: MakeRouter
) -> None:
    agent = Agent("coder")
    with pytest.raises(ConfigError, match=r"no model config for 'large' for agent 'coder', which has no config"):
        attach(make_router(), agent, models={"small": config(server)})
    assert agent.config is None
    attach(make_router(), agent, models={"small": config(server, "s"), "large": config(server, "l")})
    await agent.ask("hello")
    assert models_called(server) == ["s"]


def test_a_config_that_cannot_be_copied_is_named(make_router: MakeRouter) -> None:
    agent = Agent("coder", config=TestConfig("hi", model="own"))
    with pytest.raises(ConfigError, match=r"'coder', whose TestConfig cannot be copied with another model"):
        attach(make_router(), agent)
    assert isinstance(agent.config, TestConfig)


async def test_tools_and_schema_go_with_the_model_chosen(server: OpenAIServer, make_router: MakeRouter) -> None:
    class Answer(BaseModel):
        total: int

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    def subtract(a: int, b: int) -> int:
        """Subtract."""
        return a - b

    def fail() -> str:
        """Always fails."""
        raise RuntimeError("no luck")

    agent = Agent("coder", config=config(server), tools=[add, subtract, fail], response_schema=Answer)
    server.queue(
        Reply(content="", tool_calls=[{"name": "add", "arguments": {"a": 2, "b": 3}}]),
        Reply(content="", tool_calls=[{"name": "fail", "arguments": {}}]),
        Reply(content='{"total": 5}'),
    )
    router = make_router("fixed:large")
    attachment = attach(router, agent, task="sum")
    reply = await agent.ask("2 + 3")
    assert await reply.content() == Answer(total=5)
    assert models_called(server) == ["large-70b"] * 3
    for received in server.calls:
        names = [tool["function"]["name"] for tool in received.body["tools"]]
        assert names == ["add", "subtract", "fail"]
        assert received.body["response_format"]["json_schema"]["schema"]["properties"].keys() == {"total"}
    ledger = router.ledger("sum")
    assert ledger is not None
    called = [[(call.name, call.ok) for call in step.tool_calls] for step in ledger.steps]
    assert called == [[("add", True)], [("fail", False)], []]
    assert "no luck" in ledger.steps[1].tool_calls[0].error
    assert attachment.meter.by_role["coder"].calls == 3


async def test_a_model_without_tools_is_not_chosen_for_a_call_with_tools(server: OpenAIServer) -> None:
    def noop() -> str:
        """Nothing."""
        return ""

    router = Router([Model("plain", price="free", tools=False), Model("able", price="free")], policy="fixed:plain")
    agent = Agent("coder", config=config(server), tools=[noop])
    attach(router, agent)
    await agent.ask("hello")
    assert models_called(server) == ["able"]


async def test_an_image_needs_vision(server: OpenAIServer) -> None:
    router = Router([Model("blind", price="free"), Model("blinder", price="free")], policy="fixed:blind")
    agent = Agent("coder", config=config(server))
    attach(router, agent)
    with pytest.raises(NoEligibleModel, match="no vision"):
        await agent.ask("what is it?", ImageInput("https://example.org/cat.png"))
    assert server.calls == []


async def test_when_a_model_fails_the_next_one_answers_and_each_gets_its_own_outcome(
    server: OpenAIServer, make_router: MakeRouter
) -> None:
    server.queue(Reply(status=500, error="overloaded"))
    router = make_router("fixed:large")
    agent = Agent("coder", config=config(server))
    attachment = attach(router, agent, task="t")
    reply = await agent.ask("hello")
    assert reply.body == "small-1b speaking"
    assert models_called(server) == ["large-70b", "small-1b"]
    first, second = router.decisions("t")
    assert (first.model.name, first.attempt, second.model.name, second.attempt) == ("large", 1, "small", 2)
    assert second.score_of("large").cause == "failed at this step"
    ledger = router.ledger("t")
    assert ledger is not None
    assert [step.model for step in ledger.steps] == ["small"]
    rows = attachment.meter.rows
    assert (rows["large", "coder"].calls, rows["large", "coder"].failed, rows["large", "coder"].usd) == (1, 1, 0)
    assert (rows["small", "coder"].calls, rows["small", "coder"].failed) == (1, 0)
    assert router.spent("t")["usd"] == pytest.approx((11 * 1 + 17 * 2) / 1e6)


async def test_the_providers_own_error_comes_up_once_every_model_failed_and_the_next_turn_is_free(
    server: OpenAIServer, make_router: MakeRouter
) -> None:
    server.queue(Reply(status=500, error="down"), Reply(status=404, error="no such model"))
    agent = Agent("coder", config=config(server))
    attach(make_router("fixed:large", cooldown_s=0), agent, task="t")
    with pytest.raises(Exception, match="no such model") as caught:
        await agent.ask("hello")
    assert type(caught.value).__name__ == "NotFoundError"
    assert models_called(server) == ["large-70b", "small-1b"]
    assert (await agent.ask("again")).body == "large-70b speaking"


async def test_a_hard_budget_comes_up_in_the_host(server: OpenAIServer, make_router: MakeRouter) -> None:
    agent = Agent("coder", config=config(server, max_tokens=10))
    attach(make_router(budget=Budget(usd=0.00003)), agent, task="t")
    await agent.ask("hello")
    with pytest.raises(BudgetExceeded) as caught:
        await agent.ask("hello")
    assert caught.value.resource == "usd"
    assert len(server.calls) == 1


async def test_tokens_are_counted_here_when_the_provider_reports_none(
    server: OpenAIServer, make_router: MakeRouter
) -> None:
    said = {"index": 0, "message": {"role": "assistant", "content": "x" * 40}, "finish_reason": "stop"}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [said]}
    server.queue(Reply(raw=json.dumps(body).encode()))
    agent = Agent("coder", "y" * 40, config=config(server))
    attachment = attach(make_router(), agent)
    await agent.ask("z" * 40)
    row = attachment.meter.total
    assert (row.prompt_tokens, row.completion_tokens, row.estimated) == (20, 10, 1)


async def test_a_pinned_role_keeps_its_model_and_is_metered(server: OpenAIServer, make_router: MakeRouter) -> None:
    boss, coder = (Agent(name, config=config(server)) for name in ("coordinator", "coder"))
    attachment = attach(make_router("fixed:small"), boss, coder, pin={"coordinator": "large"})
    await boss.ask("hello")
    await coder.ask("hello")
    assert models_called(server) == ["large-70b", "small-1b"]
    assert attachment.meter.rows.keys() == {("large", "coordinator"), ("small", "coder")}
    server.queue(Reply(status=500, error="down"))
    with pytest.raises(Exception, match="down"):
        await boss.ask("hello")
    assert len(server.calls) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pin": {"boss": "larg"}}, r"pin\['boss'\]: unknown name 'larg'; did you mean 'large'\?"),
        ({"models": {"smal": None}}, r"models: unknown name 'smal'; did you mean 'small'\?"),
    ],
)
def test_wrong_names(make_router: MakeRouter, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        attach(make_router(), Agent("coder"), **settings)


def test_wrong_targets(make_router: MakeRouter, server: OpenAIServer) -> None:
    with pytest.raises(ConfigError, match="nothing to attach to"):
        attach(make_router())
    with pytest.raises(ConfigError, match="attach: seen str; allowed: an ag2 Agent"):
        attach(make_router(), "coder")
    with pytest.raises(ConfigError, match="attach: seen OpenAIConfig; allowed: an ag2 Agent"):
        attach(make_router(), config(server))


async def test_attaching_again_changes_nothing_and_detaching_gives_everything_back(
    server: OpenAIServer, make_router: MakeRouter
) -> None:
    own = config(server)
    agent = Agent("coder", config=own)
    router = make_router()
    attachment = attach(router, agent)
    assert attach(router, agent) is attachment
    assert isinstance(agent.config, RoutedConfig)
    assert agent.config.own is own
    assert agent.config.model == "own"
    with pytest.raises(ConfigError, match="Agent 'coder' is attached to another router"):
        attach(make_router(), agent)
    await agent.ask("hello")
    attachment.detach()
    attachment.detach()
    assert agent.config is own
    assert vars(agent).keys() == vars(Agent("other")).keys()
    assert agent._middleware == []
    await agent.ask("hello")
    assert models_called(server) == ["small-1b", "own"]
    with attach(router, agent):
        await agent.ask("hello")
    await agent.ask("hello")
    assert models_called(server)[2:] == ["small-1b", "own"]


async def test_a_config_the_host_set_meanwhile_survives_detaching(
    server: OpenAIServer, make_router: MakeRouter
) -> None:
    agent = Agent("coder", config=config(server))
    attachment = attach(make_router(), agent)
    agent.config = config(server, "newer")
    attachment.detach()
    await agent.ask("hello")
    assert models_called(server) == ["newer"]


async def test_one_client_per_loop_and_model_however_many_turns(
    server: OpenAIServer, make_router: MakeRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    create = OpenAIConfig.create
    monkeypatch.setattr(OpenAIConfig, "create", lambda self: made.append(self.model) or create(self))
    agent = Agent("coder", config=config(server))
    attach(make_router(), agent)
    for _ in range(3):
        await agent.ask("hello")
    assert made == ["small-1b"]
    agent.config.own.temperature = 0.9  # a changed config is a new client
    await agent.ask("hello")
    assert made == ["small-1b", "small-1b"]
    assert server.calls[-1].body["temperature"] == 0.9


def test_event_loops_one_after_the_other(
    server: OpenAIServer, make_router: MakeRouter, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent("coder", config=config(server))
    attachment = attach(make_router(), agent)

    async def ask() -> str | None:
        return (await agent.ask("hello")).body

    gc.collect()  # what earlier tests left must not be taken for ours
    with caplog.at_level(logging.ERROR):
        assert [asyncio.run(ask()) for _ in range(3)] == ["small-1b speaking"] * 3
        gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]
    assert attachment.meter.total.failed == 0


async def test_a_cancelled_call_gives_its_reservation_back(server: OpenAIServer, make_router: MakeRouter) -> None:
    server.queue(Hang())
    agent = Agent("coder", config=config(server, max_tokens=10))
    router = make_router(budget=Budget(usd=0.00005))
    attachment = attach(router, agent, task="t")
    asking = asyncio.ensure_future(agent.ask("hello"))
    await asyncio.to_thread(server.hung.wait, 10)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert attachment.meter.total.failed == 1
    assert router.accounts.spending("t").reserved.get("usd", 0) == 0
    await agent.ask("hello")


async def test_a_fault_inside_the_router_never_reaches_the_host(
    server: OpenAIServer, make_router: MakeRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = make_router(on_error="fallback")
    agent = Agent("coder", config=config(server))
    attach(router, agent)
    monkeypatch.setattr(router, "decide", lambda *_, **__: 1 / 0)
    assert (await agent.ask("hello")).body == "own speaking"
    assert router.errors == 1


async def test_sub_tasks_belong_to_the_task_of_their_agent(server: OpenAIServer, make_router: MakeRouter) -> None:
    server.queue(
        Reply(content="", tool_calls=[{"name": "run_subtasks", "arguments": {"tasks": ["one", "two", "three"]}}]),
        *[Reply(content="part")] * 3,
        Reply(content="whole"),
    )
    agent = Agent("boss", config=config(server), tasks=TaskConfig())
    router = make_router()
    attachment = attach(router, agent, task="t")
    assert (await agent.ask("split it")).body == "whole"
    assert {role: row.calls for role, row in attachment.meter.by_role.items()} == {"boss": 2, "subtask": 3}
    ledger = router.ledger("t")
    assert ledger is not None
    assert [step.role for step in ledger.steps] == ["boss", "subtask", "subtask", "subtask", "boss"]
    keys = [decision.step for decision in router.decisions("t")]
    assert len(set(keys)) == 5


async def test_without_a_task_of_its_own_a_sub_task_still_shares_its_agents(
    server: OpenAIServer, make_router: MakeRouter
) -> None:
    server.queue(
        Reply(content="", tool_calls=[{"name": "task_helper", "arguments": {"objective": "look"}}]),
        Reply(content="seen"),
        Reply(content="whole"),
    )
    seen: list[Task] = []

    def note(task: Task) -> Task:
        seen.append(task)
        return task.model_copy(update={"domain": "code"})

    helper = Agent("helper", config=config(server))
    agent = Agent("boss", config=config(server), tools=[helper.as_tool(description="Helps.")])
    router = make_router()
    attach(router, agent, helper, task=note)
    await agent.ask("find it")
    assert {task.id for task in seen} == {seen[0].id}
    assert seen[0].goal == "find it"
    ledger = router.ledger(seen[0].id)
    assert ledger is not None
    assert ledger.task.domain == "code"
    assert [step.role for step in ledger.steps] == ["boss", "helper", "boss"]


async def test_each_conversation_without_a_channel_is_a_task_of_its_own_that_detaching_ends(
    server: OpenAIServer, make_router: MakeRouter
) -> None:
    ended: list[str] = []
    router = make_router()
    agent = Agent("coder", config=config(server))
    attachment = attach(router, agent, success=lambda ledger: ended.append(ledger.task.goal) or True)
    reply = await agent.ask("first")
    await reply.ask("first again")
    await agent.ask("second")
    assert ended == []
    attachment.detach()
    assert sorted(ended) == ["first", "second"]


async def test_summaries_are_routed(server: OpenAIServer, make_router: MakeRouter) -> None:
    from ag2.agent import KnowledgeConfig
    from ag2.compact import CompactTrigger, SummarizeCompact
    from ag2.knowledge import MemoryKnowledgeStore

    knowledge = KnowledgeConfig(
        store=MemoryKnowledgeStore(),
        compact=SummarizeCompact(target=1, config=config(server, "summariser")),
        compact_trigger=CompactTrigger(max_events=2),
    )
    agent = Agent("coder", config=config(server), knowledge=knowledge)
    router = make_router()
    attachment = attach(router, agent, task="t", pin={"summary": "large"})
    reply = await agent.ask("one")
    reply = await reply.ask("two")
    await reply.ask("three")
    assert attachment.meter.rows["large", "summary"].calls >= 1
    assert "summariser" not in models_called(server)
    attachment.detach()
    assert knowledge.compact._config.model == "summariser"  # type: ignore[union-attr]


async def test_a_stream_is_metered(server: OpenAIServer, make_router: MakeRouter) -> None:
    agent = Agent("coder", config=config(server, streaming=True))
    attachment = attach(make_router(), agent)
    assert (await agent.ask("hello")).body == "small-1b speaking"
    assert server.calls[0].body["stream"] is True
    assert attachment.meter.total.tokens == 28


async def test_attachments_of_one_router_share_its_tasks(server: OpenAIServer, make_router: MakeRouter) -> None:
    router = make_router()
    coder, critic = (Agent(name, config=config(server)) for name in ("coder", "critic"))
    first, second = attach(router, coder, task="t"), attach(router, coder, critic, task="t")
    assert first is not second
    await asyncio.gather(coder.ask("hello"), critic.ask("hello"), coder.ask("hello"), critic.ask("hello"))
    decisions = router.decisions("t")
    assert len({decision.step for decision in decisions}) == len({decision.id for decision in decisions}) == 4
    assert (first.meter.total.calls, second.meter.total.calls) == (2, 2)
    assert attach(router, coder, critic) is first


async def test_an_arm_that_comes_later_and_cannot_be_reached_is_passed_over(
    server: OpenAIServer, make_router: MakeRouter
) -> None:
    agent = Agent("coder")
    router = make_router("fixed:small")
    attach(router, agent, models={"small": config(server, "s"), "large": config(server, "l")}, pin={"coder": "large"})
    router.pool.add(Model("late", price="free"))
    await agent.ask("hello")
    assert models_called(server) == ["l"]


async def test_no_key_is_asked_for_when_only_ollama_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ollama")
    from ag2.config import OllamaConfig
    from servers import OllamaServer

    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with OllamaServer() as ollama:
        router = Router([Model("small", price="free"), Model("large", price="free")], policy="fixed:large")
        agent = Agent("coder", config=OllamaConfig(model="small", host=ollama.url))
        attachment = attach(router, agent)
        assert (await agent.ask("hello")).body == "ok"
        assert [received.body["model"] for received in ollama.calls] == ["large"]
        assert (attachment.meter.total.tokens, attachment.meter.total.usd) == (28, 0)


def test_without_ag2_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    import steproute.plugins.ag2 as plugin

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'steproute\[ag2\]'"):
        importlib.reload(plugin)
