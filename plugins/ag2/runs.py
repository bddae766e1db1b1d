"""Tasks of classic AG2: one per chat, from its start to its end, nested chats included."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from steproute.ledger import Task
from steproute.plugins.ag2.attachment import Attachment
from steproute.plugins.ag2.books import Book


class Run:
    """One chat."""

    def __init__(self, attachment: Attachment, members: Iterable[Any], group: Any, scoped: bool):
        self.attachment, self.group, self.scoped = attachment, group, scoped
        self.members = list(members)
        self.busy = 0
        """How many of its members are replying at the moment."""
        self.book: Book | None = None
        self._read: set[tuple[str, int]] = set()
        self._id = f"ag2-{uuid.uuid4().hex}"

    def has(self, agent: Any) -> bool:
        """Whether an agent takes part."""
        return any(member is agent for member in self.members)

    def open(self, messages: Sequence[Mapping[str, Any]]) -> Book:
        """The run's task, its ledger brought up to the chat so far."""
        said = self.group.messages if self.group is not None and self.group.messages else messages
        said = [message for message in said if message.get("role") != "system"]
        if self.book is None:
            goal = next((str(message["content"]) for message in said if message.get("content")), "")
            self.book = self.attachment.open(Task(id=self._id, goal=goal))
        self.read(said)
        return self.book

    def read(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Take in messages: the host's evidence, and how tool calls ended."""
        if self.book is None:
            return
        times: Counter[str] = Counter()
        for message in messages:
            text = f"{message.get('name')}:{message.get('content')}"
            times[text] += 1
            key = (text, times[text])
            self.attachment.read(self.book, key, message)
            if key not in self._read:
                self._read.add(key)
                self._close_tool_calls(self.book, message)

    def _close_tool_calls(self, book: Book, message: Mapping[str, Any]) -> None:
        for answer in message.get("tool_responses") or ([message] if message.get("role") == "tool" else ()):
            text = str(answer.get("content") or "")
            # this text is all that AG2 keeps of a failed tool
            error = text[:300] if text.startswith("Error:") else ""
            book.close_tool_call(str(answer.get("tool_call_id")), error)

    def close(self) -> None:
        """Take in what was said after the last call."""
        said = self.group.messages if self.group is not None else ()
        if self.group is None and len(self.members) > 1:
            first, second = self.members[:2]
            said = getattr(first, "chat_messages", {}).get(second) or ()
        self.read(said)


class Runs:
    """The chats of one attachment."""

    def __init__(self, attachment: Attachment):
        self._attachment = attachment
        self._active: list[Run] = []
        self._lock = threading.RLock()

    def of(self, agent: Any) -> Run:
        """The chat an agent is in; for a reply outside any chat, one of its own."""
        with self._lock:
            run = self._find(agent)
            return run if run is not None else self._begin([agent], None, scoped=False)

    def of_group(self, group: Any) -> Run:
        """The chat of a group, which AG2 may have copied: the copies share their messages."""
        with self._lock:
            for run in reversed(self._active):
                if run.group is not None and run.group.messages is group.messages:
                    return run
            return self._begin(group.agents, group, scoped=False)

    def known(self, group: Any) -> Run | None:
        """The chat of a group if one is under way."""
        with self._lock:
            return next(
                (run for run in self._active if run.group is not None and run.group.messages is group.messages), None
            )

    @contextmanager
    def scope(self, agents: Sequence[Any], group: Any) -> Iterator[None]:
        """A chat from start to end; inside another one it belongs to that."""
        with self._lock:
            run, outer = None, self._find(agents[0])
            if outer is not None and (outer.scoped or outer.busy):
                outer.members += [agent for agent in agents if not outer.has(agent)]
            else:
                run = self._begin(agents, group, scoped=True)
        try:
            yield
        finally:
            if run is not None:
                self.end(run)

    @contextmanager
    def prepare(self, agents: Sequence[Any], group: Any) -> Iterator[None]:
        """A chat is made ready that may have no scope: its end is not heard of. It lasts until the next or detaching."""
        with self._lock:
            run = self._find(agents[0])
            if run is None or not (run.scoped or run.busy):
                self._begin(agents, group, scoped=False)
        with self.replying(agents[0]):
            yield

    @contextmanager
    def replying(self, agent: Any) -> Iterator[None]:
        """While an agent replies, a chat it starts belongs to the chat it is in."""
        with self._lock:
            run = self._find(agent)
            if run is not None:
                run.busy += 1
        try:
            yield
        finally:
            if run is not None:
                with self._lock:
                    run.busy -= 1

    def end(self, run: Run) -> None:
        """A chat is over."""
        with self._lock:
            self._active = [other for other in self._active if other is not run]
        if run.book is not None:
            with self._attachment.router.faults.kept("reading the chat"):
                run.close()
            self._attachment.end(run.book)

    def _find(self, agent: Any) -> Run | None:
        return next((run for run in reversed(self._active) if run.has(agent)), None)

    def _begin(self, members: Iterable[Any], group: Any, scoped: bool) -> Run:
        run = Run(self._attachment, members, group, scoped)
        for other in [other for other in self._active if not other.scoped and any(map(other.has, run.members))]:
            self.end(other)
        self._active.append(run)
        return run
