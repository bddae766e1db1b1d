"""Tasks of ag2 ≥ 1.0: one per network channel, with a ledger read from its log, ended when the channel closes."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from ag2.events import BaseEvent, ModelRequest
from ag2.network import EV_PACKET, EV_TEXT, Envelope, Hub
from ag2.network.hub.listener import BaseHubListener
from ag2.network.policies import CHANNEL_DEP, CHANNEL_STATE_DEP, HUB_DEP

from steproute.ledger import Subtask, Task
from steproute.plugins.ag2.attachment import Attachment
from steproute.plugins.ag2.books import Book, books_of
from steproute.plugins.ag2.calls import describe, is_final
from steproute.plugins.ag2.events import text_of
from steproute.router import Router

_STATUS: Mapping[str, Literal["todo", "doing", "done", "failed"]] = {
    "created": "todo",
    "running": "doing",
    "completed": "done",
}
_CURRENT: ContextVar[Book | None] = ContextVar("steproute_ag2_book", default=None)


@contextmanager
def current(book: Book) -> Iterator[None]:
    """Within one agent's turn: whose task it is, for calls and channels that come out of it."""
    token = _CURRENT.set(book)
    try:
        yield
    finally:
        _CURRENT.reset(token)


class _Open:
    """What listens for a router at present."""

    def __init__(self) -> None:
        self.channels: weakref.WeakSet[Channels] = weakref.WeakSet()


def channels_of(router: Router, channel_id: str) -> tuple[Book, Channels] | None:
    """The task of a channel, if one of its calls was routed by this router."""
    for channels in books_of(router).shared(_Open).channels:
        book = channels.book_of_channel(channel_id)
        if book is not None:
            return book, channels
    return None


class Channels(BaseHubListener):
    """Knows the task behind every turn, keeps its ledger up to date, and hears when channels end or turns fail."""

    def __init__(self, attachment: Attachment):
        self.attachment = attachment
        self._books: dict[str, Book] = {}
        self._hub_of: dict[str, Hub] = {}
        self._parents: dict[str, str] = {}
        self._hubs: list[Hub] = []
        attachment.books.shared(_Open).channels.add(self)
        attachment.on_detach(self._books.clear)
        self.on_created: Callable[[], None] = lambda: None
        """Called when a channel begins."""

    # --- tasks ------------------------------------------------------------------------------------------------

    async def book(self, context: Any, messages: Sequence[BaseEvent] = ()) -> Book:
        """The task of a turn: that of its channel, else that of the turn it came out of, else one per stream."""
        channel = context.dependencies.get(CHANNEL_DEP)
        if channel is not None:
            return await self._book_of(channel, context.dependencies.get(HUB_DEP))
        inherited = _CURRENT.get()
        if inherited is not None:
            return inherited
        goal = next((text_of(item) for item in messages if isinstance(item, ModelRequest)), "")
        return self.attachment.open(Task(id=f"ag2-{context.stream.id}", goal=goal))

    async def _book_of(self, channel: Any, hub: Any) -> Book:
        book = self._books.get(channel.channel_id)
        if book is not None:
            return book
        metadata = channel.metadata
        goal = metadata.labels.get("intent", "")
        with self.attachment.router.faults.kept("reading the channel"):
            local = self.watch(hub)
            if local is not None:
                self._hub_of[channel.channel_id] = local
            goal = goal or next((text_in(item) for item in await hub.read_wal(channel.channel_id) if text_in(item)), "")
        parent = metadata.parent_channel_id or self._parents.get(channel.channel_id)
        book = self.attachment.open(Task(id=channel.channel_id, goal=goal, parent=parent))
        self._books[channel.channel_id] = book
        return book

    def book_of_channel(self, channel_id: str) -> Book | None:
        """The task of a channel, if a call of it was routed."""
        return self._books.get(channel_id)

    async def sync(self, book: Book, context: Any) -> None:
        """Bring the ledger up to the channel: messages as evidence, tasks as subtasks, shared variables as a note."""
        channel, hub = context.dependencies.get(CHANNEL_DEP), context.dependencies.get(HUB_DEP)
        if channel is None or hub is None:
            return
        with self.attachment.router.faults.kept("reading the channel"):
            await self._read(book, hub, channel.channel_id)
            variables = getattr(context.dependencies.get(CHANNEL_STATE_DEP), "context_vars", None)
            if variables:
                book.ledger.notes["context_vars"] = json.loads(json.dumps(variables, default=str))

    async def _read(self, book: Book, hub: Any, channel_id: str) -> None:
        if self.attachment.settings.evidence is not None:
            for envelope in await hub.read_wal(channel_id):
                self.read(book, envelope)
        tasks = await hub.list_tasks(channel_id=channel_id)
        if tasks:
            book.ledger.subtasks = [
                Subtask(id=item.task_id, text=item.spec.title, status=_STATUS.get(item.state.value, "failed"))
                for item in tasks
            ]

    def read(self, book: Book, envelope: Envelope) -> None:
        """Ask the host about one message of the channel."""
        if envelope.event_type in (EV_TEXT, EV_PACKET):
            self.attachment.read(book, envelope.envelope_id, envelope)

    def names(self) -> dict[str, str]:
        """Agent ids by agent name, over the hubs that are watched."""
        return {name: agent_id for hub in self._hubs for name, agent_id in hub.name_to_id_map().items()}

    # --- the hub ----------------------------------------------------------------------------------------------

    def watch(self, hub: Any) -> Hub | None:
        """Listen to a hub. Over a wire a client cannot hear channels close: such tasks end by idle time."""
        local: Hub | None = hub if isinstance(hub, Hub) else getattr(hub, "_hub", None)
        if local is not None and not any(known is local for known in self._hubs):
            self._hubs.append(local)
            local.register_listener(self)
            self.attachment.on_detach(lambda: local.unregister_listener(self))
        return local

    async def on_channel_event(self, channel_id: str, kind: str, payload: dict[str, Any]) -> None:
        """Note where a channel came from when it begins; end its task when it ends."""
        if kind == "created":
            outer = _CURRENT.get()
            if outer is not None:
                self._parents[channel_id] = outer.task.id
            with self.attachment.router.faults.kept("attaching new agents"):
                self.on_created()
        if kind in ("closed", "expired"):
            self._parents.pop(channel_id, None)
            book, hub = self._books.pop(channel_id, None), self._hub_of.pop(channel_id, None)
            if book is not None:
                with self.attachment.router.faults.kept("reading the channel"):
                    await self._read(book, hub, channel_id)
                self.attachment.end(book)

    async def on_turn_failed(self, channel_id: str, agent_id: str, envelope_id: str, exc: BaseException) -> None:
        """AG2 only logs the failure and leaves the channel open: say why in the channel, and close it."""
        hub = self._hub_of.get(channel_id)
        if hub is None or not is_final(exc) or (await hub.get_channel(channel_id)).is_terminal():
            return
        reason = describe(exc)
        with self.attachment.router.faults.kept("the final reply"):
            await hub.post_envelope(await _last_word(hub, channel_id, agent_id, reason))
        with self.attachment.router.faults.kept("closing the channel"):
            await hub.close_channel(channel_id, reason=reason)


def text_in(envelope: Envelope) -> str:
    """What a message of a channel says; empty for the channel's own events."""
    if envelope.event_type not in (EV_TEXT, EV_PACKET):
        return ""
    return str(envelope.event_data.get("text") or envelope.event_data.get("body") or "")


async def _last_word(hub: Hub, channel_id: str, agent_id: str, reason: str) -> Envelope:
    """The final reply, in a form that makes no other agent take a turn."""
    metadata = await hub.get_channel(channel_id)
    text = f"{hub.name_for(agent_id)} cannot go on. {reason}"
    if metadata.manifest.type == "workflow":
        data = {"routing": {"kind": "finish", "reason": reason}, "context_updates": {"set": {}, "delete": []}}
        return Envelope(channel_id, agent_id, None, EV_PACKET, {**data, "body": text})
    others = [item.agent_id for item in metadata.participants if item.agent_id != agent_id]
    if metadata.manifest.type != "consulting":
        others = [other for other in others if (await hub.get_agent(other)).effective_kind == "human"]
    return Envelope(channel_id, agent_id, others, EV_TEXT, {"text": text})
