"""What the plugin keeps about each running task, whichever attachment a call comes through."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from steproute.ledger import Evidence, Ledger, Task, ToolCall
from steproute.router import Router

T = TypeVar("T")
EvidenceOf = Callable[[Any], "Sequence[Evidence] | None"]


@dataclass
class Book:
    """One task: its ledger, the keys of its steps, its open tool calls, and the messages already read."""

    _ledger: Ledger
    _router: weakref.ref[Router]
    _keys: set[str] = field(default_factory=set)
    _open_tools: dict[str, ToolCall] = field(default_factory=dict)
    _read: set[Hashable] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def task(self) -> Task:
        """The task."""
        return self._ledger.task

    @property
    def router(self) -> Router:
        """The router; whoever attached it keeps it alive."""
        router = self._router()
        assert router is not None
        return router

    @property
    def ledger(self) -> Ledger:
        """The router's ledger of this task; before the first call the one to begin with."""
        return self.router.ledger(self.task.id) or self._ledger

    @property
    def idle(self) -> bool:
        """True when the router has ended the task by itself."""
        return bool(self._keys) and self.router.ledger(self.task.id) is None

    def next_key(self) -> str:
        """Key of the next step: the number of steps so far, as the router would choose, made unique for parallel calls.

        A host that asked the router beforehand for this step therefore gets the same decision here.
        """
        with self._lock:
            number = str(len(self.ledger.steps))
            key, again = number, 0
            while key in self._keys:
                again += 1
                key = f"{number}.{again}"
            self._keys.add(key)
            return key

    def read(self, key: Hashable, message: Any, evidence_of: EvidenceOf) -> None:
        """Turn a message into evidence for the last step; a message that was read before is passed over."""
        with self._lock:
            if key in self._read:
                return
            self._read.add(key)
            found = evidence_of(message)
            if found:
                self.router.report(self.task.id, list(found))

    def add_tool_calls(self, step_id: str, calls: Iterable[tuple[str, str, str]]) -> None:
        """Note the tool calls a reply asked for.

        Args:
            step_id: id of the decision behind the step.
            calls: `(call id, tool name, arguments as text)` each.
        """
        with self._lock:
            step = next((item for item in reversed(self.ledger.steps[-16:]) if item.id == step_id), None)
            if step is None:
                return
            for call_id, name, arguments in calls:
                mark = hashlib.blake2b(f"{name}\0{arguments}".encode(), digest_size=8).hexdigest()
                call = ToolCall(name=name, fingerprint=mark)
                step.tool_calls.append(call)
                self._open_tools[call_id] = call

    def close_tool_call(self, call_id: str, error: str = "") -> None:
        """Note how a tool call ended; an unknown or closed one is passed over."""
        with self._lock:
            call = self._open_tools.pop(call_id, None)
            if call is not None:
                call.ok, call.error = not error, error


class Books:
    """The tasks of one router."""

    def __init__(self, router: Router):
        self._router = weakref.ref(router)
        self._books: dict[str, Book] = {}
        self._shared: dict[type, Any] = {}
        self._lock = threading.Lock()

    def shared(self, kind: type[T]) -> T:
        """The one object of a kind that all attachments of the router use."""
        with self._lock:
            if kind not in self._shared:
                self._shared[kind] = kind()
            found: T = self._shared[kind]
            return found

    def open(self, ledger: Ledger) -> Book:
        """The book of a ledger's task, begun when it is new or has ended meanwhile."""
        name = ledger.task.id
        with self._lock:
            known = self._books.get(name)
            if known is None or known.idle:
                self._books = {key: book for key, book in self._books.items() if not book.idle}
                known = self._books[name] = Book(ledger, self._router)
            return known

    def find(self, task_id: str) -> Book | None:
        """The book of a running task."""
        book = self._books.get(task_id)
        return None if book is None or book.idle else book

    def close(self, task_id: str) -> None:
        """Forget a task."""
        with self._lock:
            self._books.pop(task_id, None)


_ALL: weakref.WeakKeyDictionary[Router, Books] = weakref.WeakKeyDictionary()
_ALL_LOCK = threading.Lock()


def books_of(router: Router) -> Books:
    """The one set of books of a router: its attachments share tasks, so they must share what is known about them."""
    with _ALL_LOCK:
        if router not in _ALL:
            _ALL[router] = Books(router)
        return _ALL[router]
