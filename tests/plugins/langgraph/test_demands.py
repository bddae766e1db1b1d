"""What users of routers ask for (rows of the project's list of demands), and the traps of LangGraph, by their right values."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain_openai")

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph_doubles import CALL, LARGE, Turns
from pydantic import BaseModel
from servers import OllamaServer, OpenAIServer, Reply

from steproute import Budget, Limit, Model, Price, Router
from steproute.plugins.langgraph import RoutedChatModel, router_node
from steproute.plugins.langgraph.reasoning import fit_for, holder, without_reasoning
from steproute.router import DEFAULT_POLICY

LEARNING = sorted({DEFAULT_POLICY, "progrouter"})
CONFIG: Any = {"configurable": {"thread_id": "t"}}


def chat_graph(llm: Any) -> Any:
    def answer(state: MessagesState) -> Any:
        return {"messages": [llm.invoke(state["messages"])]}

    async def aanswer(state: MessagesState, config: RunnableConfig) -> Any:  # Python 3.10 wants the configuration told
        return {"messages": [await llm.ainvoke(state["messages"], config)]}

    builder = StateGraph(MessagesState)
    builder.add_node("chatbot", RunnableLambda(answer, aanswer))
    builder.add_edge(START, "chatbot")
    return builder.compile(checkpointer=InMemorySaver())


def models_called(server: OpenAIServer) -> list[str]:
    return [call.body["model"] for call in server.calls]


def run_tests(path: str) -> str:
    """Run the tests."""
    return f"3 failed in {path}"


def commit(message: str) -> str:
    """Commit."""
    return message


HARD = "Find the race in this scheduler and fix it. " + "while queue: lock.acquire(); step(queue); " * 200


@pytest.mark.parametrize("policy", [*LEARNING, "naive-ratio", "strongest"])
def test_commit_it_after_a_hard_turn_is_not_judged_by_its_length(
    policy: str, make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    """Demand 1: the same decision, whether the last words are two or two thousand; the ledger is what counts."""
    decisions = []
    for last in ("commit it", "commit it, and " + "mind the style guide, " * 300):
        router = make_router(policy, budget=Budget(usd=Limit(limit=1.0, hard=False)))
        llm = RoutedChatModel(router, clients).bind_tools([run_tests])
        graph = chat_graph(llm)
        server.queue(Reply(content="", tool_calls=[{"name": "run_tests", "arguments": {"path": "t.py"}}]))
        first = graph.invoke({"messages": [HumanMessage(HARD)]}, CONFIG)["messages"][-1]
        graph.invoke(
            {"messages": [ToolMessage("3 failed", tool_call_id=first.tool_calls[0]["id"]), HumanMessage(last)]}, CONFIG
        )
        decisions.append(router.decisions("t"))
    for (hard, short), (_, long) in [decisions]:
        assert short.model.name == long.model.name == hard.model.name
        assert short.progress == long.progress
        assert short.progress.g > hard.progress.g  # the task has begun; "commit it" did not begin it anew
        assert short.prompt_tokens > 2000  # the whole conversation is what the model will read
        assert "commit" not in short.why()


def test_a_trivial_opener_does_not_pin_the_session(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    """Demand 2."""
    router = make_router("progrouter")
    graph = chat_graph(RoutedChatModel(router, clients))
    router.pool.retire("large")
    graph.invoke({"messages": ["hi"]}, CONFIG)
    router.pool.add(LARGE)
    graph.invoke({"messages": [HARD]}, CONFIG)
    opener, hard = router.decisions("t")
    assert (opener.model.name, hard.model.name) == ("small", "large")
    assert {item.model for item in hard.candidates if item.score is not None} == {"small", "large"}


def test_a_repeated_traceback_is_not_easy_for_repeating_itself(
    make_router: Callable[..., Router], clients: dict[str, Any]
) -> None:
    """Demand 12."""
    error = "TypeError: unsupported operand type(s) for +: 'int' and 'str'\n  File app.py, line 12, in total\n    return a + b\n"
    report = "It still fails:\n" + error * 12
    assert len(report) > 1229
    models = []
    for text in (report, "It still fails:\n" + error):
        router = make_router("progrouter", budget=Budget(usd=Limit(limit=1.0, hard=False)))
        RoutedChatModel(router, clients, task="t").invoke(text)
        (decision,) = router.decisions("t")
        models.append((decision.model.name, decision.progress.g, decision.score_of("large").gain))
    assert models[0] == models[1]
    assert models[0][0] == "large"


CACHING = (
    Model("small", price=Price(input=1, output=2, cached_input=0.1), quality=0.3, max_output=300),
    Model("large", price=Price(input=10, output=20, cached_input=1), quality=0.9, max_output=300),
)


@pytest.mark.parametrize("policy", LEARNING)
@pytest.mark.parametrize("limit", [None, 0.05, 0.3, 1.0])
def test_a_tool_loop_switches_at_most_once_and_never_costs_more_than_staying(
    limit: float | None, policy: str, make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    """Demand 13: 18 calls at the same state of the ledger, on a provider that caches what the model has read before."""
    read: dict[str, int] = {}

    def reply(body: dict[str, Any]) -> Reply:
        prompt = sum(len(str(message)) for message in body["messages"]) // 4
        cached = read.get(body["model"], 0)
        read[body["model"]] = prompt
        asks = [{"name": "run_tests", "arguments": {"path": "t.py"}}]
        return Reply(
            content="", tool_calls=asks, prompt_tokens=prompt, completion_tokens=40, cached_tokens=min(cached, prompt)
        )

    server._script = reply

    def bill(policy: Any) -> tuple[float, list[str]]:
        read.clear()
        budget = Budget(usd=Limit(limit=limit, hard=False)) if limit else None
        router = make_router(policy, budget=budget, models=CACHING)
        llm = RoutedChatModel(router, clients, task="t").bind_tools([run_tests])
        messages: list[Any] = [SystemMessage("You fix code. " * 400), HumanMessage("make the tests pass")]
        for number in range(18):
            answer = llm.invoke(messages)
            answer.tool_calls[0]["id"] = f"call-{number}"
            messages += [answer, ToolMessage("3 failed", tool_call_id=f"call-{number}")]
        return router.spent("t")["usd"], [step.model for step in router.ledger("t").steps]  # type: ignore[union-attr]

    usd, models = bill(policy)
    switches = sum(one != two for one, two in pairwise(models))
    staying, _ = bill(f"fixed:{'large' if 'large' in models else 'small'}")
    assert usd <= staying * (1 + 1e-9)
    # failures under a limit that staying would break justify one more, back to the cheaper
    assert switches <= 1 or (switches == 2 and limit is not None and limit < staying and models[-1] == "small")


# --- reasoning that belongs to its provider ---------------------------------------------------------------------


def stamped(message: AIMessage, model: str) -> AIMessage:
    message.response_metadata["steproute"] = {"model": model, "task": "t", "step": "0", "decision": "d", "role": ""}
    return message


CALLS = [{"name": "run_tests", "args": {"path": "t.py"}, "id": "c1", "type": "tool_call"}]
SIGNED = {
    "anthropic": AIMessage(
        [
            {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"},
            {"type": "text", "text": "let me look"},
            {"type": "tool_use", "id": "c1", "name": "run_tests", "input": {"path": "t.py"}},
        ],
        tool_calls=CALLS,
    ),
    "redacted": AIMessage(
        [{"type": "redacted_thinking", "data": "c2Vj"}, {"type": "text", "text": "let me look"}], tool_calls=CALLS
    ),
    "openai responses": AIMessage(
        [
            {"type": "reasoning", "id": "rs_1", "encrypted_content": "c2Vj", "summary": []},
            {"type": "text", "text": "let me look", "id": "msg_1"},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "run_tests", "arguments": "{}"},
        ],
        tool_calls=CALLS,
        additional_kwargs={"__openai_function_call_ids__": {"c1": "fc_1"}},
    ),
    "gemini": AIMessage(
        "let me look",
        tool_calls=CALLS,
        additional_kwargs={"__gemini_function_call_thought_signatures__": {"c1": "c2ln"}},
    ),
    "standard": AIMessage(
        [
            {"type": "reasoning", "reasoning": "hm", "extras": {"signature": "c2ln"}},
            {"type": "text", "text": "let me look"},
        ],
        tool_calls=CALLS,
    ),
}


@pytest.mark.parametrize("form", SIGNED)
def test_inside_a_tool_loop_a_model_with_signed_reasoning_stays(
    form: str, make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    """Demand 3: the switch is refused while the loop is open."""
    history = [
        HumanMessage("fix it"),
        stamped(SIGNED[form].model_copy(deep=True), "large"),
        ToolMessage("3 failed", tool_call_id="c1"),
    ]
    assert holder(history) == "large"
    router = make_router("fixed:small")
    if form == "gemini":  # the one form an OpenAI client takes as it is
        RoutedChatModel(router, clients, task="t").invoke(history)
        assert models_called(server) == ["large"]
        (decision,) = router.decisions("t")
        assert "pinned large" in decision.score_of("small").cause


@pytest.mark.parametrize("form", SIGNED)
def test_outside_of_a_tool_loop_signed_reasoning_is_left_out(
    form: str, make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    """Demand 3: the block is dropped before the call; nothing of it reaches the other provider."""
    answer = stamped(SIGNED[form].model_copy(deep=True), "large")
    history = [
        HumanMessage("fix it"),
        answer,
        ToolMessage("3 failed", tool_call_id="c1"),
        AIMessage("done"),
        HumanMessage("commit it"),
    ]
    before = answer.model_copy(deep=True)
    RoutedChatModel(make_router("fixed:small"), clients).invoke(history)
    sent = server.calls[0].body["messages"]
    assert models_called(server) == ["small"]
    assert (sent[1]["content"], sent[1]["tool_calls"][0]["id"]) == ("let me look", "c1")
    for secret in ("c2ln", "c2Vj", "c2lnbmVk", "rs_1", "fc_1", "msg_1", "hm"):
        assert secret not in str(sent)
    assert answer == before  # the host's history is left alone
    assert fit_for(history, "large") is history


def test_when_the_model_that_must_go_on_is_down_another_does_without_the_reasoning(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    history = [
        HumanMessage("fix it"),
        stamped(SIGNED["gemini"].model_copy(deep=True), "large"),
        ToolMessage("3 failed", tool_call_id="c1"),
    ]
    server.queue(Reply(status=500))
    RoutedChatModel(make_router("fixed:small"), clients).invoke(history)
    assert models_called(server) == ["large", "small"]
    assert "c2ln" not in str(server.calls[1].body)


def test_plain_reasoning_binds_nobody(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    said = AIMessage("let me look", tool_calls=CALLS, additional_kwargs={"reasoning_content": "hm"})
    history = [HumanMessage("fix it"), stamped(said, "large"), ToolMessage("3 failed", tool_call_id="c1")]
    assert holder(history) == ""
    RoutedChatModel(make_router("fixed:small"), clients).invoke(history)
    assert models_called(server) == ["small"]


def test_who_wrote_a_reply_is_known_by_name_where_it_has_no_stamp(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    said = SIGNED["gemini"].model_copy(deep=True)
    said.response_metadata["model_name"] = "large"
    RoutedChatModel(make_router("fixed:small"), clients).invoke(
        [HumanMessage("fix it"), said, ToolMessage("3 failed", tool_call_id="c1")]
    )
    assert models_called(server) == ["large"]


def test_text_pictures_and_calls_survive() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.test/a.png"}}
    said = AIMessage(
        [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "see"}, picture],
        id="m1",
        name="bob",
    )
    plain = without_reasoning(said)
    assert plain.content == [{"type": "text", "text": "see"}, picture]
    assert (plain.id, plain.name) == ("m1", "bob")


# --- in agents ----------------------------------------------------------------------------------------------------


class Answer(BaseModel):
    value: int


def test_in_create_react_agent(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    server.queue(
        Reply(content="", tool_calls=[{"name": "run_tests", "arguments": {"path": "t.py"}}]),
        Reply(content="they fail"),
        Reply(content='{"value": 3}'),
    )
    router = make_router(Turns(("large", "small")))
    agent = create_react_agent(
        RoutedChatModel(router, clients), [run_tests], response_format=Answer, checkpointer=InMemorySaver()
    )
    out = agent.invoke({"messages": [("user", "how many fail?")]}, CONFIG)
    assert out["structured_response"] == Answer(value=3)
    assert models_called(server) == ["large", "small", "large"]
    assert [len(call.body.get("tools") or []) for call in server.calls] == [1, 1, 0]
    assert router.spent("t")["usd"] == pytest.approx(2 * CALL["large"] + CALL["small"])


@pytest.mark.parametrize("client", ["openai", "ollama", "litellm"])
async def test_in_create_agent_with_every_client(
    client: str, make_router: Callable[..., Router], server: OpenAIServer, clients: dict[str, Any]
) -> None:
    agents = pytest.importorskip("langchain.agents")
    asks = Reply(content="", tool_calls=[{"name": "run_tests", "arguments": {"path": "t.py"}}])
    with OllamaServer() as local:
        used: Any = local if client == "ollama" else server
        if client == "ollama":
            module = pytest.importorskip("langchain_ollama")
            clients = {name: module.ChatOllama(model=name, base_url=local.url) for name in ("small", "large")}
        elif client == "litellm":
            module = pytest.importorskip("langchain_litellm")
            options = {"api_base": server.base_url, "api_key": "none", "max_retries": 0}
            clients = {name: module.ChatLiteLLM(model=f"openai/{name}", **options) for name in ("small", "large")}
        used.queue(asks, Reply(content="three fail"), asks, Reply(content="three fail"))
        router = make_router(Turns(("large", "small")))
        agent = agents.create_agent(RoutedChatModel(router, clients), [run_tests], checkpointer=InMemorySaver())
        for thread in ("sync", "async"):
            config: Any = {"configurable": {"thread_id": thread}}
            given: Any = {"messages": [("user", "how many fail?")]}
            out = agent.invoke(given, config) if thread == "sync" else await agent.ainvoke(given, config)
            assert out["messages"][-1].content == "three fail"
            assert [
                message.response_metadata["steproute"]["model"] for message in out["messages"] if message.type == "ai"
            ] == ["large", "small"]
        assert [call.body["model"] for call in used.calls] == ["large", "small"] * 2
        assert router.spent("sync")["tokens"] == 56


def test_tools_bound_beforehand_are_recognised_by_the_agent(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    bound = RoutedChatModel(make_router(), clients).bind_tools([run_tests], parallel_tool_calls=False)
    create_react_agent(bound, [run_tests]).invoke({"messages": [("user", "go")]})
    assert server.calls[0].body["parallel_tool_calls"] is False
    with pytest.raises(ValueError, match="must match"):
        create_react_agent(bound, [run_tests, commit])


@pytest.mark.parametrize("told", [None, True])
async def test_streamed_messages_without_usage_are_estimated_and_with_it_exact(
    told: bool | None, make_router: Callable[..., Router], chat: Callable[..., Any]
) -> None:
    """The trap: a ChatOpenAI with a base URL of its own reports no usage in `messages` mode unless told to."""
    router = make_router()
    llm = RoutedChatModel(router, {name: chat(name, stream_usage=told) for name in ("small", "large")})
    pieces = [
        piece.content
        async for piece, meta in chat_graph(llm).astream({"messages": ["hi"]}, CONFIG, stream_mode="messages")
    ]
    assert "".join(pieces) == "small speaking"
    (step,) = router.ledger("t").steps  # type: ignore[union-attr]
    if told:
        assert (step.outcome.prompt_tokens, step.outcome.completion_tokens, step.outcome.tokens_estimated) == (
            11,
            17,
            False,
        )
    else:
        assert step.outcome.tokens_estimated
        assert step.outcome.completion_tokens == len("small speaking") // 4
        assert router.spent("t")["usd"] > 0


@pytest.mark.parametrize("way", ["plain", "structured"])
def test_callbacks_of_the_graph_hear_each_call_once(
    way: str, make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    """17 tokens, not 34 and not none, in a node that hands nothing on."""
    from langchain_core.callbacks import UsageMetadataCallbackHandler

    llm: Any = RoutedChatModel(make_router(), clients)
    if way == "structured":
        llm = llm.with_structured_output(Answer)
        server.queue(Reply(content='{"value": 3}'))
    builder = StateGraph(MessagesState)
    builder.add_node("work", lambda state: {"messages": [AIMessage(str(llm.invoke(state["messages"])))]})
    builder.add_edge(START, "work")
    usage = UsageMetadataCallbackHandler()
    builder.compile().invoke({"messages": ["hi"]}, {"callbacks": [usage]})
    assert usage.usage_metadata["small"]["output_tokens"] == 17


def test_a_node_with_several_calls_has_a_decision_for_each(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    router = make_router(Turns(("large", "small")))
    llm = RoutedChatModel(router, clients)

    def think(state: MessagesState) -> Any:
        drafts = [llm.invoke("the same question").content for _ in range(3)]
        return {"messages": [AIMessage(" ".join(str(draft) for draft in drafts))]}

    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(router, role="think"))
    builder.add_node("think", think)
    builder.add_edge(START, "route")
    builder.add_edge("route", "think")
    builder.compile().invoke({"messages": ["hi"]}, CONFIG)
    assert models_called(server) == ["large", "small", "large"]
    assert len(router.decisions("t")) == 3


async def test_many_calls_at_once_in_one_node(make_router: Callable[..., Router], clients: dict[str, Any]) -> None:
    import asyncio

    router = make_router()
    llm = RoutedChatModel(router, clients)

    async def think(state: MessagesState, config: RunnableConfig) -> Any:
        await asyncio.gather(*(llm.ainvoke("the same question", config) for _ in range(10)))
        return {}

    builder = StateGraph(MessagesState)
    builder.add_node("think", think)
    builder.add_edge(START, "think")
    await builder.compile().ainvoke({"messages": ["hi"]}, CONFIG)
    assert len({decision.id for decision in router.decisions("t")}) == 10
    assert router.spent("t")["tokens"] == 10 * 28


def test_the_functional_api(make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer) -> None:
    from langgraph.func import entrypoint, task

    router = make_router(Turns(("large", "small")))
    llm = RoutedChatModel(router, clients)

    @task
    def write(topic: str) -> str:
        return str(llm.invoke(topic).content)

    @entrypoint(checkpointer=InMemorySaver())
    def essay(topic: str) -> str:
        return " | ".join([write(topic).result(), write(topic).result()])

    assert essay.invoke("cats", CONFIG) == "large speaking | small speaking"
    assert [step.role for step in router.ledger("t").steps] == ["write", "write"]  # type: ignore[union-attr]
