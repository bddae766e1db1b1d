"""What is known about one task of a graph, and which of its steps a call is when a node runs again.

LangGraph runs nodes more than once: after an interrupt, after a failure, after going back in time, in another process.
A call is recognised in two ways:

* by its reference: namespace with execution ids, hash of the prompt, count within this execution of the node. That
  holds across interrupts, retries and processes, as long as the checkpoint is the same.
* by its place: the same without ids. That holds in a fork too, where ids change. Since a loop passes the same place
  again, a place counts as new once the step stands in the state the node starts from.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from steproute.ledger import Ledger, Task
from steproute.plugins.langgraph.records import KEY, Record, Records, in_order, new_record
from steproute.plugins.langgraph.site import Site
from steproute.router import Router

_KEPT_EXECUTIONS = 1024
_KEPT_JOURNALS = 1000


@dataclass(slots=True)
class _Execution:
    """One execution of a node: how often it asked each question, and what it has written so far."""

    token: Any
    attempt: int
    counts: dict[str, int] = field(default_factory=dict)
    given_up: dict[str, str] = field(default_factory=dict)
    """Question → step whose call was raised to the host: the same question again is a retry of it."""
    sent: Records | None = None
    model: Any = None
    """The model a middleware was first asked for: the agent's own."""
    call: Any = None
    """The routed call a middleware is at work on."""


@dataclass
class Journal:
    """Records of one task. The lock is held by whoever reads and then writes."""

    task: Task
    opening: Ledger | Task
    """What the router is given to begin with."""
    records: Records = field(default_factory=dict)
    home: set[str] = field(default_factory=set)
    """Keys of the steps this process's router has decided itself."""
    loaded: set[str] = field(default_factory=set)
    """Checkpoints whose saved records were read."""
    tools: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Tool call id → decision and index of the call among that reply's."""
    read: set[str] = field(default_factory=set)
    """Ids of messages whose content has reached the router."""
    refs: dict[str, str] = field(default_factory=dict)
    homeless: set[str] = field(default_factory=set)
    """Records made in a graph whose state has no place for them; the next router node of a graph around it keeps them."""
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _used: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """Kind of caller and record → root checkpoint → reference that used it there."""
    _executions: OrderedDict[int, _Execution] = field(default_factory=OrderedDict)
    _loose: Iterator[int] = field(default_factory=count)

    # --- which step a call is ---------------------------------------------------------------------------------

    def place(self, site: Site, digest: str, role: str, kind: str = "call") -> str:
        """Key of the step a call is. The same call made again gives the same key."""
        if not site.in_graph:
            return f"{role or kind}/{next(self._loose)}"
        execution = self.execution(site)
        base = f"{site.place}:{digest}"
        if base in execution.given_up:
            return execution.given_up.pop(base)
        number = execution.counts.get(base, 0)
        execution.counts[base] = number + 1
        ref = f"{kind}:{site.ns}/{digest}/{number}"
        key = self.refs.get(ref)
        if key is None:
            channel = site.channel(KEY)
            key = self._decided_for(site, role, channel, ref) if kind == "call" else None
            key = key or self._numbered(site, base, channel, ref)
            self.refs[ref] = key
        self._uses(ref, key)[site.root] = ref
        return key

    def gave_up(self, site: Site, digest: str, key: str) -> None:
        """Note that a call ended in an error the host hears of."""
        if site.in_graph:
            self.execution(site).given_up[f"{site.place}:{digest}"] = key

    def execution(self, site: Site) -> _Execution:
        """The execution of a node that a site belongs to; a retry is a new one."""
        token = id(site.execution)
        found = self._executions.get(token)
        if found is None or found.token is not site.execution or found.attempt != site.attempt:
            found = self._executions[token] = _Execution(site.execution, site.attempt)
            self._executions.move_to_end(token)
            while len(self._executions) > _KEPT_EXECUTIONS:
                self._executions.popitem(last=False)
        return found

    def _uses(self, ref: str, key: str) -> dict[str, str]:
        return self._used.setdefault((ref.partition(":")[0], key), {})

    def _numbered(self, site: Site, base: str, channel: Mapping[str, Any] | None, ref: str) -> str:
        for number in count():
            key = f"{base}/{number}"
            uses = self._uses(ref, key)
            if not uses and key not in self.records:
                return key
            if channel is not None:
                passed = key in channel
            else:
                passed = bool(uses) and max(uses) < (site.addressed or site.root)
            if not passed and uses.get(site.root) in (None, ref):
                return key
        raise AssertionError("unreachable")

    def _decided_for(self, site: Site, role: str, channel: Mapping[str, Any] | None, ref: str) -> str | None:
        """The step that a router node decided for this call and no call has taken yet; the nearest, then the latest.

        One that was taken may be taken again by a run that went back to before that.
        """
        best: Record | None = None
        for copy in (channel if channel is not None else self.records).values():
            if copy.get("kind") != "node" or copy.get("status") != "decided":
                continue
            if copy["role"] not in ("", role) or not within(site.parent, copy["ns"]):
                continue
            uses = self._uses(ref, copy["key"])
            again = bool(site.addressed) and max(uses, default="") >= site.addressed
            if (uses and not again) or uses.get(site.root) not in (None, ref):
                continue
            if best is None or (len(copy["ns"]), copy["at"]) > (len(best["ns"]), best["at"]):
                best = copy
        return None if best is None else str(best["key"])

    # --- records ----------------------------------------------------------------------------------------------

    def update(self, key: str, **changes: Any) -> Record:
        """Change a record, or begin it."""
        known = self.records.get(key) or new_record(key)
        record = self.records[key] = {**known, **changes, "version": known["version"] + 1}
        return record

    def take_in(self, records: Mapping[str, Any], refs: Mapping[str, str] | None = None) -> list[Record]:
        """Merge records that another process wrote, or a state that was given.

        Returns:
            Those this process did not know, by time.
        """
        new: Records = {}
        for key, record in records.items():
            known = self.records.get(key)
            if known is None:
                new[key] = record
            if known is None or (key not in self.home and record["version"] > known["version"]):
                self.records[key] = dict(record)
        for ref, key in (refs or {}).items():
            if key in self.records:
                self.refs.setdefault(ref, key)
                self._uses(ref, key).setdefault(self.records[key]["root"], ref)
        return list(in_order(new))

    def unknown(self, channel: Mapping[str, Any] | None) -> Records:
        """Records of a state that this process has not seen."""
        if not channel or channel.keys() <= self.records.keys():
            return {}
        return {key: record for key, record in channel.items() if key not in self.records}

    def next_step(self, steps: int) -> str:
        """The router's key for a new step: the number of steps so far, made unique for parallel calls."""
        taken = {record["step"] for record in self.records.values()}
        if str(steps) not in taken:
            return str(steps)
        return next(f"{steps}.{again}" for again in count(1) if f"{steps}.{again}" not in taken)

    def references(self, keys: Iterable[str]) -> dict[str, str]:
        """Latest reference of each of these records, to be saved with them."""
        found = {}
        for key in keys:
            for kind in ("node", "call"):
                uses = self._used.get((kind, key))
                if uses:
                    found[uses[max(uses)]] = key
        return found


class Journals:
    """The journals of one router, whichever node, model or middleware of it is at work."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Journal] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, task: Task, opening: Ledger | Task) -> Journal:
        """The journal of a task."""
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
        return self._open.get(task)

    def forget(self, task: str) -> None:
        """Begin anew at the next call."""
        with self._lock:
            self._open.pop(task, None)


_ALL: weakref.WeakKeyDictionary[Router, Journals] = weakref.WeakKeyDictionary()
_ALL_LOCK = threading.Lock()


def journals_of(router: Router) -> Journals:
    """The one set of journals of a router: what a node decided, a model must find."""
    with _ALL_LOCK:
        if router not in _ALL:
            _ALL[router] = Journals()
        return _ALL[router]


def within(inner: str, outer: str) -> bool:
    """Whether a graph is another one, or runs inside it."""
    return outer == "" or inner == outer or inner.startswith(f"{outer}|")
