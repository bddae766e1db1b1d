"""Classic AG2 (`autogen`) over real HTTP: chats, groups, patterns, speaker selection, summaries. Run where it is installed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("autogen", reason="classic AG2 is not installed")

import autogen
from autogen import ConversableAgent, GroupChat, GroupChatManager, LLMConfig
from autogen.cache.in_memory_cache import InMemoryCache
from servers import OpenAIServer, Reply

from steproute import Budget, BudgetExceeded, ConfigError, Evidence, Ledger, Model, Router
from steproute.plugins.ag2 import END, attach, speaker_selector

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore")]
MakeRouter = Callable[..., Router]


def entry(server: OpenAIServer, model: str = "own", **more: Any) -> dict[str, Any]:
    return {"model": model, "base_url": server.base_url, "api_key": "none", "max_retries": 0, **more}


def agent(server: OpenAIServer | None, name: str, *entries: dict[str, Any], **more: Any) -> ConversableAgent:
    own: Any = False if server is None else LLMConfig(*(entries or [entry(server)]), cache_seed=None)
    return ConversableAgent(name, f"You are {name}.", llm_config=own, human_input_mode="NEVER", **more)


def models_called(server: OpenAIServer) -> list[str]:
    return [received.body["model"] for received in server.calls]


class Group:
    """A user without a model, a coder and a critic in a group chat."""

    def __init__(self, server: OpenAIServer, method: Any = "round_robin", rounds: int = 3, **more: Any):
        self.user = agent(None, "user")
        self.coder, self.critic = agent(server, "coder"), agent(server, "critic")
        self.chat = GroupChat(
            agents=[self.user, self.coder, self.critic],
            messages=[],
            max_round=rounds,
            speaker_selection_method=method,
            **more,
        )
        self.manager = GroupChatManager(self.chat, llm_config=LLMConfig(entry(server), cache_seed=None))

    def run(self, **more: Any) -> Any:
        return self.user.initiate_chat(self.manager, message="write a poem", silent=True, **more)


def test_the_one_line_routes_a_group_chat(server: OpenAIServer, make_router: MakeRouter) -> None:
    group = Group(server)
    router = make_router("fixed:large")
    attachment = attach(router, group.chat)
    result = group.run()
    assert [message["content"] for message in result.chat_history] == ["write a poem", *["large-70b speaking"] * 2]
    assert models_called(server) == ["large-70b"] * 2
    assert attachment.meter.by_role.keys() == {"coder", "critic"}
    assert attachment.meter.total.usd == pytest.approx(2 * (11 * 10 + 17 * 20) / 1e6)


@pytest.mark.parametrize("target", ["chat", "manager", "agents"])
def test_speaker_selection_and_summaries_are_routed_and_counted(
    server: OpenAIServer, make_router: MakeRouter, target: str
) -> None:
    server.queue(Reply(content="critic"), Reply(content="fine words"), Reply(content="a summary"))
    group = Group(server, method="auto", rounds=2)
    targets = {"chat": [group.chat], "manager": [group.manager], "agents": group.chat.agents}[target]
    ended: list[Ledger] = []
    attachment = attach(
        make_router(), *targets, pin={"summary": "large"}, success=lambda ledger: ended.append(ledger) or True
    )
    result = group.run(summary_method="reflection_with_llm")
    assert result.summary == "a summary"
    if target != "agents":  # the manager is met when the chat begins; agents alone know of no group
        assert models_called(server) == ["small-1b", "small-1b", "large-70b"]
    assert {role: row.calls for role, row in attachment.meter.by_role.items()} == {
        "speaker_selection": 1,
        "critic": 1,
        "summary": 1,
    }
    (ledger,) = ended
    assert ledger.task.goal == "write a poem"
    assert [step.role for step in ledger.steps] == ["speaker_selection", "critic", "summary"]


def test_each_chat_is_a_task_and_a_named_one_is_the_hosts(server: OpenAIServer, make_router: MakeRouter) -> None:
    group = Group(server)
    router = make_router()
    ended: list[str] = []
    with attach(router, group.chat, success=lambda ledger: ended.append(ledger.task.id)):
        group.run()
        group.run()
    assert len(set(ended)) == 2
    with attach(router, group.chat, task="mine"):
        group.run()
    ledger = router.ledger("mine")
    assert ledger is not None
    assert [step.role for step in ledger.steps] == ["coder", "critic"]
    assert router.finish("mine")["tokens"] == 56


def test_models_are_found_in_the_agents_own_list(server: OpenAIServer, make_router: MakeRouter) -> None:
    coder = agent(
        server,
        "coder",
        entry(server, "small-1b", temperature=0.1),
        entry(server, "large-70b", temperature=0.9),
    )
    attach(make_router("fixed:large"), coder)
    coder.generate_reply(messages=[{"role": "user", "content": "hello"}])
    assert (server.calls[0].body["model"], server.calls[0].body["temperature"]) == ("large-70b", 0.9)


@pytest.mark.parametrize("form", ["dict", "config"])
def test_a_models_mapping_is_used_with_the_agents_tools(
    server: OpenAIServer, make_router: MakeRouter, form: str
) -> None:
    coder = agent(server, "coder", entry(server, temperature=0.5))
    coder.register_for_llm(name="add", description="Add.")(_add)
    given = entry(server, "elsewhere", temperature=0.2)
    attach(make_router(), coder, models={"small": given if form == "dict" else LLMConfig(given)})
    coder.generate_reply(messages=[{"role": "user", "content": "hello"}])
    body = server.calls[0].body
    assert (body["model"], body["temperature"]) == ("elsewhere", 0.2)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["add"]


def test_an_azure_agent_must_list_its_models(make_router: MakeRouter) -> None:
    azure = {"model": "own", "api_type": "azure", "base_url": "http://127.0.0.1:1", "api_key": "k", "api_version": "1"}
    coder = ConversableAgent("coder", llm_config=LLMConfig(azure))
    with pytest.raises(ConfigError, match="'small' is not in the agent's config_list, and on Azure"):
        attach(make_router(), coder)
    assert "_generate_oai_reply_from_client" not in vars(coder)


def _add(a: int, b: int) -> int:
    return a + b


def test_tools_are_carried_run_and_noted(server: OpenAIServer, make_router: MakeRouter) -> None:
    def fail() -> str:
        raise RuntimeError("no luck")

    coder, runner = agent(server, "coder"), agent(None, "runner")
    for function in (_add, fail):
        coder.register_for_llm(name=function.__name__.strip("_"), description="Does it.")(function)
        runner.register_for_execution(name=function.__name__.strip("_"))(function)
    server.queue(
        Reply(content="", tool_calls=[{"name": "add", "arguments": {"a": 2, "b": 3}}]),
        Reply(content="", tool_calls=[{"name": "fail", "arguments": {}}]),
        Reply(content="5"),
    )
    router = make_router("fixed:large")
    attach(router, coder, runner, task="sum")
    runner.initiate_chat(coder, message="2 + 3", max_turns=3, silent=True)
    assert models_called(server) == ["large-70b"] * 3
    for received in server.calls:
        assert [tool["function"]["name"] for tool in received.body["tools"]] == ["add", "fail"]
    assert server.calls[1].body["messages"][-1]["content"] == "5"
    ledger = router.ledger("sum")
    assert ledger is not None
    assert [[(call.name, call.ok) for call in step.tool_calls] for step in ledger.steps] == [
        [("add", True)],
        [("fail", False)],
        [],
    ]
    assert "no luck" in ledger.steps[1].tool_calls[0].error


def test_when_a_model_fails_the_next_one_answers(server: OpenAIServer, make_router: MakeRouter) -> None:
    server.queue(Reply(status=500, error="overloaded"))
    router = make_router("fixed:large")
    coder = agent(server, "coder")
    attachment = attach(router, coder, task="t")
    assert coder.generate_reply(messages=[{"role": "user", "content": "hello"}]) == "small-1b speaking"
    assert models_called(server) == ["large-70b", "small-1b"]
    assert [(d.model.name, d.attempt) for d in router.decisions("t")] == [("large", 1), ("small", 2)]
    rows = attachment.meter.rows
    assert (rows["large", "coder"].failed, rows["small", "coder"].failed) == (1, 0)
    assert rows["large", "coder"].usd == 0


def test_the_providers_own_error_comes_up_at_the_end(server: OpenAIServer, make_router: MakeRouter) -> None:
    server.queue(Reply(status=500, error="down"), Reply(status=404, error="no such model"))
    group = Group(server)
    attach(make_router("fixed:large", cooldown_s=0), group.chat)
    with pytest.raises(Exception, match="no such model"):
        group.run()
    group.run()
    assert models_called(server)[2:] == ["large-70b"] * 2


def test_a_hard_budget_ends_the_chat_with_its_error(server: OpenAIServer, make_router: MakeRouter) -> None:
    coder = agent(server, "coder", entry(server, max_tokens=10))
    attach(make_router(budget=Budget(usd=0.00003)), coder, task="t")
    coder.generate_reply(messages=[{"role": "user", "content": "hello"}])
    with pytest.raises(BudgetExceeded):
        coder.generate_reply(messages=[{"role": "user", "content": "hello"}])


def test_missing_usage_is_estimated_and_a_cached_reply_costs_nothing(
    server: OpenAIServer, make_router: MakeRouter
) -> None:
    said = {"index": 0, "message": {"role": "assistant", "content": "x" * 40}, "finish_reason": "stop"}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [said]}
    server.queue(Reply(raw=json.dumps(body).encode()))
    coder = agent(server, "coder")
    attachment = attach(make_router(), coder)
    coder.generate_reply(messages=[{"role": "user", "content": "z" * 40}])
    assert attachment.meter.total.estimated == 1
    assert attachment.meter.total.prompt_tokens == 13

    thrifty = agent(server, "thrifty")
    thrifty.client_cache = InMemoryCache(7)
    attachment = attach(make_router(), thrifty)
    for _ in range(2):
        thrifty.generate_reply(messages=[{"role": "user", "content": "hello"}])
    assert len(server.calls) == 2
    assert (attachment.meter.total.calls, attachment.meter.total.tokens) == (2, 28)


def test_ag2s_own_sums_stay_with_the_agent(server: OpenAIServer, make_router: MakeRouter) -> None:
    coder = agent(server, "coder")
    attach(make_router(), coder)
    for _ in range(2):
        coder.generate_reply(messages=[{"role": "user", "content": "hello"}])
    assert coder.get_total_usage()["small-1b"]["total_tokens"] == 56


def test_evidence_reaches_the_step_before_the_message_also_after_the_last_call(
    server: OpenAIServer, make_router: MakeRouter
) -> None:
    def judge(message: dict[str, Any]) -> list[Evidence] | None:
        if message.get("name") != "tester":
            return None
        return [Evidence(source="tests", score=0.5, detail=message["content"])]

    tester = agent(None, "tester")
    ran: list[str] = []

    def run(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, str]:
        ran.append(messages[-1]["content"])
        return True, f"run {len(ran)} failed"

    tester.register_reply([ConversableAgent, None], run, position=0)
    user, coder = agent(None, "user"), agent(server, "coder")
    order = {user: [coder], coder: [tester], tester: [coder]}
    chat = GroupChat(
        agents=[user, coder, tester],
        messages=[],
        max_round=5,
        speaker_selection_method="round_robin",
        allowed_or_disallowed_speaker_transitions=order,
        speaker_transitions_type="allowed",
    )
    ended: list[Ledger] = []
    attach(make_router(), chat, evidence=judge, success=lambda ledger: ended.append(ledger))
    user.initiate_chat(GroupChatManager(chat, llm_config=False), message="go", silent=True)
    (ledger,) = ended
    found = [[item.detail for item in step.outcome.evidence] for step in ledger.steps]
    assert found == [["run 1 failed"], ["run 2 failed"]]


def test_a_chat_between_two_agents_and_a_nested_one_are_one_task(server: OpenAIServer, make_router: MakeRouter) -> None:
    writer, editor, expert = agent(server, "writer"), agent(server, "editor"), agent(server, "expert")
    editor.register_nested_chats(
        [{"recipient": expert, "message": "is it true?", "max_turns": 1, "summary_method": "last_msg"}], trigger=writer
    )
    ended: list[Ledger] = []
    attachment = attach(make_router(), writer, editor, success=lambda ledger: ended.append(ledger))
    writer.initiate_chat(editor, message="a draft", max_turns=1, silent=True)
    assert attachment.meter.by_role.keys() == {"expert"}
    assert [ledger.task.goal for ledger in ended] == ["is it true?"]
    writer.initiate_chat(editor, message="a draft", max_turns=2, silent=True)
    assert [[step.role for step in ledger.steps] for ledger in ended] == [["expert"], ["expert", "writer", "expert"]]


def test_a_stranger_starts_the_chat(server: OpenAIServer, make_router: MakeRouter) -> None:
    group = Group(server)
    stranger = agent(server, "stranger")
    ended: list[Ledger] = []
    attachment = attach(make_router(), group.manager, success=lambda ledger: ended.append(ledger))
    stranger.initiate_chat(group.manager, message="one", silent=True, summary_method="reflection_with_llm")
    assert attachment.meter.by_role["summary"].calls == 1
    assert ended == []
    stranger.initiate_chat(group.manager, message="two", silent=True)
    assert [ledger.task.goal for ledger in ended] == ["one", "two"]
    assert [step.role for step in ended[0].steps] == ["coder", "summary"]


def test_attaching_again_changes_nothing_and_detaching_gives_everything_back(
    server: OpenAIServer, make_router: MakeRouter
) -> None:
    group = Group(server, method="auto", rounds=2)
    router = make_router()
    attachment = attach(router, group.chat, group.manager)
    assert attach(router, group.chat) is attachment
    with pytest.raises(ConfigError, match="is attached to another router"):
        attach(make_router(), group.coder)
    server.queue(Reply(content="coder"))
    group.run()
    attachment.detach()
    hooks = {"initiate_chat", "_prepare_chat", "_create_internal_agents", "generate_reply", "_steproute_attachment"}
    for item in (group.chat, group.manager, group.user, group.coder, group.critic):
        assert not hooks & vars(item).keys()
    server.queue(Reply(content="coder"))
    group.run()
    assert models_called(server) == ["small-1b", "small-1b", "own", "own"]


def test_asynchronous_chats(server: OpenAIServer, make_router: MakeRouter) -> None:
    server.queue(Reply(content="critic"))
    group = Group(server, method="auto", rounds=2)
    ended: list[Ledger] = []
    attachment = attach(make_router(), group.chat, success=lambda ledger: ended.append(ledger))

    async def talk() -> None:
        await group.user.a_initiate_chat(group.manager, message="go", silent=True)

    asyncio.run(talk())
    assert attachment.meter.by_role.keys() == {"speaker_selection", "critic"}
    assert [step.role for step in ended[0].steps] == ["speaker_selection", "critic"]


def test_a_fault_inside_the_router_never_reaches_the_host(
    server: OpenAIServer, make_router: MakeRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = make_router(on_error="fallback")
    coder = agent(server, "coder")
    attach(router, coder)
    monkeypatch.setattr(router, "decide", lambda *_, **__: 1 / 0)
    assert coder.generate_reply(messages=[{"role": "user", "content": "hello"}]) == "own speaking"
    assert router.errors == 1


def test_the_speaker_is_chosen_by_progress(server: OpenAIServer, make_router: MakeRouter) -> None:
    scores = iter([0.3, 0.6, 1.0])

    def judge(message: dict[str, Any]) -> list[Evidence] | None:
        return None if message["content"] == "write a poem" else [Evidence(source="judge", score=next(scores))]

    router = make_router()
    group = Group(server, method=speaker_selector(router, recoverable="coder", partial="critic"), rounds=9)
    attach(router, group.chat, evidence=judge)
    result = group.run()
    assert [message.get("name") for message in result.chat_history] == ["user", "coder", "coder", "critic"]
    assert speaker_selector(router, partial=END).speakers == {"complete": END, "partial": END}


def test_a_pattern_with_handoffs_and_guardrails(server: OpenAIServer, make_router: MakeRouter) -> None:
    from autogen.agentchat import initiate_group_chat
    from autogen.agentchat.group import AgentTarget, OnCondition, StringLLMCondition
    from autogen.agentchat.group.guardrails import LLMGuardrail
    from autogen.agentchat.group.patterns import AutoPattern

    def script(body: dict[str, Any]) -> Reply:
        system = str(body["messages"][0]["content"])
        if "guardrail" in system:
            return Reply(content='{"activated": false, "justification": "fine"}')
        if "coder" in system and "Read the" not in system and len(body.get("tools", [])) == 1:
            name = body["tools"][0]["function"]["name"]
            return Reply(content="", tool_calls=[{"name": name, "arguments": {}}])
        return Reply(content="coder" if "Read the" in system else "done")

    with OpenAIServer(script) as own:
        coder, critic = agent(own, "coder"), agent(own, "critic")
        coder.handoffs.add_llm_condition(
            OnCondition(target=AgentTarget(critic), condition=StringLLMCondition(prompt="hand over"))
        )
        config = LLMConfig(entry(own), cache_seed=None)
        guarded = not autogen.__version__.startswith("0.10.")  # there its reply schema breaks with today's pydantic
        if guarded:
            critic.register_input_guardrail(
                LLMGuardrail(name="g", condition="rude", target=AgentTarget(coder), llm_config=config)
            )
        user = agent(None, "user")
        pattern = AutoPattern(
            initial_agent=coder,
            agents=[coder, critic],
            user_agent=user,
            group_manager_args={"llm_config": config},
        )
        ended: list[Ledger] = []
        attachment = attach(make_router("fixed:large"), pattern, success=lambda ledger: ended.append(ledger))
        initiate_group_chat(pattern=pattern, messages="hello", max_rounds=6)
        assert {received.body["model"] for received in own.calls} == {"large-70b"}
        assert attachment.meter.total.calls == len(own.calls)
        roles = {"coder", "critic", "speaker_selection", *(["guardrail"] if guarded else [])}
        assert roles <= attachment.meter.by_role.keys()
        assert len(ended) == 1
        attachment.detach()
        assert "prepare_group_chat" not in vars(pattern)


def test_a_model_without_tools_is_left_out(server: OpenAIServer) -> None:
    router = Router([Model("plain", price="free", tools=False), Model("able", price="free")], policy="fixed:plain")
    coder = agent(server, "coder")
    coder.register_for_llm(name="add", description="Add.")(_add)
    attach(router, coder)
    coder.generate_reply(messages=[{"role": "user", "content": "hello"}])
    assert models_called(server) == ["able"]


def test_an_agent_that_sees_is_routed_too(server: OpenAIServer, make_router: MakeRouter) -> None:
    pytest.importorskip("PIL")
    from autogen.agentchat.contrib.multimodal_conversable_agent import MultimodalConversableAgent

    seer = MultimodalConversableAgent("seer", llm_config=LLMConfig(entry(server), cache_seed=None))
    attachment = attach(make_router(), seer)
    message = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    seer.generate_reply(messages=[message])
    seer.reset()
    seer.generate_reply(messages=[message])
    assert models_called(server) == ["small-1b"] * 2
    assert attachment.meter.by_role["seer"].calls == 2
    attachment.detach()
    seer.reset()
    seer.generate_reply(messages=[message])
    assert models_called(server)[2:] == ["own"]
