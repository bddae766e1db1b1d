"""The journals of a router: one per task, shared by every node, model and middleware that uses the router."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict

from steproute.ledger import Ledger, Task
from steproute.plugins.langgraph.journal import Journal, task_of
from steproute.router import Router

_KEPT_JOURNALS = 1000


class Journals:
    """The journals of one router, whichever node, model or middleware of it is at work."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Journal] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, opening: Ledger | Task) -> Journal:
        """The journal of a task."""
        task = task_of(opening)
        with self._lock:
            journal = self._open.get(task.id)
            if journal is None:
                journal = self._open[task.id] = Journal(task, opening)
                while len(self._open) > _KEPT_JOURNALS:
                    self._open.popitem(last=False)
            self._open.move_to_end(task.id)
            return journal

    def get(self, task: str) -> Journal | None:
        """The journal of a task this process has heard of."""
        with self._lock:
            journal = self._open.get(task)
            if journal is not None:
                self._open.move_to_end(task)
            return journal


_ALL: weakref.WeakKeyDictionary[Router, Journals] = weakref.WeakKeyDictionary()
_ALL_LOCK = threading.Lock()


def journals_of(router: Router) -> Journals:
    """The one set of journals of a router: what a node decided, a model must find."""
    with _ALL_LOCK:
        if router not in _ALL:
            _ALL[router] = Journals()
        return _ALL[router]
