"""RoutingMiddleware beside the middleware people use, in both orders: whoever answered gets the credit and the bill."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langchain_openai")

from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    wrap_model_call,
)
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from langgraph_doubles import CALL, LARGE, SMALL, Turns
from pydantic import BaseModel
from servers import OpenAIServer, Reply

from steproute import Budget, BudgetExceeded, ConfigError, Router
from steproute.plugins.langgraph import RoutedChatModel, RoutingMiddleware
from steproute.plugins.langgraph.records import KEY

CONFIG: Any = {"configurable": {"thread_id": "t"}}
ASK: Any = {"messages": [("user", "double 3")]}


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


CALL_DOUBLE = Reply(content="", tool_calls=[{"name": "double", "arguments": {"number": 3}}])


async def run(agent: Any, how: str, given: Any = ASK, config: Any = CONFIG) -> Any:
    return await agent.ainvoke(given, config) if how == "async" else agent.invoke(given, config)


def models_called(server: OpenAIServer) -> list[str]:
    return [call.body["model"] for call in server.calls]


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_every_model_call_of_an_agent_is_routed(
    how: str,
    make_router: Callable[..., Router],
    clients: dict[str, Any],
    chat: Callable[..., Any],
    server: OpenAIServer,
) -> None:
    server.queue(CALL_DOUBLE, Reply(content="6"))
    router = make_router(Turns(("large", "small")))
    agent = create_agent(
        chat("own"),
        [double],
        name="helper",
        middleware=[RoutingMiddleware(router, clients)],
        checkpointer=InMemorySaver(),
    )
    out = await run(agent, how)
    assert out["messages"][-1].content == "6"
    assert set(out) == {"messages"}
    assert models_called(server) == ["large", "small"]
    assert [len(call.body["tools"]) for call in server.calls] == [1, 1]
    # asynchronous agents on Python 3.10 do not tell a middleware their name
    role = "model" if how == "async" and sys.version_info < (3, 11) else "helper"
    records = agent.get_state(CONFIG).values[KEY].values()
    assert [(record["model"], record["role"], record["billed"]) for record in records] == [
        ("large", role, 1),
        ("small", role, 1),
    ]
    assert router.spent("t")["usd"] == pytest.approx(CALL["large"] + CALL["small"])
    steps = router.ledger("t").steps  # type: ignore[union-attr]
    assert [(call.name, call.ok) for call in steps[0].tool_calls] == [("double", True)]


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("order", ["routing first", "fallback first"])
async def test_neither_order_cancels_a_fallback(
    order: str,
    how: str,
    make_router: Callable[..., Router],
    clients: dict[str, Any],
    chat: Callable[..., Any],
    server: OpenAIServer,
) -> None:
    """The trap: behind `[Fallback, Routing]` a router that overrides every request undoes the fallback's choice."""
    server.queue(Reply(status=500, error="small is down"), Reply(content="from the spare"))
    router = make_router("fixed:small")
    routing = RoutingMiddleware(router, clients, fallbacks=False)
    fallback = ModelFallbackMiddleware(chat("spare"))
    both = [routing, fallback] if order == "routing first" else [fallback, routing]
    agent = create_agent(chat("own"), [], middleware=both, checkpointer=InMemorySaver())
    out = await run(agent, how)
    assert out["messages"][-1].content == "from the spare"
    assert models_called(server) == ["small", "spare"]
    dearest = 28 * 20e-6  # a model outside the pool has no price: the dearest known one is assumed
    assert router.spent("t")["usd"] == pytest.approx(dearest)
    assert router.ledger("t").steps == []  # type: ignore[union-attr]  # nobody of the pool answered
    assert router.health._records["small"].failures == 1


@pytest.mark.parametrize("order", ["routing first", "fallback first"])
def test_a_fallback_within_the_pool_gets_the_credit(
    order: str,
    make_router: Callable[..., Router],
    clients: dict[str, Any],
    chat: Callable[..., Any],
    server: OpenAIServer,
) -> None:
    server.queue(Reply(status=500, error="small is down"), Reply(content="from large"))
    policy = Turns(("small",))
    router = make_router(policy)
    routing = RoutingMiddleware(router, clients, fallbacks=False)
    fallback = ModelFallbackMiddleware(clients["large"])
    both = [routing, fallback] if order == "routing first" else [fallback, routing]
    agent = create_agent(chat("own"), [], middleware=both, checkpointer=InMemorySaver())
    out = agent.invoke(ASK, CONFIG)
    assert out["messages"][-1].content == "from large"
    assert [step.model for step in router.ledger("t").steps] == ["large"]  # type: ignore[union-attr]
    assert router.spent("t")["usd"] == pytest.approx(CALL["large"])
    router.finish("t", success=True)
    assert [(role, model) for role, model, _ in policy.learnt] == [("model", "large")]


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_without_other_middleware_the_next_model_of_the_pool_answers(
    how: str,
    make_router: Callable[..., Router],
    clients: dict[str, Any],
    chat: Callable[..., Any],
    server: OpenAIServer,
) -> None:
    server.queue(Reply(status=500))
    router = make_router("fixed:small")
    agent = create_agent(chat("own"), [], middleware=[RoutingMiddleware(router, clients)], checkpointer=InMemorySaver())
    assert (await run(agent, how))["messages"][-1].content == "large speaking"
    assert models_called(server) == ["small", "large"]


@pytest.mark.parametrize("order", ["routing first", "retry first"])
def test_beside_retries(
    order: str,
    make_router: Callable[..., Router],
    clients: dict[str, Any],
    chat: Callable[..., Any],
    server: OpenAIServer,
) -> None:
    server.queue(Reply(status=500), Reply(content="at last"))
    router = make_router("fixed:small")
    routing = RoutingMiddleware(router, clients, fallbacks=False)
    retry = ModelRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    both = [routing, retry] if order == "routing first" else [retry, routing]
    agent = create_agent(chat("own"), [], middleware=both, checkpointer=InMemorySaver())
    assert agent.invoke(ASK, CONFIG)["messages"][-1].content == "at last"
    # inside, the same model is asked again; outside, the router leaves out the one that failed
    assert models_called(server) == (["small", "small"] if order == "routing first" else ["small", "large"])
    assert len(router.ledger("t").steps) == 1  # type: ignore[union-attr]
    assert router.spent("t")["usd"] == pytest.approx(CALL[models_called(server)[-1]])


def test_a_reply_that_stands_for_a_failure_is_no_answer(
    make_router: Callable[..., Router], clients: dict[str, Any], chat: Callable[..., Any], server: OpenAIServer
) -> None:
    server.queue(*[Reply(status=500)] * 2)
    router = make_router("fixed:small")
    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0, jitter=False, on_failure="continue")
    agent = create_agent(
        chat("own"), [], middleware=[RoutingMiddleware(router, clients), retry], checkpointer=InMemorySaver()
    )
    agent.invoke(ASK, CONFIG)
    assert router.ledger("t").steps == []  # type: ignore[union-attr]
    assert router.health._records["small"].failures == 1
    assert router.spent("t").get("usd", 0) == 0


def test_a_reply_without_any_call_frees_the_reservation(
    make_router: Callable[..., Router], clients: dict[str, Any], chat: Callable[..., Any], server: OpenAIServer
) -> None:
    @wrap_model_call
    def canned(request: Any, handler: Any) -> Any:
        return AIMessage("canned")

    router = make_router(budget=Budget(usd=1))
    agent = create_agent(
        chat("own"), [], middleware=[RoutingMiddleware(router, clients), canned], checkpointer=InMemorySaver()
    )
    assert agent.invoke(ASK, CONFIG)["messages"][-1].content == "canned"
    assert server.calls == []
    assert router.accounts.spending("t").reserved["usd"] == 0
    assert not any(router.fleet.in_flight(name) for name in clients)
    assert router.ledger("t").steps == []  # type: ignore[union-attr]


def test_a_model_chosen_by_an_outer_middleware_is_respected(
    make_router: Callable[..., Router], clients: dict[str, Any], chat: Callable[..., Any], server: OpenAIServer
) -> None:
    special, own = chat("special"), chat("own")

    @wrap_model_call
    def force(request: Any, handler: Any) -> Any:
        return handler(request.override(model=special))

    router = make_router("fixed:small")
    agent = create_agent(
        own, [], middleware=[force, RoutingMiddleware(router, clients, own=own)], checkpointer=InMemorySaver()
    )
    agent.invoke(ASK, CONFIG)
    assert models_called(server) == ["special"]
    assert router.spent("t")["tokens"] == 28


@pytest.mark.parametrize("first", ["routing", "summary"])
def test_beside_summaries(
    first: str,
    make_router: Callable[..., Router],
    clients: dict[str, Any],
    chat: Callable[..., Any],
    server: OpenAIServer,
) -> None:
    """Messages disappear from the history; nothing is counted twice, and the summary has a model of its own."""
    router = make_router(Turns(("large", "small")))
    summary = SummarizationMiddleware(model=chat("summariser"), trigger=("messages", 3), keep=("messages", 1))
    both = [summary, RoutingMiddleware(router, clients)]
    agent = create_agent(
        chat("own"), [], middleware=both if first == "summary" else both[::-1], checkpointer=InMemorySaver()
    )
    for word in ("one", "two", "three"):
        agent.invoke({"messages": [("user", word)]}, CONFIG)
    assert [name for name in models_called(server) if name != "summariser"] == ["large", "small", "large"]
    assert "summariser" in models_called(server)
    assert [step.model for step in router.ledger("t").steps] == ["large", "small", "large"]  # type: ignore[union-attr]
    assert router.spent("t")["tokens"] == 3 * 28


@pytest.mark.parametrize("first", ["routing", "human"])
@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_beside_a_human_in_the_loop(
    decision: str,
    first: str,
    make_router: Callable[..., Router],
    clients: dict[str, Any],
    chat: Callable[..., Any],
    server: OpenAIServer,
) -> None:
    server.queue(CALL_DOUBLE, Reply(content="6"))
    router = make_router(Turns(("large", "small")))
    human = HumanInTheLoopMiddleware(interrupt_on={"double": True})
    both = [human, RoutingMiddleware(router, clients)]
    agent = create_agent(
        chat("own"), [double], middleware=both if first == "human" else both[::-1], checkpointer=InMemorySaver()
    )
    assert "__interrupt__" in agent.invoke(ASK, CONFIG)
    answer = {"type": "approve"} if decision == "approve" else {"type": "reject", "message": "do not"}
    out = agent.invoke(Command(resume={"decisions": [answer]}), CONFIG)
    assert out["messages"][-1].content == "6"
    assert models_called(server) == ["large", "small"]
    steps = router.ledger("t").steps  # type: ignore[union-attr]
    assert [(call.name, call.ok) for call in steps[0].tool_calls] == [("double", decision == "approve")]


def test_todos_are_subtasks(
    make_router: Callable[..., Router], clients: dict[str, Any], chat: Callable[..., Any], server: OpenAIServer
) -> None:
    todos = [{"content": "read", "status": "completed"}, {"content": "write", "status": "in_progress"}]
    server.queue(
        Reply(content="", tool_calls=[{"name": "write_todos", "arguments": {"todos": todos}}]), Reply(content="done")
    )
    router = make_router()
    agent = create_agent(
        chat("own"),
        [],
        middleware=[TodoListMiddleware(), RoutingMiddleware(router, clients)],
        checkpointer=InMemorySaver(),
    )
    agent.invoke(ASK, CONFIG)
    assert [(item.text, item.status) for item in router.ledger("t").subtasks] == [("read", "done"), ("write", "doing")]  # type: ignore[union-attr]


class Answer(BaseModel):
    value: int


def test_the_way_to_structured_output_follows_the_model(
    make_router: Callable[..., Router], clients: dict[str, Any], chat: Callable[..., Any], server: OpenAIServer
) -> None:
    """LangChain asks one model by schema and another by a forced tool: the choice is made anew for the model routed to."""
    gpt = chat("gpt-5", use_responses_api=False)
    server.queue(Reply(content="", tool_calls=[{"name": "Answer", "arguments": {"value": 6}}]))
    router = make_router("fixed:small")
    agent = create_agent(
        gpt, [], response_format=Answer, middleware=[RoutingMiddleware(router, clients)], checkpointer=InMemorySaver()
    )
    assert agent.invoke(ASK, CONFIG)["structured_response"] == Answer(value=6)
    assert server.calls[0].body["tool_choice"] == "required"
    assert "response_format" not in server.calls[0].body


def test_only_models_that_can_call_tools_serve_an_agent_with_tools(
    make_router: Callable[..., Router], clients: dict[str, Any], chat: Callable[..., Any], server: OpenAIServer
) -> None:
    mute = SMALL.model_copy(update={"tools": False})
    router = make_router("cheapest", models=(mute, LARGE))
    agent = create_agent(chat("own"), [double], middleware=[RoutingMiddleware(router, clients)])
    agent.invoke(ASK)
    assert models_called(server) == ["large"]


def test_a_hard_limit_ends_the_agent(
    make_router: Callable[..., Router], clients: dict[str, Any], chat: Callable[..., Any], server: OpenAIServer
) -> None:
    server._script = lambda body: CALL_DOUBLE
    router = make_router("fixed:small", budget=Budget(usd=0.0005))
    agent = create_agent(chat("own"), [double], middleware=[RoutingMiddleware(router, clients)])
    with pytest.raises(BudgetExceeded, match=r"usd=0\.0005"):
        agent.invoke(ASK, CONFIG)
    assert 0 < router.spent("t")["usd"] <= 0.0005


def test_a_router_shared_by_middleware_and_model_counts_once(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    router = make_router()
    agent = create_agent(RoutedChatModel(router, clients), [], middleware=[RoutingMiddleware(router, clients)])
    agent.invoke(ASK, CONFIG)
    assert len(server.calls) == 1
    assert router.spent("t")["tokens"] == 28
    assert len(router.decisions("t")) == 1


def test_agents_as_tools_of_an_agent_share_the_budget(
    make_router: Callable[..., Router], clients: dict[str, Any], chat: Callable[..., Any], server: OpenAIServer
) -> None:
    """Demand 16: what a sub-agent spends while its parent runs is gone when the parent decides again."""
    server.queue(
        Reply(content="", tool_calls=[{"name": "research", "arguments": {"topic": "x"}}]),
        Reply(content="found", prompt_tokens=1000, completion_tokens=1000),
        Reply(content="done"),
    )
    policy = Turns(("small",))
    router = make_router(policy, budget=Budget(usd=0.005))
    routing = RoutingMiddleware(router, clients)
    worker = create_agent(chat("own"), [], name="researcher", middleware=[routing])

    def research(topic: str) -> str:
        """Research a topic."""
        return str(worker.invoke({"messages": [("user", topic)]})["messages"][-1].content)

    boss = create_agent(chat("own"), [research], name="boss", middleware=[routing], checkpointer=InMemorySaver())
    boss.invoke(ASK, CONFIG)
    assert [context.role for context in policy.contexts] == ["boss", "researcher", "boss"]
    spent = [context.budget.spent.get("usd", 0) for context in policy.contexts]
    assert spent == pytest.approx([0, CALL["small"], CALL["small"] + 0.003])


def test_strings_are_model_names(make_router: Callable[..., Router], monkeypatch: pytest.MonkeyPatch) -> None:
    """`request.override(model="…")` fails deep inside LangChain; here a name is made a model at once."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    middleware = RoutingMiddleware(make_router(), {"small": "openai:gpt-4o-mini"})
    assert type(middleware.desk.clients["small"]).__name__ == "ChatOpenAI"
    with pytest.raises(ConfigError, match="did you mean 'small'"):
        RoutingMiddleware(make_router(), {"smal": "openai:gpt-4o-mini"})


def test_one_middleware_serves_several_agents(
    make_router: Callable[..., Router], clients: dict[str, Any], chat: Callable[..., Any], server: OpenAIServer
) -> None:
    routing = RoutingMiddleware(make_router("fixed:small"), clients)
    for number, own in enumerate((chat("own"), chat("other"))):
        create_agent(own, [], middleware=[routing]).invoke(ASK, {"configurable": {"thread_id": str(number)}})
    assert models_called(server) == ["small", "small"]
