"""What `attach` returns: the router, its settings for these targets, what it counted, and the way back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import Self

from steproute.errors import ConfigError, unknown_name
from steproute.ledger import Evidence, Ledger, Task
from steproute.plugins.ag2.books import Book, Books, books_of
from steproute.plugins.ag2.calls import Attempts, Call
from steproute.plugins.ag2.meter import Meter
from steproute.router import Router

MARK = "_steproute_attachment"
"""Attribute of everything that is attached; it names the attachment."""


@dataclass(frozen=True)
class Settings:
    """What the host may set; see `attach`."""

    models: Mapping[str, Any] = field(default_factory=dict)
    pin: Mapping[str, str] = field(default_factory=dict)
    task: str | Task | Ledger | Callable[[Task], Task] | None = None
    evidence: Callable[[Any], Sequence[Evidence] | None] | None = None
    success: Callable[[Ledger], bool | None] | None = None

    def check(self, router: Router) -> None:
        """Find wrong names.

        Raises:
            ConfigError: a model is not in the pool.
        """
        for name in self.models:
            if name not in router.pool:
                raise ConfigError(unknown_name("models", name, router.pool.names))
        for role, name in self.pin.items():
            if name not in router.pool:
                raise ConfigError(unknown_name(f"pin[{role!r}]", name, router.pool.names))


class Attachment:
    """A router at work in a set of AG2 objects. As a context manager it detaches at the end."""

    def __init__(self, router: Router, settings: Settings):
        self.router = router
        self.settings = settings
        self.meter = Meter()
        """Totals per model and role of all calls that came through."""
        self.books: Books = books_of(router)
        self._undo: list[Callable[[], object]] = []
        self._running: dict[str, Book] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def detach(self) -> None:
        """Give everything back as it was, and end the tasks that nothing else would end. A second call does nothing."""
        with self._lock:
            undo, self._undo = self._undo, []
        for step in reversed(undo):
            with self.router.faults.kept("AG2 detach"):
                step()
        for book in list(self._running.values()):
            self.end(book)

    # --- for the two generations ------------------------------------------------------------------------------

    def on_detach(self, step: Callable[[], object]) -> None:
        """Do this when detaching, before what was given earlier."""
        self._undo.append(step)

    def replace(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute until detached. One that the host set anew meanwhile is left alone."""
        own = vars(target) if hasattr(target, "__dict__") else {}
        had, before = name in own or not hasattr(target, "__dict__"), getattr(target, name, None)
        setattr(target, name, value)

        def back() -> None:
            if getattr(target, name, None) is not value:
                return
            if had:
                setattr(target, name, before)
            else:
                delattr(target, name)

        self.on_detach(back)

    def mark(self, target: Any) -> bool:
        """Mark a target as attached; False when it was already.

        Raises:
            ConfigError: it is attached to another router.
        """
        other = attachment_of(target)
        if other is None:
            self.replace(target, MARK, self)
            return True
        if other.router is not self.router:
            raise ConfigError(f"attach: {describe_target(target)} is attached to another router; detach that one first")
        return False

    def attempts(self, book: Book, call: Call) -> Attempts:
        """The attempts of one call."""
        return Attempts(self.router, book, call, self.meter, self.settings.pin.get(call.role))

    def open(self, suggestion: Task) -> Book:
        """The book of the task a call belongs to.

        Args:
            suggestion: the task as the framework shows it; the host's `task` setting overrides or changes it.
        """
        setting = self.settings.task
        ledger = Ledger(task=suggestion)
        if isinstance(setting, Ledger):
            ledger = setting
        elif isinstance(setting, Task):
            ledger = Ledger(task=setting)
        elif isinstance(setting, str):
            ledger = Ledger(task=suggestion.model_copy(update={"id": setting}))
        elif setting is not None:
            with self.router.faults.kept("the `task` callable"):
                ledger = Ledger(task=setting(suggestion))
        book = self.books.open(ledger)
        with self._lock:
            self._running.setdefault(book.task.id, book)
        return book

    def read(self, book: Book, key: Hashable, message: Any) -> None:
        """Ask the host's `evidence` about a message, once."""
        if self.settings.evidence is not None:
            with self.router.faults.kept("the `evidence` callable"):
                book.read(key, message, self.settings.evidence)

    def end(self, book: Book) -> None:
        """The chat is over: end its task, unless the host named it and so ends it itself."""
        with self._lock:
            if self._running.pop(book.task.id, None) is None:
                return
        success = self.settings.success
        if success is None and isinstance(self.settings.task, (str, Task, Ledger)):
            return
        with self.router.faults.kept("AG2 end of task"):
            result = None
            if success is not None:
                with self.router.faults.kept("the `success` callable"):
                    result = success(book.ledger)
            self.router.finish(book.task.id, result)
        self.books.close(book.task.id)


def attachment_of(target: Any) -> Attachment | None:
    """The attachment of a target, if it has one."""
    found = getattr(target, MARK, None)
    return found if isinstance(found, Attachment) else None


def unknown_target(target: Any) -> ConfigError:
    """The error for an object that `attach` does not know."""
    return ConfigError(
        f"attach: seen {describe_target(target)}; allowed: an ag2 Agent, AgentClient, Hub, HubClient or Channel, "
        "or a classic GroupChat, GroupChatManager, Pattern or ConversableAgent"
    )


def describe_target(target: Any) -> str:
    """A target's type and name, for errors."""
    name = getattr(target, "name", None)
    return f"{type(target).__name__} {name!r}" if isinstance(name, str) else type(target).__name__
