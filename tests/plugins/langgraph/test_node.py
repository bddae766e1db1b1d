"""router_node: any schema, supervisors, parallel branches, subgraphs, commands; the ledger is built from the state."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain_openai")

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.types import Command, Send
from langgraph_doubles import CALL, LARGE, Turns
from pydantic import BaseModel, Field
from servers import OpenAIServer, Reply
from typing_extensions import TypedDict

from steproute import ConfigError, Needs, NoEligibleModel, Router
from steproute.plugins.langgraph import RoutedChatModel, finish_node, latest_decision, router_node
from steproute.plugins.langgraph.records import KEY, merge_records, new_record
from steproute.plugins.langgraph.schema import RouterRecords, with_records

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Plain(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    chosen: str


class Checked(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages] = Field(default_factory=list)
    chosen: str = ""


@dataclasses.dataclass
class Data:
    messages: Annotated[list[AnyMessage], add_messages] = dataclasses.field(default_factory=list)
    chosen: str = ""


class Chat(MessagesState):
    chosen: str


SCHEMAS = {"TypedDict": Plain, "pydantic": Checked, "dataclass": Data, "MessagesState": Chat}


def messages_of(state: Any) -> list[Any]:
    return list(state["messages"] if isinstance(state, dict) else state.messages)


@pytest.mark.parametrize("kind", SCHEMAS)
async def test_any_state_schema(kind: str, make_router: Callable[..., Router], clients: dict[str, Any]) -> None:
    schema = SCHEMAS[kind]
    router = make_router(Turns(("large", "small")))
    llm = RoutedChatModel(router, clients)
    roles: list[Any] = []

    def role(state: Any) -> str:
        assert isinstance(state, schema if kind in ("pydantic", "dataclass") else dict)
        roles.append(state)
        return "worker"

    def worker(state: schema) -> Any:  # type: ignore[valid-type]
        return {"messages": [llm.invoke(messages_of(state))]}

    async def again(state: schema, config: RunnableConfig) -> Any:  # type: ignore[valid-type]
        return {"messages": [await llm.ainvoke(messages_of(state), config)]}

    builder = StateGraph(schema)
    builder.add_node("route", router_node(router, schema, role=role, into="chosen"))
    builder.add_node("worker", RunnableLambda(worker, again))
    builder.add_node("note", finish_node(router, schema, ends=False))
    builder.add_edge(START, "route")
    builder.add_edge("route", "worker")
    builder.add_edge("worker", "note")
    graph = builder.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "one"}}
    out = graph.invoke({"messages": [HumanMessage("hi")]}, config)
    assert out["chosen"] == "large"
    assert [message.content for message in out["messages"]] == ["hi", "large speaking"]
    assert KEY not in out
    out = await graph.ainvoke({"messages": [HumanMessage("more")]}, config)
    assert out["chosen"] == "small"
    (first, second) = graph.get_state(config).values[KEY].values()
    assert (first["model"], first["role"], first["status"], first["billed"]) == ("large", "worker", "answered", 1)
    assert (second["model"], second["step"]) == ("small", "1")
    assert router.spent("one")["usd"] == pytest.approx(CALL["large"] + CALL["small"])
    assert len(router.decisions("one")) == 2
    assert len(roles) == 2


def test_state_without_messages(make_router: Callable[..., Router]) -> None:
    class Job(TypedDict):
        job: str
        left: int

    router = make_router("fixed:large")
    builder = StateGraph(Job)
    builder.add_node("route", router_node(router, Job, role="worker"))
    builder.add_node("work", lambda state: {"left": state["left"] - 1})
    builder.add_edge(START, "route")
    builder.add_edge("route", "work")
    builder.add_conditional_edges("work", lambda state: "route" if state["left"] else END, ["route", END])
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({"job": "sort the letters", "left": 3}, {"configurable": {"thread_id": "t"}})
    assert [decision.step for decision in router.decisions("t")] == ["0", "0.1", "0.2"]
    assert "sort the letters" in router.ledger("t").task.goal  # type: ignore[union-attr]


@pytest.mark.parametrize("way", ["inherited", "handed on", "part of it", "and more"])
def test_a_call_knows_its_place_however_its_configuration_comes(
    way: str, make_router: Callable[..., Router], clients: dict[str, Any]
) -> None:
    seen: list[RunnableConfig] = []

    def task(config: RunnableConfig) -> str:
        seen.append(config)
        return str(config["configurable"]["customer"])

    router = make_router("fixed:small")
    llm = RoutedChatModel(router, clients, task=task)

    def worker(state: MessagesState, config: RunnableConfig) -> Any:
        handed: dict[str, Any] = {
            "inherited": None,
            "handed on": config,
            "part of it": {"configurable": config["configurable"]},
            "and more": {**config, "steproute_role": "coder"},
        }
        return {"messages": [llm.invoke(state["messages"], handed[way])]}

    builder = StateGraph(MessagesState)
    builder.add_node("worker", worker)
    builder.add_edge(START, "worker")
    graph = builder.compile()
    config: Any = {"configurable": {"thread_id": "t", "customer": "c-7"}, "metadata": {"plan": "gold"}, "tags": ["vip"]}
    graph.invoke({"messages": [HumanMessage("hi")]}, config)
    (decision,) = router.decisions("c-7")
    assert decision.role == ("coder" if way == "and more" else "worker")
    assert seen[-1]["metadata"]["plan"] == "gold"
    assert seen[-1]["tags"] == ["vip"]


@pytest.mark.parametrize(("role", "heard"), [("worker", 1), ("writer", 0)])
def test_a_role_that_no_call_is_made_for_is_told_of_once(
    role: str, heard: int, make_router: Callable[..., Router], clients: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    router = make_router("fixed:small")
    llm = RoutedChatModel(router, clients)
    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(router, MessagesState, role=role))
    builder.add_node("writer", lambda state: {"messages": [llm.invoke(state["messages"])]})
    builder.add_edge(START, "route")
    builder.add_edge("route", "writer")
    graph = builder.compile(checkpointer=InMemorySaver())
    for turn in range(3):
        graph.invoke({"messages": [HumanMessage(f"turn {turn}")]}, {"configurable": {"thread_id": "t"}})
    assert not caplog.messages  # a decision may be passed over, and the latest may still be taken
    for turn in range(3):
        graph.invoke({"messages": [HumanMessage(f"more {turn}")]}, {"configurable": {"thread_id": "t"}})
    told = [message for message in caplog.messages if "router_node decided 3 times for role 'worker'" in message]
    assert len(told) == len(caplog.messages) == heard
    assert all("seen: calls for 'writer'" in message for message in told)


def test_decisions_the_graph_acts_on_itself_need_no_call(
    make_router: Callable[..., Router], clients: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    class State(MessagesState):
        chosen: str

    router = make_router("fixed:small")
    llm = RoutedChatModel(router, clients)
    builder = StateGraph(State)
    builder.add_node("route", router_node(router, State, role="painter", into="chosen"))
    builder.add_node("writer", lambda state: {"messages": [llm.invoke(state["messages"])]})
    builder.add_node("finish", finish_node(router, State))
    builder.add_edge(START, "route")
    builder.add_edge("route", "writer")
    builder.add_edge("writer", "finish")
    graph = builder.compile()
    for turn in range(6):
        graph.invoke({"messages": [HumanMessage("draw")]}, {"configurable": {"thread_id": f"t{turn}"}})
    assert not caplog.messages


def test_a_role_nobody_calls_is_told_of_at_the_end_of_tasks(
    make_router: Callable[..., Router], clients: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    router = make_router("fixed:small")
    llm = RoutedChatModel(router, clients, role="writer")
    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(router, MessagesState, role="worker"))
    builder.add_node("worker", lambda state: {"messages": [llm.invoke(state["messages"])]})
    builder.add_node("finish", finish_node(router, MessagesState))
    builder.add_edge(START, "route")
    builder.add_edge("route", "worker")
    builder.add_edge("worker", "finish")
    graph = builder.compile()
    for turn in range(6):
        graph.invoke({"messages": [HumanMessage("write")]}, {"configurable": {"thread_id": f"t{turn}"}})
    assert [message.partition(";")[0] for message in caplog.messages] == [
        "steproute: router_node decided 3 times for role 'worker', and no call was made for it"
    ]


# --- the traps --------------------------------------------------------------------------------------------------


def test_the_reducer_is_the_last_item_of_the_annotation() -> None:
    """Anything else makes LangGraph take a LastValue, which loses half of what parallel branches write."""
    from langgraph.channels import BinaryOperatorAggregate

    assert RouterRecords.__metadata__[-1] is merge_records  # type: ignore[attr-defined]
    for schema in SCHEMAS.values():
        builder = StateGraph(with_records(schema))
        assert isinstance(builder.channels[KEY], BinaryOperatorAggregate)

    class Wrong(TypedDict):
        steproute: Annotated[dict[str, Any], merge_records, "a note"]

    with pytest.raises(ConfigError, match="must be annotated with RouterRecords"):
        with_records(Wrong)


def test_a_write_is_not_dropped_for_want_of_an_annotation(make_router: Callable[..., Router]) -> None:
    """A node whose first argument is not annotated with the key writes into nothing, silently."""
    router = make_router()

    def bare(state: Plain) -> Any:
        return {KEY: {"k": new_record("k")}}

    for node, kept in ((bare, False), (router_node(router, Plain), True)):
        builder = StateGraph(Plain)
        builder.add_node("node", node)
        builder.add_edge(START, "node")
        graph = builder.compile(checkpointer=InMemorySaver())
        config: Any = {"configurable": {"thread_id": "t"}}
        graph.invoke({"messages": ["hi"]}, config)
        assert bool(graph.get_state(config).values.get(KEY)) is kept


def test_what_is_no_schema_is_refused(make_router: Callable[..., Router]) -> None:
    with pytest.raises(ConfigError, match="allowed: a TypedDict"):
        router_node(make_router(), {"messages": list})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no fields"):
        router_node(make_router(), int)


def test_a_field_the_schema_does_not_have_is_refused(make_router: Callable[..., Router]) -> None:
    """LangGraph would drop what is written there, and say nothing."""
    with pytest.raises(ConfigError, match="into: unknown name 'nxt'; did you mean 'next'"):
        router_node(make_router(), Team, into="nxt")
    with pytest.raises(ConfigError, match="messages_key: unknown name 'mesages'"):
        router_node(make_router(), Team, messages_key="mesages")
    with pytest.raises(ConfigError, match="subtasks_key: unknown name 'steps'"):
        finish_node(make_router(), Team, subtasks_key="steps")


@pytest.mark.parametrize("result", ["yes", 7, float("nan")])
def test_a_success_that_is_none_is_refused(result: Any, make_router: Callable[..., Router]) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("finish", finish_node(make_router(), success=lambda state: result))
    builder.add_edge(START, "finish")
    with pytest.raises(ConfigError, match=r"success: seen .*; allowed: True, False, None or a reward"):
        builder.compile().invoke({"messages": ["hi"]})


records = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(lambda version: {"version": version, "value": version}, st.integers(0, 5)),
    max_size=4,
)


@given(records, records, records)
def test_records_merge_in_any_order_and_any_number_of_times(a: Any, b: Any, c: Any) -> None:
    merged = merge_records(merge_records(a, b), c)
    assert merged == merge_records(a, merge_records(c, b))
    assert merged == merge_records(merged, b)
    assert {key: record["version"] for key, record in merged.items()} == {
        key: max(part[key]["version"] for part in (a, b, c) if key in part) for key in {*a, *b, *c}
    }


# --- shapes of graphs -------------------------------------------------------------------------------------------


class Team(MessagesState):
    next: str


def test_a_supervisor_with_workers(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    """Each role gets its own decision, made before it is called; the supervisor's is another than the workers'."""
    server.queue(
        Reply(content="coder"),
        Reply(content="def f(): ..."),
        Reply(content="tester"),
        Reply(content="works"),
        Reply(content="end"),
    )
    policy = Turns(("large", "small"))
    router = make_router(policy)
    llm = RoutedChatModel(router, clients)

    def supervisor(state: Team) -> Command[Literal["route", "__end__"]]:
        word = llm.invoke(state["messages"]).content
        return Command(goto=END if word == "end" else "route", update={"next": word})

    def worker(state: Team) -> Any:
        return {"messages": [llm.invoke(state["messages"])]}

    builder = StateGraph(Team)
    builder.add_node("supervisor", supervisor)
    builder.add_node("route", router_node(router, Team, role=lambda state: state["next"]))
    for name in ("coder", "tester"):
        builder.add_node(name, worker)
        builder.add_edge(name, "supervisor")
    builder.add_edge(START, "supervisor")
    builder.add_conditional_edges("route", lambda state: state["next"], ["coder", "tester"])
    builder.compile(checkpointer=InMemorySaver()).invoke(
        {"messages": ["write f"]}, {"configurable": {"thread_id": "t"}}
    )
    steps = router.ledger("t").steps  # type: ignore[union-attr]
    assert [(step.role, step.model) for step in steps] == [
        ("supervisor", "large"),
        ("coder", "small"),
        ("supervisor", "large"),
        ("tester", "small"),
        ("supervisor", "large"),
    ]
    assert policy.asked == 5


class Fan(TypedDict):
    items: list[str]
    results: Annotated[list[str], operator.add]


class Branch(TypedDict):
    item: str


def test_fifty_parallel_branches_keep_every_record(make_router: Callable[..., Router], clients: dict[str, Any]) -> None:
    router = make_router()
    llm = RoutedChatModel(router, clients)

    def work(state: Branch) -> Any:
        return {"results": [llm.invoke(f"item {state['item']}").content]}

    builder = StateGraph(Fan)
    builder.add_node("route", router_node(router, Fan))
    builder.add_node("work", work)
    builder.add_edge(START, "route")
    builder.add_node("note", finish_node(router, Fan, ends=False))
    builder.add_edge("work", "note")
    builder.add_conditional_edges(
        "route", lambda state: [Send("work", {"item": item}) for item in state["items"]], ["work"]
    )
    graph = builder.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}, "max_concurrency": 8}
    out = graph.invoke({"items": ["same"] * 25 + [str(number) for number in range(25)]}, config)
    assert len(out["results"]) == 50
    records = graph.get_state(config).values[KEY]
    assert len(records) == 50  # the node's own decision is the first branch's
    assert {record["billed"] for record in records.values()} == {1}
    assert sum(record["spent"]["tokens"] for record in records.values()) == router.spent("t")["tokens"] == 50 * 28


def test_router_nodes_in_parallel_branches(make_router: Callable[..., Router]) -> None:
    router = make_router()

    def spread(state: Fan) -> Any:
        return [Send("route", {"messages": [HumanMessage(item)]}) for item in state["items"]]

    builder = StateGraph(Fan)
    builder.add_node("start", lambda state: {})
    builder.add_node("route", router_node(router, MessagesState))
    builder.add_edge(START, "start")
    builder.add_conditional_edges("start", spread, ["route"])
    graph = builder.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"items": ["same"] * 5}, config)
    assert len(graph.get_state(config).values[KEY]) == 5
    assert len({decision.id for decision in router.decisions("t")}) == 5


@pytest.mark.parametrize("shared", [False, True])
def test_subgraphs_take_the_decision_and_count_once(
    shared: bool, make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    """The trap: a list under `operator.add` that a subgraph shares with its parent comes back twice."""

    class Shared(MessagesState):
        steproute: RouterRecords

    schema: Any = Shared if shared else MessagesState
    router = make_router(Turns(("large", "small")))
    llm = RoutedChatModel(router, clients)

    def work(state: MessagesState) -> Any:
        return {"messages": [llm.invoke(state["messages"])]}

    inner = StateGraph(schema)
    inner.add_node("work", work)
    inner.add_edge(START, "work")
    outer = StateGraph(schema)
    outer.add_node("route", router_node(router, schema))
    outer.add_node("team", inner.compile())
    outer.add_node("last", router_node(router, schema, role="closer"))
    outer.add_edge(START, "route")
    outer.add_edge("route", "team")
    outer.add_edge("team", "last")
    graph = outer.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": ["hi"]}, config)
    assert [call.body["model"] for call in server.calls] == ["large"]  # decided by the node in the graph around it
    records = graph.get_state(config).values[KEY]
    assert sum(record["billed"] for record in records.values()) == 1
    assert sum(record["spent"].get("tokens", 0) for record in records.values()) == 28
    assert router.spent("t")["tokens"] == 28


def test_a_subgraph_with_a_router_node_of_its_own(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    router = make_router(Turns(("large", "small")))
    llm = RoutedChatModel(router, clients)

    def work(state: MessagesState) -> Any:
        return {"messages": [llm.invoke(state["messages"])]}

    inner = StateGraph(MessagesState)
    inner.add_node("route", router_node(router))
    inner.add_node("work", work)
    inner.add_edge(START, "route")
    inner.add_edge("route", "work")
    outer = StateGraph(MessagesState)
    outer.add_node("route", router_node(router))
    outer.add_node("team", inner.compile())
    outer.add_node("work", work)
    outer.add_edge(START, "route")
    outer.add_edge("route", "team")
    outer.add_edge("team", "work")
    graph = outer.compile(checkpointer=InMemorySaver())
    graph.invoke({"messages": ["hi"]}, {"configurable": {"thread_id": "t"}})
    assert [call.body["model"] for call in server.calls] == ["small", "large"]  # the nearest decision is a call's own
    assert len(router.decisions("t")) == 2


def test_a_command_goes_to_the_node_of_the_model(make_router: Callable[..., Router]) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(make_router("fixed:large"), goto={"small": "cheap", "large": "dear"}))
    builder.add_node("cheap", lambda state: {"messages": [AIMessage("cheap")]})
    builder.add_node("dear", lambda state: {"messages": [AIMessage("dear")]})
    builder.add_edge(START, "route")
    graph = builder.compile()
    assert {edge.target for edge in graph.get_graph().edges if edge.source == "route"} == {"cheap", "dear"}
    assert graph.invoke({"messages": ["hi"]})["messages"][-1].content == "dear"


def test_a_model_without_a_node_is_never_chosen(make_router: Callable[..., Router]) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(make_router("fixed:large"), goto={"small": "cheap"}))
    builder.add_node("cheap", lambda state: {"messages": [AIMessage("cheap")]})
    builder.add_edge(START, "route")
    assert builder.compile().invoke({"messages": ["hi"]})["messages"][-1].content == "cheap"
    with pytest.raises(ConfigError, match="goto: unknown name 'smal'; did you mean 'small'"):
        router_node(make_router(), goto={"smal": "cheap"})


def test_a_command_by_a_callable(make_router: Callable[..., Router]) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node(
        "route",
        router_node(make_router("fixed:large"), goto=lambda record: f"on_{record['model']}"),
        destinations=("on_large",),
    )
    builder.add_node("on_large", lambda state: {"messages": [AIMessage("there")]})
    builder.add_edge(START, "route")
    assert builder.compile().invoke({"messages": ["hi"]})["messages"][-1].content == "there"


def test_later_nodes_read_the_decision(make_router: Callable[..., Router]) -> None:
    seen: dict[str, Any] = {}
    router = make_router("fixed:large")

    def unaware(state: MessagesState) -> Any:
        seen["unaware"] = latest_decision()

    def aware(state: with_records(MessagesState)) -> Any:  # type: ignore[valid-type]
        seen["aware"] = latest_decision(state)
        seen["other"] = latest_decision(state, role="nobody")

    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(router, role="worker"))
    builder.add_node("unaware", unaware)
    builder.add_node("aware", aware)
    builder.add_edge(START, "route")
    builder.add_edge("route", "unaware")
    builder.add_edge("unaware", "aware")
    builder.compile().invoke({"messages": ["hi"]})
    assert seen["unaware"] == seen["aware"]
    assert (seen["aware"]["model"], seen["aware"]["role"]) == ("large", "worker")
    assert set(seen["aware"]["scores"]) == {"small", "large"}
    assert seen["other"] is None
    assert latest_decision() is None


def test_records_are_plain_json(make_router: Callable[..., Router], clients: dict[str, Any]) -> None:
    import json

    router = make_router()
    llm = RoutedChatModel(router, clients)
    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(router))
    builder.add_node("work", lambda state: {"messages": [llm.invoke(state["messages"])]})
    builder.add_edge(START, "route")
    builder.add_edge("route", "work")
    graph = builder.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": ["hi"]}, config)
    records = graph.get_state(config).values[KEY]
    assert json.loads(json.dumps(records)) == records
    assert len(json.dumps(records)) < 1500


def test_a_worker_leaves_no_trace_of_the_router_in_its_own_update(
    make_router: Callable[..., Router], clients: dict[str, Any]
) -> None:
    """What a node writes before it fails would make LangGraph take it for done: the router's nodes write, no other."""
    router = make_router()
    llm = RoutedChatModel(router, clients)

    def twice(state: MessagesState) -> Any:
        llm.invoke("first")
        return {"messages": [llm.invoke("second")]}

    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(router))
    builder.add_node("twice", twice)
    builder.add_node("done", finish_node(router))
    for one, two in ((START, "route"), ("route", "twice"), ("twice", "done")):
        builder.add_edge(one, two)
    updates = list(builder.compile().stream({"messages": ["hi"]}, CONFIG, stream_mode="updates"))
    assert [list(update) for update in updates] == [["route"], ["twice"], ["done"]]
    assert set(updates[1]["twice"]) == {"messages"}
    assert [record["billed"] for record in updates[2]["done"][KEY].values()] == [1, 1]


# --- the ledger -------------------------------------------------------------------------------------------------


def test_tool_errors_reach_the_ledger(make_router: Callable[..., Router]) -> None:
    from langgraph.prebuilt import ToolNode

    def search(query: str) -> str:
        """Search."""
        raise ConnectionError(f"no route to {query}")

    router = make_router()
    calls = [
        {"name": "search", "args": {"query": "moon"}, "id": "c1"},
        {"name": "search", "args": {"query": "sun"}, "id": "c2"},
    ]

    def ask(state: MessagesState) -> Any:
        return {"messages": [AIMessage("", tool_calls=calls, response_metadata={"model_name": "small"})]}

    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(router, role="worker"))
    builder.add_node("ask", ask)
    builder.add_node("tools", ToolNode([search], handle_tool_errors=True))
    builder.add_node("again", router_node(router, role="worker"))
    for one, two in ((START, "route"), ("route", "ask"), ("ask", "tools"), ("tools", "again")):
        builder.add_edge(one, two)
    builder.compile(checkpointer=InMemorySaver()).invoke({"messages": ["hi"]}, {"configurable": {"thread_id": "t"}})
    (step,) = router.ledger("t").steps  # type: ignore[union-attr]
    assert [(call.name, call.ok) for call in step.tool_calls] == [("search", False), ("search", False)]
    assert "no route to moon" in step.tool_calls[0].error
    assert router.decisions("t")[-1].progress.regime.label == "recoverable"


@pytest.mark.parametrize("form", ["todos", "objects", "texts"])
def test_subtasks_in_the_state_are_the_ledgers(form: str, make_router: Callable[..., Router]) -> None:
    class Item(BaseModel):
        id: str
        title: str
        status: str

    class Planned(MessagesState):
        todos: list[Any]
        plan: list[Any]

    values = {
        "todos": [
            {"content": "read", "status": "completed"},
            {"content": "write", "status": "in_progress"},
            {"content": "test", "status": "pending"},
        ],
        "objects": [
            Item(id="a", title="read", status="done"),
            Item(id="b", title="write", status="doing"),
            Item(id="c", title="test", status="todo"),
        ],
        "texts": ["read", "write", "test"],
    }[form]
    router = make_router()
    key = "plan" if form == "objects" else None
    builder = StateGraph(Planned)
    builder.add_node("route", router_node(router, Planned, subtasks_key=key))
    builder.add_edge(START, "route")
    graph = builder.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": ["hi"], key or "todos": values}, config)
    subtasks = router.ledger("t").subtasks  # type: ignore[union-attr]
    assert [item.text for item in subtasks] == ["read", "write", "test"]
    if form != "texts":
        assert [item.status for item in subtasks] == ["done", "doing", "todo"]


def test_the_node_alone_with_models_that_are_not_routed(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    """The host calls the model named in the decision itself; its reply is observed at the next visit."""
    policy = Turns(("large", "small"))
    router = make_router(policy)

    class Named(MessagesState):
        model: str

    def work(state: Named) -> Any:
        return {"messages": [clients[state["model"]].invoke(state["messages"])]}

    builder = StateGraph(Named)
    builder.add_node("route", router_node(router, Named, role="worker", into="model"))
    builder.add_node("work", work)
    builder.add_node("done", finish_node(router, Named, success=lambda state: len(state["messages"]) > 2))
    builder.add_edge(START, "route")
    builder.add_edge("route", "work")
    builder.add_conditional_edges(
        "work", lambda state: "route" if len(state["messages"]) < 4 else "done", ["route", "done"]
    )
    graph = builder.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": ["hi"]}, config)
    assert [call.body["model"] for call in server.calls] == ["large", "small", "large"]
    records = list(graph.get_state(config).values[KEY].values())
    assert [(record["model"], record["status"], record["billed"]) for record in records] == [
        ("large", "answered", 1),
        ("small", "answered", 1),
        ("large", "answered", 1),
    ]
    assert sum(record["spent"]["usd"] for record in records) == pytest.approx(2 * CALL["large"] + CALL["small"])
    assert [(role, model) for role, model, _ in policy.learnt] == [
        ("worker", "large"),
        ("worker", "small"),
        ("worker", "large"),
    ]
    assert router.ended("t")


def test_messages_are_known_by_id_not_by_position(make_router: Callable[..., Router], clients: dict[str, Any]) -> None:
    """A trimmed history moves every message; nothing is counted again, nothing is credited to another."""
    router = make_router(Turns(("large", "small")))
    llm = RoutedChatModel(router, clients)

    def trim(state: MessagesState) -> Any:
        return {"messages": [RemoveMessage(message.id) for message in state["messages"][:-2]]}

    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(router))
    builder.add_node("work", lambda state: {"messages": [llm.invoke(state["messages"])]})
    builder.add_node("trim", trim)
    for one, two in ((START, "route"), ("route", "work"), ("work", "trim")):
        builder.add_edge(one, two)
    graph = builder.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    for word in ("one", "two", "three", "four"):
        graph.invoke({"messages": [word]}, config)
    assert len(graph.get_state(config).values["messages"]) == 2
    assert [step.model for step in router.ledger("t").steps] == ["large", "small", "large", "small"]  # type: ignore[union-attr]
    assert router.spent("t")["tokens"] == 4 * 28


def test_a_history_from_before_the_task_costs_nothing(make_router: Callable[..., Router]) -> None:
    router = make_router()
    history = [
        HumanMessage("hi"),
        AIMessage("hello", usage_metadata={"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}),
    ]
    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(router))
    builder.add_edge(START, "route")
    builder.compile().invoke({"messages": [*history, HumanMessage("go on")]}, {"configurable": {"thread_id": "t"}})
    assert len(router.ledger("t").steps) == 1  # type: ignore[union-attr]
    assert router.spent("t").get("tokens", 0) == 0


def test_needs_are_what_the_host_says_and_the_messages_show(make_router: Callable[..., Router]) -> None:
    picture = HumanMessage([{"type": "image_url", "image_url": {"url": "https://example.test/a.png"}}])
    seeing = LARGE.model_copy(update={"vision": True, "tools": False})

    def run(needs: Any, messages: list[Any]) -> str:
        builder = StateGraph(Chat)
        router = make_router("cheapest", models=(seeing, LARGE.model_copy(update={"name": "blind"})))
        builder.add_node("route", router_node(router, Chat, into="chosen", needs=needs))
        builder.add_edge(START, "route")
        return str(builder.compile().invoke({"messages": messages})["chosen"])

    assert run(None, [picture]) == "large"
    assert run(lambda state: Needs(tools=True), [HumanMessage("hi")]) == "blind"
    with pytest.raises(NoEligibleModel, match=r"large: no tool calls; blind: no vision"):
        run(Needs(tools=True), [picture])


def test_a_decision_made_without_knowing_the_tools_is_corrected(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    mute = LARGE.model_copy(update={"tools": False})

    def look(what: str) -> str:
        """Look."""
        return what

    router = make_router("fixed:large", models=(mute, LARGE.model_copy(update={"name": "small"})))
    llm = RoutedChatModel(router, clients).bind_tools([look])
    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(router))
    builder.add_node("work", lambda state: {"messages": [llm.invoke(state["messages"])]})
    builder.add_edge(START, "route")
    builder.add_edge("route", "work")
    builder.compile().invoke({"messages": ["hi"]}, {"configurable": {"thread_id": "t"}})
    assert [call.body["model"] for call in server.calls] == ["small"]
    assert router.accounts.spending("t").reserved.get("usd", 0) == 0


def test_a_tool_result_without_a_call_is_no_fault(make_router: Callable[..., Router]) -> None:
    router = make_router()
    builder = StateGraph(MessagesState)
    builder.add_node("route", router_node(router))
    builder.add_edge(START, "route")
    builder.compile().invoke({"messages": ["hi", ToolMessage("lost", tool_call_id="x", status="error")]})
    assert router.errors == 0


def test_langgraph_missing_names_the_extra() -> None:
    import subprocess
    import sys

    for name, module, extra in (
        ("router_node", "langgraph", "langgraph"),
        ("RoutingMiddleware", "langchain", "langchain"),
        ("RoutedChatModel", "langchain_core", "langgraph"),
    ):
        code = (
            f"import sys; sys.modules['{module}'] = None; sys.modules['{module}.graph'] = None\n"
            f"import steproute.plugins.langgraph as p\n"
            f"try: p.{name}\nexcept ImportError as e: print(e)"
        )
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert f"pip install 'steproute[{extra}]'" in out
        assert name in out
