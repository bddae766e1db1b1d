"""The journals of a router: one per task, shared by every node, model and middleware that uses the router."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict

from steproute.ledger import Ledger, Task
from steproute.plugins.langgraph.journal import Journal, task_of
from steproute.router import Router

logger = logging.getLogger("steproute")

_KEPT_JOURNALS = 1000
_KEPT_ROLES = 1000
_CHANCES = 3
"""Decisions that are passed over before it is said: one may be, where a graph ends early."""


class Journals:
    """The journals of one router, whichever node, model or middleware of it is at work."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Journal] = OrderedDict()
        self._lock = threading.Lock()
        self.called: set[str] = set()
        """Roles that calls were made for."""
        self.shown: set[str] = set()
        """Roles whose decisions a node hands to the graph itself: it needs no call to act on them."""
        self._passed_over: dict[str, set[str]] = {}
        """Role → decisions that nodes made for it and no call took."""

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

    def note_call(self, role: str) -> None:
        """Note a role that a call is made for."""
        if len(self.called) < _KEPT_ROLES:  # hosts may invent a role per sub-task
            self.called.add(role)

    def look_back(self, journal: Journal, role: str = "", before: str = "") -> None:
        """Say so, once, when nodes decide for a role that no call is made for: each call then decides for itself.

        Args:
            journal: of the task.
            role: look at decisions for this role; empty = for each.
            before: checkpoint of the superstep that is running: decisions made from it on may still be taken. Empty =
                the task is over.
        """
        if not 0 < len(self.called) < _KEPT_ROLES or role in self.called or role in self.shown:
            return
        with journal.lock:
            for key in journal.home:
                record = journal.records[key]
                name = record["role"]
                open_ = record["kind"] == "node" and not record["answers"] and not (before and record["root"] >= before)
                if open_ and name and role in ("", name) and name not in self.called and name not in self.shown:
                    self._pass_over(name, record["decision"])

    def _pass_over(self, role: str, decision: str) -> None:
        passed = self._passed_over.setdefault(role, set())
        if decision in passed or len(passed) == _CHANCES:
            return
        passed.add(decision)
        if len(passed) == _CHANCES:
            logger.warning(
                "steproute: router_node decided %d times for role %r, and no call was made for it; seen: calls for %s. "
                "The role of a call is its model's `role=`, else the name of its agent or node",
                _CHANCES,
                role,
                ", ".join(map(repr, sorted(self.called)[:8])),
            )


_ALL: weakref.WeakKeyDictionary[Router, Journals] = weakref.WeakKeyDictionary()
_ALL_LOCK = threading.Lock()


def journals_of(router: Router) -> Journals:
    """The one set of journals of a router: what a node decided, a model must find."""
    with _ALL_LOCK:
        if router not in _ALL:
            _ALL[router] = Journals()
        return _ALL[router]
