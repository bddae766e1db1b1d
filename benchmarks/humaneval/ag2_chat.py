"""The group chat of the main job on ag2 ≥ 1.0: coder, tester, fixer, tester, fixer … in fixed order, on one channel.

The coder is asked with its system prompt and the problem; the fixer with its system prompt, the problem and the
tester's last report, as plain user messages. Nothing else is sent: no tools, no names, no older turns, no calls for
selection or summaries. The tester calls no model; it hands each reply to a callback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

try:
    from ag2 import Agent
    from ag2.config import ModelConfig
    from ag2.events import BaseEvent, ModelRequest
    from ag2.knowledge import MemoryKnowledgeStore
    from ag2.network import (
        EV_PACKET,
        EV_TEXT,
        AgentClient,
        AgentTarget,
        Envelope,
        FromSpeaker,
        Hub,
        HubClient,
        LocalLink,
        Passport,
        Transition,
        TransitionGraph,
        WorkflowAdapter,
    )
    from ag2.network.hub.listener import BaseHubListener
except ImportError as error:
    raise ImportError(
        f"the AG2 group chat needs ag2 >= 1.0 ({error}); install it with: pip install 'steproute[ag2]'"
    ) from error

_ORDER = ("user", "coder", "tester", "fixer")

Test = Callable[[str], "str | None"]
Setup = Callable[[Sequence[Agent], Hub], object]


class FirstAndLast:
    """A view that shows the chat's first message and the one to answer, each as a user message without a name."""

    name = "first_and_last"

    async def project(self, wal: list[Envelope], *, render_envelope: Any, **_: Any) -> list[BaseEvent]:
        """The first message of the history, or the single message of this turn."""
        for envelope in wal:
            shown = render_envelope(envelope)
            if shown:  # text in ag2 1.0, parts later
                return [ModelRequest.ensure_request([shown] if isinstance(shown, str) else shown)]
        return []


class FixedOrderChat(WorkflowAdapter):
    """A workflow channel whose members see the first and the last message only; empty replies are passed on too."""

    def default_view_policy(self, metadata: Any, participant_id: str) -> FirstAndLast:
        """The same view for everyone."""
        return FirstAndLast()

    def build_round_envelope(
        self, metadata: Any, sender_id: str, reply: Any, events: Any, state: Any, hub: Any
    ) -> Envelope:
        """The reply as a packet to the tester. The base class posts no empty reply: the chat would wait for ever."""
        tester = metadata.participants[_ORDER.index("tester")].agent_id
        return _packet(metadata.channel_id, sender_id, tester, reply.body or "")


class _Watch(BaseHubListener):
    """Ends the wait when the channel ends or a turn fails; the hub itself only logs a failed turn."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def on_channel_event(self, channel_id: str, kind: str, payload: dict[str, Any]) -> None:
        if kind in ("closed", "expired") and not self.done.done():
            self.done.set_result(None)

    async def on_turn_failed(self, channel_id: str, agent_id: str, envelope_id: str, exc: BaseException) -> None:
        self.fail(exc)

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


async def run_chat(
    problem_text: str,
    coder_system: str,
    fixer_system: str,
    coder_config: ModelConfig,
    fixer_config: ModelConfig,
    test: Test,
    max_attempts: int,
    *,
    setup: Setup | None = None,
) -> list[str]:
    """Run one chat to its end.

    Args:
        problem_text: the chat's first message.
        coder_system: system prompt of the agent that makes the first attempt.
        fixer_system: system prompt of the agent that makes the others.
        coder_config: model of the coder.
        fixer_config: model of the fixer.
        test: called with every reply, the last one too, in a worker thread; returns the report that goes into the
            chat, or None to end it.
        max_attempts: most LLM replies.
        setup: called with the agents `(coder, fixer)` and the hub before the first turn: the place for
            `attach(router, *agents, hub=hub)`.

    Returns:
        The replies in order; empty ones are kept as "".

    Raises:
        Exception: whatever a model call or `test` raised, after everything is closed.
    """
    if max_attempts < 1:
        raise ValueError(f"max_attempts: seen {max_attempts!r}; allowed: 1 or more")
    replies: list[str] = []
    members: HubClient | None = None
    hub = await Hub.open(MemoryKnowledgeStore(), ttl_sweep_interval=0, expectation_sweep_interval=0)
    try:
        hub.register_adapter(FixedOrderChat())  # type: ignore[arg-type]  # as for ag2's own adapters
        watch = _Watch()
        hub.register_listener(watch)
        agents = [Agent("coder", coder_system, config=coder_config), Agent("fixer", fixer_system, config=fixer_config)]
        members = HubClient(LocalLink(hub))
        coder, fixer = [await members.register(agent, attach_plugin=False) for agent in agents]
        tester = await members.register(Agent("tester"), attach_plugin=False)
        user = await members.register_human(Passport(name="user"))
        _let_test(tester, fixer.agent_id, test, max_attempts, replies, watch)
        if setup is not None:
            setup(agents, hub)
        graph = _order(user.agent_id, coder.agent_id, tester.agent_id, fixer.agent_id)
        channel = await user.open(type="workflow", target=list(_ORDER[1:]), knobs={"graph": graph}, intent=problem_text)
        await channel.send(problem_text, audience=[coder.agent_id])
        await watch.done
        return replies
    finally:
        if members is not None:
            await members.close()
        await hub.close()


def _order(user: str, coder: str, tester: str, fixer: str) -> dict[str, Any]:
    """Who speaks after whom."""
    pairs = ((user, coder), (coder, tester), (tester, fixer), (fixer, tester))
    rules = [Transition(when=FromSpeaker(speaker), then=AgentTarget(following)) for speaker, following in pairs]
    return TransitionGraph(initial_speaker=user, transitions=rules).to_dict()


def _let_test(
    tester: AgentClient, fixer_id: str, test: Test, max_attempts: int, replies: list[str], watch: _Watch
) -> None:
    """Put a call of `test` in place of the tester's turn, which would call a model."""
    default_turn = tester._run_default_handler

    async def turn(envelope: Envelope) -> None:
        if envelope.event_type != EV_PACKET:
            if envelope.event_type != EV_TEXT:
                await default_turn(envelope)
            return
        try:
            replies.append(envelope.event_data["body"])
            report = await asyncio.to_thread(test, replies[-1])
            reason = "done" if report is None else "max_attempts" if len(replies) >= max_attempts else ""
            await tester.send_envelope(_packet(envelope.channel_id, tester.agent_id, fixer_id, report or "", reason))
        except Exception as error:  # noqa: BLE001  handed to the caller of run_chat; here it would only be logged
            watch.fail(error)

    tester.on_envelope(turn)


def _packet(channel_id: str, sender_id: str, to: str, body: str, finish: str = "") -> Envelope:
    """A message to the next speaker alone: whoever else heard it could take it for their turn."""
    routing = {"kind": "finish", "reason": finish} if finish else {"kind": "text"}
    data = {"routing": routing, "context_updates": {"set": {}, "delete": []}, "body": body}
    return Envelope(channel_id=channel_id, sender_id=sender_id, audience=[to], event_type=EV_PACKET, event_data=data)
