"""Nodes run more than once: the same decision again, billed as often as it was made, learnt once."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain_openai")

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt
from langgraph_doubles import CALL, SMALL, Turns
from servers import OpenAIServer, Reply
from servers.fixtures import postgres_url
from typing_extensions import TypedDict

from steproute import Budget, BudgetExceeded, Router
from steproute.plugins.langgraph import RoutedChatModel, finish_node, router_node
from steproute.plugins.langgraph.prompt import read_prompt
from steproute.plugins.langgraph.records import KEY

__all__ = ["postgres_url"]

CONFIG: Any = {"configurable": {"thread_id": "t"}}
HI: Any = {"messages": ["hi"]}


SAVERS = ("memory", "sqlite", pytest.param("postgres", marks=pytest.mark.heavy))


@pytest.fixture(params=SAVERS)
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemorySaver()
    elif request.param == "sqlite":
        module = pytest.importorskip("langgraph.checkpoint.sqlite")
        with contextlib.closing(sqlite3.connect(tmp_path / "checkpoints.db", check_same_thread=False)) as connection:
            yield module.SqliteSaver(connection)
    else:
        module = pytest.importorskip("langgraph.checkpoint.postgres")
        with module.PostgresSaver.from_conn_string(request.getfixturevalue("postgres_url")) as found:
            found.setup()
            found.delete_thread("t")
            yield found


@pytest.fixture(params=SAVERS)
async def asaver(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    if request.param == "memory":
        yield InMemorySaver()
    elif request.param == "sqlite":
        module = pytest.importorskip("langgraph.checkpoint.sqlite.aio")
        async with module.AsyncSqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as found:
            yield found
    else:
        module = pytest.importorskip("langgraph.checkpoint.postgres.aio")
        async with module.AsyncPostgresSaver.from_conn_string(request.getfixturevalue("postgres_url")) as found:
            await found.setup()
            await found.adelete_thread("t")
            yield found


class Process:
    """A graph in a process of its own: its router knows nothing but what was saved."""

    def __init__(
        self,
        make_router: Callable[..., Router],
        clients: Any,
        saver: Any,
        order: tuple[str, ...],
        node: bool,
        **more: Any,
    ):
        self.policy = Turns(order)
        self.router = make_router(self.policy, **more)
        self.llm = RoutedChatModel(self.router, clients)
        self.hooks: list[Callable[[], None]] = []
        builder = StateGraph(MessagesState)
        if node:
            builder.add_node("route", router_node(self.router))
        builder.add_node(
            "work",
            self.work,
            retry_policy=RetryPolicy(max_attempts=2, initial_interval=0, jitter=False, retry_on=ValueError),
        )
        builder.add_node("check", self.check)
        builder.add_edge(START, "route" if node else "work")
        if node:
            builder.add_edge("route", "work")
        builder.add_edge("work", "check")
        if node:
            builder.add_node("note", finish_node(self.router, ends=False))
            builder.add_edge("check", "note")
        self.graph = builder.compile(checkpointer=saver)

    def work(self, state: MessagesState) -> Any:
        reply = self.llm.invoke(state["messages"])
        if self.hooks:
            self.hooks.pop(0)()
        return {"messages": [reply]}

    def check(self, state: MessagesState) -> Any:
        return {"messages": [self.llm.invoke([*state["messages"], ("user", "is this right?")])]}

    @property
    def learnt(self) -> list[str]:
        self.router.finish("t")
        return [model for _, model, _ in self.policy.learnt]

    def records(self) -> list[tuple[str, int]]:
        values = self.graph.get_state(CONFIG).values.get(KEY, {})
        return [
            (record["model"], record["billed"]) for record in sorted(values.values(), key=lambda record: record["at"])
        ]


def ask_a_person() -> None:
    interrupt("go on?")


def fail() -> None:
    raise ValueError("something else in the node")


def crash() -> None:
    raise RuntimeError("something else in the node")


def models_called(server: OpenAIServer) -> list[str]:
    return [call.body["model"] for call in server.calls]


@pytest.mark.parametrize("node", [True, False], ids=["node", "model alone"])
@pytest.mark.parametrize("same", [True, False], ids=["same process", "new process"])
def test_interrupted_and_resumed(
    same: bool, node: bool, saver: Any, make_router: Callable[..., Router], clients: Any, server: OpenAIServer
) -> None:
    first = Process(make_router, clients, saver, ("large", "small"), node)
    first.hooks.append(ask_a_person)
    assert "__interrupt__" in first.graph.invoke(HI, CONFIG)
    second = first if same else Process(make_router, clients, saver, ("small", "small"), node)
    second.hooks.append(ask_a_person)
    second.graph.invoke(Command(resume="yes"), CONFIG)
    assert models_called(server) == ["large", "large", "small"]  # the same decision, then the next one
    assert second.router.spent("t")["usd"] == pytest.approx(2 * CALL["large"] + CALL["small"])
    if node:
        assert second.records() == [("large", 2), ("small", 1)]
    assert second.learnt == ["large", "small"]
    if not same:
        assert first.policy.learnt == []


@pytest.mark.parametrize("node", [True, False], ids=["node", "model alone"])
def test_a_node_that_fails_after_its_call_and_is_retried(
    node: bool, saver: Any, make_router: Callable[..., Router], clients: Any, server: OpenAIServer
) -> None:
    only = Process(make_router, clients, saver, ("large", "small"), node)
    only.hooks.append(fail)
    only.graph.invoke(HI, CONFIG)
    assert models_called(server) == ["large", "large", "small"]
    assert only.router.spent("t")["usd"] == pytest.approx(2 * CALL["large"] + CALL["small"])
    if node:
        assert only.records() == [("large", 2), ("small", 1)]
    assert only.learnt == ["large", "small"]


@pytest.mark.parametrize("node", [True, False], ids=["node", "model alone"])
@pytest.mark.parametrize("same", [True, False], ids=["same process", "new process"])
def test_a_run_that_crashed_goes_on(
    same: bool, node: bool, saver: Any, make_router: Callable[..., Router], clients: Any, server: OpenAIServer
) -> None:
    first = Process(make_router, clients, saver, ("large", "small"), node)
    first.hooks.append(crash)
    with pytest.raises(RuntimeError, match="something else"):
        first.graph.invoke(HI, CONFIG)
    second = first if same else Process(make_router, clients, saver, ("small", "small"), node)
    second.graph.invoke(None, CONFIG)
    assert models_called(server) == ["large", "large", "small"]
    assert second.router.spent("t")["usd"] == pytest.approx(2 * CALL["large"] + CALL["small"])
    assert second.learnt == ["large", "small"]


@pytest.mark.parametrize("same", [True, False], ids=["same process", "new process"])
def test_a_call_that_failed_may_be_decided_anew(
    same: bool, saver: Any, make_router: Callable[..., Router], clients: Any, server: OpenAIServer
) -> None:
    """Seen and succeeded: the same again. Seen and failed: another."""
    import openai

    server.queue(Reply(status=500))
    first = Process(make_router, clients, saver, ("large", "large"), node=True)
    first.llm = RoutedChatModel(first.router, clients, fallbacks=False)
    with pytest.raises(openai.APIStatusError):
        first.graph.invoke(HI, CONFIG)
    second = first if same else Process(make_router, clients, saver, ("large", "large"), node=True)
    second.graph.invoke(None, CONFIG)
    assert models_called(server)[:2] == ["large", "small"]
    assert second.learnt == ["small", "large"]


@pytest.mark.parametrize("node", [True, False], ids=["node", "model alone"])
@pytest.mark.parametrize("same", [True, False], ids=["same process", "new process"])
def test_going_back_in_time(
    same: bool, node: bool, saver: Any, make_router: Callable[..., Router], clients: Any, server: OpenAIServer
) -> None:
    """A fork changes every id LangGraph has; the calls are the same ones all the same."""
    first = Process(make_router, clients, saver, ("large", "small", "small", "small"), node)
    first.graph.invoke(HI, CONFIG)
    before = next(
        item for item in first.graph.get_state_history(CONFIG) if item.next == (("route",) if node else ("work",))
    )
    second = first if same else Process(make_router, clients, saver, ("small", "large"), node)
    second.graph.invoke(None, before.config)
    assert models_called(server) == ["large", "small"] * 2
    assert second.router.spent("t")["usd"] == pytest.approx(2 * (CALL["large"] + CALL["small"]))
    if same:
        assert second.learnt == ["large", "small"]
        assert second.policy.asked == 2
    if node:
        assert second.records() == [("large", 2), ("small", 2)]


def test_back_in_time_in_a_new_process_teaches_what_was_not_learnt(
    saver: Any, make_router: Callable[..., Router], clients: Any
) -> None:
    first = Process(make_router, clients, saver, ("large", "small"), node=True)
    first.graph.invoke(HI, CONFIG)
    before = next(item for item in first.graph.get_state_history(CONFIG) if item.next == ("route",))
    second = Process(make_router, clients, saver, ("small", "large"), node=True)
    second.graph.invoke(None, before.config)
    learnt_by_first = [model for _, model, _ in first.policy.learnt]
    assert [*learnt_by_first, *second.learnt] == ["large", "small"]


def test_a_fork_with_the_same_question_replays_and_with_another_decides(
    saver: Any, make_router: Callable[..., Router], clients: Any, server: OpenAIServer
) -> None:
    only = Process(make_router, clients, saver, ("large", "small", "large", "large"), node=True)
    only.graph.invoke(HI, CONFIG)
    before = next(item for item in only.graph.get_state_history(CONFIG) if item.next == ("check",))
    same = only.graph.update_state(before.config, {KEY: {}})
    only.graph.invoke(None, same)
    assert models_called(server) == ["large", "small", "small"]
    assert only.policy.asked == 2
    other = only.graph.update_state(before.config, {"messages": ["by the way"]}, as_node="work")
    only.graph.invoke(None, other)
    assert only.policy.asked == 3
    assert models_called(server)[3:] == ["large"]


def test_a_loop_that_asks_the_same_again_is_a_new_step(
    saver: Any, make_router: Callable[..., Router], clients: Any, server: OpenAIServer
) -> None:
    class Count(TypedDict):
        left: int

    policy = Turns(("large", "small"))
    llm = RoutedChatModel(make_router(policy), clients)

    def work(state: Count) -> Any:
        llm.invoke("the same question")
        return {"left": state["left"] - 1}

    builder = StateGraph(Count)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: "work" if state["left"] else END, ["work", END])
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"left": 4}, CONFIG)
    assert models_called(server) == ["large", "small", "large", "small"]
    middle = next(item for item in graph.get_state_history(CONFIG) if item.values.get("left") == 2)
    graph.invoke(None, middle.config)
    assert models_called(server)[4:] == ["large", "small"]
    assert policy.asked == 4


@pytest.mark.parametrize("node", [True, False], ids=["node", "model alone"])
def test_the_budget_goes_on_in_a_new_process(
    node: bool, saver: Any, make_router: Callable[..., Router], clients: Any, server: OpenAIServer
) -> None:
    first = Process(make_router, clients, saver, ("large", "small"), node, budget=Budget(usd=0.01))
    first.graph.invoke(HI, CONFIG)
    spent = first.router.spent("t")["usd"]
    assert spent == pytest.approx(CALL["large"] + CALL["small"])
    limit = Budget(usd=spent + 0.0001)  # room for less than the worst case of the cheapest call
    second = Process(make_router, clients, saver, ("large", "small"), node, budget=limit)
    with pytest.raises(BudgetExceeded) as refusal:
        second.graph.invoke({"messages": ["more"]}, CONFIG)
    assert refusal.value.spent == pytest.approx(spent)
    fresh = Process(make_router, clients, saver, ("large", "small"), node, budget=limit)
    fresh.graph.invoke({"messages": ["more"]}, {"configurable": {"thread_id": "another"}})
    assert len(server.calls) == 4


def counting_graph(make_router: Callable[..., Router], clients: Any, saver: Any, ends: bool) -> tuple[Router, Any]:
    router = make_router()
    llm = RoutedChatModel(router, clients)
    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(router))
    builder.add_node("work", lambda state: {"messages": [llm.invoke(state["messages"])]})
    builder.add_node("end", finish_node(router, ends=ends))
    for one, two in ((START, "route"), ("route", "work"), ("work", "end")):
        builder.add_edge(one, two)
    return router, builder.compile(checkpointer=saver)


@pytest.mark.parametrize("same", [True, False], ids=["same process", "new process"])
def test_what_follows_a_finished_task_is_another(
    same: bool, saver: Any, make_router: Callable[..., Router], clients: Any
) -> None:
    router, graph = counting_graph(make_router, clients, saver, ends=True)
    graph.invoke(HI, CONFIG)
    assert router.ended("t")
    (record,) = graph.get_state(CONFIG).values[KEY].values()
    assert (record["ended"], record["billed"], record["learnt"]) == (True, 1, 1)
    if not same:
        router, graph = counting_graph(make_router, clients, saver, ends=False)
    seen: list[Any] = []
    finish, router.finish = (
        router.finish,
        lambda *given, **more: seen.append(router.spent("t")) or finish(*given, **more),
    )  # type: ignore[method-assign]
    graph.invoke({"messages": ["more"]}, CONFIG)
    spent = seen[0] if same else router.spent("t")
    assert spent["tokens"] == 28
    assert len(graph.get_state(CONFIG).values[KEY]) == 2


def test_a_task_finished_by_the_host_begins_anew(make_router: Callable[..., Router], clients: Any) -> None:
    router, graph = counting_graph(make_router, clients, InMemorySaver(), ends=False)
    graph.invoke(HI, CONFIG)
    router.finish("t", success=True)
    graph.invoke({"messages": ["more"]}, CONFIG)
    assert router.spent("t")["tokens"] == 28
    assert [decision.step for decision in router.decisions("t")] == ["0"]


def test_a_journal_that_was_let_go_counts_nothing_twice(make_router: Callable[..., Router], clients: Any) -> None:
    from steproute.plugins.langgraph.journals import journals_of

    router, graph = counting_graph(make_router, clients, InMemorySaver(), ends=False)
    graph.invoke(HI, CONFIG)
    journals_of(router)._open.clear()
    graph.invoke({"messages": ["more"]}, CONFIG)
    assert router.spent("t")["tokens"] == 56
    assert len(router.ledger("t").steps) == 2  # type: ignore[union-attr]


def test_a_very_long_thread_without_a_router_node(saver: Any, make_router: Callable[..., Router], clients: Any) -> None:
    """What is saved beside a checkpoint stays small; the spending of all steps goes on in a new process."""

    def build() -> tuple[Router, Any]:
        router = make_router()
        llm = RoutedChatModel(router, clients)
        builder = StateGraph(MessagesState)
        builder.add_node("work", lambda state: {"messages": [llm.invoke(state["messages"][-1:])]})
        builder.add_edge(START, "work")
        return router, builder.compile(checkpointer=saver)

    _, graph = build()
    for number in range(40):
        graph.invoke({"messages": [str(number)]}, CONFIG)
    router, graph = build()
    graph.invoke({"messages": ["last"]}, CONFIG)
    assert router.spent("t")["tokens"] == pytest.approx(41 * 28)
    saved = max(len(str(write)) for item in saver.list(CONFIG) for write in item.pending_writes or ())
    assert saved < 40_000


async def test_a_blocking_call_in_an_asynchronous_node(
    asaver: Any, make_router: Callable[..., Router], clients: Any
) -> None:
    router = make_router()
    llm = RoutedChatModel(router, clients)

    async def work(state: MessagesState, config: RunnableConfig) -> Any:
        return {"messages": [llm.invoke(state["messages"], config)]}

    builder = StateGraph(MessagesState)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    out = await builder.compile(checkpointer=asaver).ainvoke(HI, CONFIG)
    assert out["messages"][-1].content == "small speaking"
    assert router.errors == 0


def test_a_task_that_was_only_idle_goes_on_with_its_budget(make_router: Callable[..., Router], clients: Any) -> None:
    now = [0.0]
    only = Process(
        make_router,
        clients,
        InMemorySaver(),
        ("large", "none", "small"),
        node=True,
        clock=lambda: now[0],
        idle_timeout=10,
    )
    only.hooks.append(ask_a_person)
    only.graph.invoke(HI, CONFIG)
    now[0] = 5000.0
    only.router.decide("another")  # hours later: the router has let go of the task
    assert only.router.ledger("t") is None
    only.hooks.append(ask_a_person)
    only.graph.invoke(Command(resume="yes"), CONFIG)
    assert only.router.spent("t")["usd"] == pytest.approx(2 * CALL["large"] + CALL["small"])


def test_subtasks_of_a_task_that_was_only_idle_do_not_begin_it_anew(
    make_router: Callable[..., Router], clients: Any
) -> None:
    class Planned(MessagesState):
        todos: list[str]

    now = [0.0]
    router = make_router(clock=lambda: now[0], idle_timeout=10)
    llm = RoutedChatModel(router, clients)
    builder = StateGraph(Planned)
    builder.add_node("route", router_node(router, Planned, role="work"))
    builder.add_node("work", lambda state: {"messages": [llm.invoke(state["messages"])]})
    builder.add_edge(START, "route")
    builder.add_edge("route", "work")
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({"messages": ["hi"], "todos": ["one"]}, CONFIG)
    now[0] = 5000.0
    router.decide("another")
    graph.invoke({"messages": ["go on"], "todos": ["one", "two"]}, CONFIG)
    ledger = router.ledger("t")
    assert ledger is not None
    assert len(ledger.steps) == 2
    assert [subtask.text for subtask in ledger.subtasks] == ["one", "two"]


def test_how_a_tool_ended_is_known_in_a_new_process(
    saver: Any, make_router: Callable[..., Router], clients: Any, server: OpenAIServer
) -> None:
    """The model asked for the tool in one process; a person answers it in another."""
    prebuilt = pytest.importorskip("langgraph.prebuilt")

    def ask(question: str) -> str:
        """Ask a person."""
        return str(interrupt(question))

    server.queue(Reply(content="", tool_calls=[{"name": "ask", "arguments": {"question": "go on?"}}]))
    agents = []
    for _ in range(2):
        router = make_router()
        llm = RoutedChatModel(router, clients)
        agents.append((router, prebuilt.create_react_agent(llm, [ask], checkpointer=saver)))
    (_, first), (router, second) = agents
    assert "__interrupt__" in first.invoke(HI, CONFIG)
    second.invoke(Command(resume="yes"), CONFIG)
    steps = router.ledger("t").steps  # type: ignore[union-attr]
    assert [[(call.name, call.ok) for call in step.tool_calls] for step in steps] == [[("ask", True)], []]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="LangGraph cannot interrupt asynchronous nodes on Python 3.10")
async def test_asynchronous_graphs_and_savers(
    asaver: Any, make_router: Callable[..., Router], clients: Any, server: OpenAIServer
) -> None:
    def build(order: tuple[str, ...]) -> tuple[Turns, Router, Any]:
        policy = Turns(order)
        router = make_router(policy)
        llm = RoutedChatModel(router, clients)

        async def work(state: MessagesState, config: RunnableConfig) -> Any:
            reply = await llm.ainvoke(state["messages"], config)
            interrupt("go on?")
            return {"messages": [reply]}

        builder = StateGraph(MessagesState)
        builder.add_node("route", router_node(router))
        builder.add_node("work", work)
        builder.add_node("end", finish_node(router))
        for one, two in ((START, "route"), ("route", "work"), ("work", "end")):
            builder.add_edge(one, two)
        return policy, router, builder.compile(checkpointer=asaver)

    _, _, graph = build(("large",))
    assert "__interrupt__" in await graph.ainvoke(HI, CONFIG)
    policy, _, graph = build(("small",))
    await graph.ainvoke(Command(resume="yes"), CONFIG)
    assert models_called(server) == ["large", "large"]
    assert [model for _, model, _ in policy.learnt] == ["large"]
    (record,) = (await graph.aget_state(CONFIG)).values[KEY].values()
    assert (record["model"], record["billed"], record["answers"]) == ("large", 2, 2)


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
def test_every_durability(
    mode: Any, saver: Any, make_router: Callable[..., Router], clients: Any, server: OpenAIServer
) -> None:
    first = Process(make_router, clients, saver, ("large", "small"), node=True)
    first.hooks.append(ask_a_person)
    first.graph.invoke(HI, CONFIG, durability=mode)
    second = Process(make_router, clients, saver, ("small", "small"), node=True)
    second.hooks.append(ask_a_person)
    second.graph.invoke(Command(resume="yes"), CONFIG, durability=mode)
    assert models_called(server) == ["large", "large", "small"]
    assert second.router.spent("t")["usd"] == pytest.approx(2 * CALL["large"] + CALL["small"])


def test_what_is_saved_beside_a_checkpoint_stays_out_of_the_hosts_way(
    saver: Any, make_router: Callable[..., Router], clients: Any
) -> None:
    only = Process(make_router, clients, saver, ("large", "small"), node=True)
    only.hooks.append(ask_a_person)
    only.graph.invoke(HI, CONFIG)
    state = only.graph.get_state(CONFIG)
    assert [task.name for task in state.tasks] == ["work"]
    assert [item.value for item in state.interrupts] == ["go on?"]
    only.graph.update_state(CONFIG, {"messages": ["one more thing"]})
    only.hooks.append(ask_a_person)
    only.graph.invoke(None, CONFIG)
    only.graph.invoke(Command(resume="yes"), CONFIG)
    assert len(list(only.graph.get_state_history(CONFIG))) > 3


def test_a_checkpointer_that_refuses_is_no_fault_of_the_host(make_router: Callable[..., Router], clients: Any) -> None:
    class Refusing(InMemorySaver):
        def put_writes(self, config: Any, writes: Any, *more: Any) -> None:
            if any(channel == "steproute:journal" for channel, _ in writes):
                raise OSError("disk full")
            super().put_writes(config, writes, *more)

    router, graph = counting_graph(lambda: make_router(on_error="fallback"), clients, Refusing(), ends=False)
    assert graph.invoke(HI, CONFIG)["messages"][-1].content == "small speaking"
    assert router.errors == 2
    assert router.spent("t")["tokens"] == 28


SCRIPT = """
import os, signal, sqlite3, sys
sys.path.insert(0, {tests!r})
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph_doubles import LARGE, SMALL, Turns
from steproute import Router
from steproute.plugins.langgraph import RoutedChatModel, router_node

path, url, order, end, node = sys.argv[1:]
policy = Turns(tuple(order.split(",")))
router = Router((SMALL, LARGE), policy=policy, on_error="raise")
llm = RoutedChatModel(router, {{name: ChatOpenAI(model=name, base_url=url, api_key="none", max_retries=0) for name in ("small", "large")}})

def work(state: MessagesState):
    reply = llm.invoke(state["messages"])
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return {{"messages": [reply]}}

builder = StateGraph(MessagesState)
builder.add_node("work", work)
if node == "node":
    builder.add_node("route", router_node(router))
    builder.add_edge("route", "work")
builder.add_edge(START, "route" if node == "node" else "work")
if path.startswith("postgresql:"):
    from langgraph.checkpoint.postgres import PostgresSaver
    opened = PostgresSaver.from_conn_string(path)
    saver = opened.__enter__()
    saver.setup()
else:
    from langgraph.checkpoint.sqlite import SqliteSaver
    saver = SqliteSaver(sqlite3.connect(path, check_same_thread=False))
graph = builder.compile(checkpointer=saver)
config = {{"configurable": {{"thread_id": f"killed-{{node}}"}}}}
graph.invoke({{"messages": ["hi"]}} if end == "kill" else None, config, durability="sync")
task = f"killed-{{node}}"
usd = router.spent(task)["usd"]
router.finish(task)
print(usd, [model for _, model, _ in policy.learnt])
"""


@pytest.mark.parametrize("kind", SAVERS[1:])
@pytest.mark.parametrize("node", ["node", "alone"])
def test_killed_and_begun_again(
    node: str, kind: str, tmp_path: Path, server: OpenAIServer, request: pytest.FixtureRequest
) -> None:
    """kill -9 between the call and the end of its node: decision, bill and lesson are those of the first process."""
    pytest.importorskip(f"langgraph.checkpoint.{kind}")
    place = str(tmp_path / "c.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    script = tmp_path / "program.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parents[2])))

    def start(order: str, end: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), place, server.base_url, order, end, node]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )

    assert start("large", "kill").returncode == -9
    second = start("small", "end")
    assert second.returncode == 0, second.stderr
    assert models_called(server) == ["large", "large"]
    usd, _, learnt = second.stdout.partition(" ")
    assert float(usd) == pytest.approx(2 * CALL["large"])
    assert learnt.strip() == "['large']"


class Fan(TypedDict):
    items: list[int]


class Branch(TypedDict):
    item: int


def worst(prompt: str) -> float:
    """USD of a call of `small` with as many completion tokens as it may have."""
    return SMALL.price.usd(read_prompt([HumanMessage(prompt)]).tokens, 100)  # type: ignore[union-attr]


@pytest.mark.parametrize("thread", [True, False], ids=["thread", "no thread"])
def test_fifty_branches_keep_a_hard_limit_exactly(
    thread: bool, make_router: Callable[..., Router], clients: Any, server: OpenAIServer
) -> None:
    """Each call may cost at most 100 completion tokens; as many are granted as fit, however many threads ask."""
    granted, refused, lock = [], [], threading.Lock()
    room = 20
    limit = CALL["small"] * (room - 1) + worst("item 12") + 1e-9
    router = make_router(budget=Budget(usd=limit), policy="fixed:small", models=(SMALL,))
    llm = RoutedChatModel(router, {"small": clients["small"]})

    def work(state: Branch) -> Any:
        try:
            llm.invoke(f"item {state['item']}")
        except BudgetExceeded as refusal:
            with lock:
                refused.append(refusal)
        else:
            with lock:
                granted.append(state["item"])
        return {}

    builder = StateGraph(Fan)
    builder.add_node("start", lambda state: {})
    builder.add_node("work", work)
    builder.add_edge(START, "start")
    builder.add_conditional_edges(
        "start", lambda state: [Send("work", {"item": item}) for item in state["items"]], ["work"]
    )
    graph = builder.compile(checkpointer=InMemorySaver() if thread else None)
    config: Any = {**(CONFIG if thread else {}), "max_concurrency": 1}
    graph.invoke({"items": list(range(10, 60))}, config)
    assert (len(granted), len(refused)) == (room, 50 - room)
    assert len(server.calls) == room
    assert {item.task for item in refused} == {refused[0].task}
    assert router.spent(refused[0].task)["usd"] == pytest.approx(room * CALL["small"])


async def test_fifty_branches_at_once_are_granted_exactly_what_fits(
    asaver: Any, make_router: Callable[..., Router], chat: Callable[..., Any]
) -> None:
    """No reply comes before all fifty have asked, so that only reservations can keep the limit."""
    all_asked, room = threading.Event(), 20

    def answer(body: Any) -> Reply:
        assert all_asked.wait(60)
        return Reply(content=body["messages"][-1]["content"])

    router = make_router(budget=Budget(usd=room * worst("item 12") + 1e-9), policy="fixed:small", models=(SMALL,))
    refused: list[BudgetExceeded] = []
    with OpenAIServer(answer) as server:
        llm = RoutedChatModel(router, {"small": chat("small", base_url=server.base_url)})

        async def work(state: Branch, config: RunnableConfig) -> Any:
            try:
                await llm.ainvoke(f"item {state['item']}", config)
            except BudgetExceeded as refusal:
                refused.append(refusal)
                if len(refused) == 50 - room:
                    all_asked.set()
            return {}

        builder = StateGraph(Fan)
        builder.add_node("start", lambda state: {})
        builder.add_node("work", work)
        builder.add_node("note", finish_node(router, Fan, ends=False))
        builder.add_edge(START, "start")
        builder.add_edge("work", "note")
        builder.add_conditional_edges(
            "start", lambda state: [Send("work", {"item": item}) for item in state["items"]], ["work"]
        )
        graph = builder.compile(checkpointer=asaver)
        await graph.ainvoke({"items": list(range(10, 60))}, CONFIG)
        assert len(server.calls) == room
    assert len(refused) == 50 - room
    assert router.spent("t")["usd"] == pytest.approx(room * CALL["small"])
    assert router.accounts.spending("t").reserved["usd"] == 0
    records = (await graph.aget_state(CONFIG)).values[KEY].values()
    assert sum(record["billed"] for record in records) == room
