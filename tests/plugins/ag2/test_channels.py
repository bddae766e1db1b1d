"""Group chats of ag2 ≥ 1.0 on a network hub: one task per channel, its ledger, its end, and failures that say why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

pytest.importorskip("ag2.network")

from ag2 import Agent, tool
from ag2.config import OpenAIConfig
from ag2.knowledge import MemoryKnowledgeStore
from ag2.network import (
    EV_PACKET,
    AgentTarget,
    Envelope,
    FromSpeaker,
    Hub,
    HubClient,
    LocalLink,
    Passport,
    TransitionGraph,
)
from ag2.network.transitions import Transition
from ag2.task import TaskMetadata, TaskSpec, TaskState
from servers import OpenAIServer, Reply

from steproute import Budget, ConfigError, Evidence, Router
from steproute.plugins.ag2 import END, attach, speaker_selector

MakeRouter = Callable[..., Router]


def config(server: OpenAIServer, **more: Any) -> OpenAIConfig:
    return OpenAIConfig(model="own", base_url=server.base_url, api_key="none", max_retries=0, max_tokens=10, **more)


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    opened = await Hub.open(MemoryKnowledgeStore(), ttl_sweep_interval=0, expectation_sweep_interval=0)
    yield opened
    await opened.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Chat:
    """A person and two agents on a hub; the person waits for the channel to end."""

    def __init__(self, hub: Hub, server: OpenAIServer, **settings: Any):
        self.hub, self.server, self.settings = hub, server, settings
        self.agents = [Agent(name, f"You are {name}.", config=config(server)) for name in ("coder", "critic")]

    async def start(self) -> Chat:
        self.people = HubClient(LocalLink(self.hub))
        self.user = await self.people.register_human(Passport(name="user"))
        self.clients = [await self.hub.register(agent, attach_plugin=False) for agent in self.agents]
        return self

    async def talk(self, graph: TransitionGraph | None = None, kind: str = "workflow", **more: Any) -> list[Envelope]:
        """Open a channel, say "go", wait until it is closed, and give back its log."""
        coder, critic = self.clients
        if graph is None and kind == "workflow":
            graph = TransitionGraph.sequence([self.user.agent_id, coder.agent_id, critic.agent_id])
        knobs = {} if graph is None else {"graph": graph.to_dict()}
        channel = await self.user.open(
            type=kind, target=["coder", "critic"] if kind == "workflow" else ["coder"], knobs=knobs, **more
        )
        await channel.send("go")
        await self.user.wait_for_channel_event(
            channel_id=channel.channel_id,
            predicate=lambda item: item.event_type in ("ag2.channel.closed", "ag2.channel.expired"),
            timeout=30,
        )
        while (await self.hub.get_channel(channel.channel_id)).closed_at is None:
            await asyncio.sleep(0)
        await self.people.close()
        return await self.hub.read_wal(channel.channel_id)


def bodies(log: list[Envelope]) -> list[str]:
    return [item.event_data["body"] for item in log if item.event_type == EV_PACKET]


async def test_a_channel_is_a_task_with_its_goal_that_ends_with_the_channel(
    hub: Hub, server: OpenAIServer, make_router: MakeRouter
) -> None:
    ended: list[Any] = []
    chat = await Chat(hub, server).start()
    router = make_router()
    attach(router, *chat.clients, success=lambda ledger: ended.append(ledger) or True)
    log = await chat.talk(intent="write a poem")
    assert bodies(log) == ["small-1b speaking"] * 2
    (ledger,) = ended
    assert (ledger.task.id, ledger.task.goal) == (log[0].channel_id, "write a poem")
    assert [(step.role, step.output) for step in ledger.steps] == [
        ("coder", "small-1b speaking"),
        ("critic", "small-1b speaking"),
    ]
    assert router.ledger(log[0].channel_id) is None


async def test_without_an_intent_the_first_message_is_the_goal(
    hub: Hub, server: OpenAIServer, make_router: MakeRouter
) -> None:
    goals: list[str] = []
    chat = await Chat(hub, server).start()
    attach(make_router(), *chat.agents, success=lambda ledger: goals.append(ledger.task.goal))
    await chat.talk()
    assert goals == ["go"]


@pytest.mark.parametrize("target", ["hub", "agents and hub", "clients", "agents"])
async def test_whatever_is_attached_the_channel_ends_the_task(
    hub: Hub, server: OpenAIServer, make_router: MakeRouter, target: str
) -> None:
    chat = await Chat(hub, server).start()
    router = make_router()
    targets = {"hub": [hub], "agents and hub": [*chat.agents, hub], "clients": chat.clients, "agents": chat.agents}
    attachment = attach(router, *targets[target])
    log = await chat.talk()
    assert {role: row.calls for role, row in attachment.meter.by_role.items()} == {"coder": 1, "critic": 1}
    assert router.ledger(log[0].channel_id) is None
    attachment.detach()
    assert [agent.config.model for agent in chat.agents] == ["own", "own"]
    assert len(hub._listeners) == 1


async def test_a_hub_brings_agents_that_register_later(hub: Hub, server: OpenAIServer, make_router: MakeRouter) -> None:
    attachment = attach(make_router(), hub)
    chat = await Chat(hub, server).start()
    await chat.talk()
    assert {row.calls for row in attachment.meter.by_role.values()} == {1}
    assert attachment.meter.total.calls == 2


async def test_a_channel_brings_its_agents(hub: Hub, server: OpenAIServer, make_router: MakeRouter) -> None:
    chat = await Chat(hub, server).start()
    coder, _ = chat.clients
    channel = await coder.open(type="conversation", target="critic")
    attachment = attach(make_router(), channel)
    assert {type(agent.config).__name__ for agent in chat.agents} == {"RoutedConfig"}
    await channel.close()
    attachment.detach()
    await chat.people.close()


async def test_evidence_from_messages_reaches_the_step_before_them_once(
    hub: Hub, server: OpenAIServer, make_router: MakeRouter
) -> None:
    read: list[str] = []
    ledgers: list[Any] = []

    def judge(envelope: Envelope) -> list[Evidence] | None:
        body = envelope.event_data.get("body", envelope.event_data.get("text"))
        read.append(body)
        return None if body == "go" else [Evidence(source="judge", score=0.25 * len(read), detail=body)]

    chat = await Chat(hub, server).start()
    attach(make_router(), *chat.clients, evidence=judge, success=lambda ledger: ledgers.append(ledger))
    await chat.talk()
    assert read == ["go", "small-1b speaking", "small-1b speaking"]
    scores = [[item.score for item in step.outcome.evidence] for step in ledgers[0].steps]
    assert scores == [[0.5], [0.75]]


@pytest.mark.parametrize("setting", ["evidence", "success", "task"])
async def test_a_fault_in_what_the_host_gave_is_counted_and_the_chat_goes_on(
    hub: Hub, server: OpenAIServer, make_router: MakeRouter, setting: str
) -> None:
    chat = await Chat(hub, server).start()
    router = make_router(on_error="fallback")
    attach(router, *chat.clients, **{setting: lambda _: 1 / 0})
    log = await chat.talk()
    assert bodies(log) == ["small-1b speaking"] * 2
    assert router.errors >= 1
    assert router.ledger(log[0].channel_id) is None


async def test_a_named_task_is_ended_by_its_host(hub: Hub, server: OpenAIServer, make_router: MakeRouter) -> None:
    chat = await Chat(hub, server).start()
    router = make_router()
    attach(router, *chat.clients, task="mine")
    await chat.talk()
    ledger = router.ledger("mine")
    assert ledger is not None
    assert len(ledger.steps) == 2
    assert router.finish("mine", success=True)["tokens"] == 56


async def test_hub_tasks_are_subtasks_and_context_variables_a_note(
    hub: Hub, server: OpenAIServer, make_router: MakeRouter
) -> None:
    seen: list[Any] = []
    chat = await Chat(hub, server).start()
    router = make_router()
    attach(router, *chat.clients, success=lambda ledger: seen.append(ledger.model_copy(deep=True)))

    @tool
    def plan() -> str:
        """Make a plan."""
        return "done"

    server.queue(Reply(content="", tool_calls=[{"name": "plan", "arguments": {}}]))
    chat.agents[0].add_tool(plan)
    coder, critic = chat.clients
    graph = TransitionGraph.sequence([chat.user.agent_id, coder.agent_id, critic.agent_id])
    channel_knobs = {"graph": graph.to_dict(), "context_vars": {"stage": "draft"}}
    channel = await chat.user.open(type="workflow", target=["coder", "critic"], knobs=channel_knobs)
    await hub.observe_task(
        TaskMetadata(
            task_id="t1",
            owner_id=coder.agent_id,
            spec=TaskSpec(title="read the file"),
            state=TaskState.RUNNING,
            channel_id=channel.channel_id,
        )
    )
    await channel.send("go")
    await chat.user.wait_for_channel_event(
        channel_id=channel.channel_id, predicate=lambda item: item.event_type == "ag2.channel.closed", timeout=30
    )
    while not seen:
        await asyncio.sleep(0)
    await chat.people.close()
    (ledger,) = seen
    assert [(item.id, item.text) for item in ledger.subtasks][:1] == [("t1", "read the file")]
    assert ledger.notes["context_vars"] == {"stage": "draft"}
    assert [call.name for call in ledger.steps[0].tool_calls] == ["plan"]


async def test_when_the_budget_is_gone_the_channel_says_so_and_closes(
    hub: Hub, server: OpenAIServer, make_router: MakeRouter
) -> None:
    chat = await Chat(hub, server).start()
    attach(make_router(budget=Budget(usd=0.00005)), *chat.clients)
    log = await chat.talk()
    assert bodies(log)[0] == "small-1b speaking"
    last = bodies(log)[1]
    assert last.startswith("critic cannot go on. BudgetExceeded: task")
    assert "hard limit usd=5e-05" in last
    assert log[-1].event_type == "ag2.channel.closed"
    assert "BudgetExceeded" in log[-1].event_data["reason"]
    assert len(server.calls) == 1


@pytest.mark.parametrize("kind", ["consulting", "conversation"])
async def test_when_every_model_failed_the_person_reads_why(
    hub: Hub, server: OpenAIServer, make_router: MakeRouter, kind: str
) -> None:
    server.queue(Reply(status=500, error="down"), Reply(status=500, error="down, key sk-1234567890abcdef1234"))
    chat = await Chat(hub, server).start()
    attach(make_router(), *chat.clients)
    log = await chat.talk(kind=kind)
    texts = [item.event_data.get("text") for item in log if item.event_type == "ag2.msg.text"]
    assert texts[0] == "go"
    assert texts[1].startswith("coder cannot go on. InternalServerError: Error code: 500")
    assert "sk-1234567890" not in texts[1]
    assert len(server.calls) == 2


async def test_a_failure_that_is_not_ours_is_left_to_the_host(
    hub: Hub, server: OpenAIServer, make_router: MakeRouter
) -> None:
    failed = asyncio.Event()

    class Heard:
        async def on_turn_failed(self, *_: Any) -> None:
            failed.set()

    async def broken(call_next: Any, event: Any, context: Any) -> Any:
        raise KeyError("in the host's own code")

    chat = await Chat(hub, server).start()
    attach(make_router(), *chat.clients)
    hub.register_listener(Heard())  # type: ignore[arg-type]
    chat.agents[0].config.own = None  # nothing of ours is reached
    chat.clients[0]._agent.ask = broken  # type: ignore[method-assign]
    channel = await chat.user.open(type="conversation", target="coder")
    await channel.send("go")
    await asyncio.wait_for(failed.wait(), 10)
    assert not (await channel.info()).is_terminal()
    await channel.close()
    await chat.people.close()


async def test_what_an_agent_delegates_is_paid_by_the_task_it_came_from(
    hub: Hub, server: OpenAIServer, make_router: MakeRouter
) -> None:
    server.queue(
        Reply(
            content="", tool_calls=[{"name": "delegate", "arguments": {"target": "critic", "prompt": "is it good?"}}]
        ),
        Reply(content="it is good"),
        Reply(content="all done"),
    )
    ended: list[Any] = []
    chat = Chat(hub, server)
    clients = [await hub.register(agent) for agent in chat.agents]
    attachment = attach(make_router(), *clients, success=lambda ledger: ended.append(ledger))
    reply = await chat.agents[0].ask("do it")
    assert reply.body == "all done"
    while not ended:
        await asyncio.sleep(0)
    assert attachment.router.spent(f"ag2-{reply.context.stream.id}")["tokens"] == 84
    attachment.detach()
    inner, outer = ended
    assert inner.task.parent == outer.task.id == f"ag2-{reply.context.stream.id}"
    assert [step.role for step in outer.steps] == ["coder", "coder"]
    assert [step.role for step in inner.steps] == ["critic"]


async def test_the_speaker_is_chosen_by_progress(hub: Hub, server: OpenAIServer, make_router: MakeRouter) -> None:
    scores = iter([0.3, 0.6, 1.0])

    def judge(envelope: Envelope) -> list[Evidence] | None:
        if envelope.event_type != EV_PACKET:
            return None
        return [Evidence(source="judge", score=next(scores))]

    chat = await Chat(hub, server).start()
    router = make_router()
    attach(router, *chat.clients, evidence=judge)
    coder, critic = (client.agent_id for client in chat.clients)
    selector = speaker_selector(router, recoverable="critic", partial="coder")
    graph = TransitionGraph(
        initial_speaker=chat.user.agent_id,
        transitions=[Transition(when=FromSpeaker(chat.user.agent_id), then=AgentTarget(coder))],
        default_target=selector,
        max_turns=9,
    )
    log = await chat.talk(graph)
    speakers = [item.sender_id for item in log if item.event_type == EV_PACKET]
    assert speakers == [coder, critic, coder]
    assert log[-1].event_data["reason"] == "steproute: the task is complete"


def test_a_speaker_selector_names_known_situations(make_router: MakeRouter) -> None:
    with pytest.raises(ConfigError, match=r"unknown name 'partly'; did you mean 'partial'\?"):
        speaker_selector(make_router(), partly="coder")
    assert speaker_selector(make_router(), stalled=END).speakers == {"complete": END, "stalled": END}
