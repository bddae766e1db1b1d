"""What is known about one task of a graph, and which of its steps a call is when a node runs again.

LangGraph runs nodes more than once: after an interrupt, after a failure, after going back in time, in another process.
A call is recognised in two ways:

* by its reference: namespace with execution ids, hash of the prompt, count within this execution of the node. That
  holds across interrupts, retries and processes, as long as the checkpoint is the same.
* by its place: the same without ids. That holds in a fork too, where ids change. Since a loop passes the same place
  again, a step is only repeated while it does not lie behind: it is not in the state the node starts from, and the
  branch of history that is running did not make it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from steproute.ledger import Ledger, Task
from steproute.plugins.langgraph.records import Record, Records, in_order, new_record
from steproute.plugins.langgraph.site import Site

_KEPT_EXECUTIONS = 1024


@dataclass(slots=True)
class _Execution:
    """One execution of a node: how often it asked each question."""

    token: Any
    attempt: int
    counts: dict[str, int] = field(default_factory=dict)
    given_up: dict[str, str] = field(default_factory=dict)
    """Question → step whose call was raised to the host: the same question again is a retry of it."""
    model: Any = None
    """The model a middleware was first asked for: the agent's own."""
    call: Any = None
    """The routed call a middleware is at work on."""


@dataclass(slots=True)
class Branch:
    """The line of checkpoints a thread is on: up to `start` it shares the older ones, then it has its own."""

    start: str = ""
    addressed: str = ""
    """The checkpoint a caller went back to."""
    roots: set[str] = field(default_factory=set)
    step: int = -1

    def made(self, root: str) -> bool:
        """Whether a superstep that ran from this checkpoint lies on the branch."""
        return root in self.roots or root < self.start


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
    unstored: dict[str, None] = field(default_factory=dict)
    """Keys of records that no state is known to hold in their latest version."""
    branch: Branch = field(default_factory=Branch)
    since: float = field(default_factory=time.time)
    counted: bool = False
    """True = the router knew the task before this journal: what was saved until then is in its books already."""
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
        if key is None or self._ended(key):
            key = self._decided_for(site, role, ref) if kind == "call" else None
            key = key or self._numbered(site, base, kind, ref)
            self.refs[ref] = key
        self._used.setdefault((kind, key), {})[site.root] = ref
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

    def _uses(self, kind: str, key: str) -> dict[str, str]:
        """Where callers of one kind have used a record."""
        return self._used.get((kind, key)) or {}

    def _numbered(self, site: Site, base: str, kind: str, ref: str) -> str:
        channel = site.records or {}
        for number in count():
            key = f"{base}/{number}"
            uses = self._uses(kind, key)
            if not uses and key not in self.records:
                return key
            passed = self._ended(key) or key in channel or self._behind(site, uses)
            if not passed and uses.get(site.root) in (None, ref):
                return key
        raise AssertionError("unreachable")

    def _decided_for(self, site: Site, role: str, ref: str) -> str | None:
        """The step that a router node decided for this call and no call of this branch has taken; nearest, then latest."""
        best: Record | None = None
        for copy in (site.records if site.records is not None else self.records).values():
            if copy.get("kind") != "node" or copy.get("status") != "decided" or self._ended(copy["key"]):
                continue
            if copy["role"] not in ("", role) or not within(site.parent, copy["ns"]):
                continue
            uses = self._uses("call", copy["key"])
            if self._behind(site, uses) or uses.get(site.root) not in (None, ref):
                continue
            if best is None or (len(copy["ns"]), copy["at"]) > (len(best["ns"]), best["at"]):
                best = copy
        return None if best is None else str(best["key"])

    def _ended(self, key: str) -> bool:
        """Whether a step belongs to a task that was finished under the same name."""
        record = self.records.get(key)
        return record is not None and bool(record.get("ended"))

    def _behind(self, site: Site, roots: Mapping[str, str]) -> bool:
        """Whether an earlier superstep of the running branch is among these."""
        return bool(roots) and any(root != site.root and self.branch.made(root) for root in roots)

    def is_new_branch(self, site: Site) -> bool:
        """Whether this is the first call of a run that went back in time."""
        if not site.addressed:
            return False
        if site.root in self.branch.roots:  # older versions run the old step itself again, later ones a fork of it
            return any(root > site.root for root in self.branch.roots)
        return site.addressed != self.branch.addressed or ("|" not in site.ns and site.step <= self.branch.step)

    def follow(self, site: Site, start: str | None = None) -> None:
        """Note the superstep that is running.

        Args:
            site: where a call is made.
            start: the newest checkpoint a new branch shares with older ones; None = the branch goes on.
        """
        if start is not None:
            self.branch = Branch(start, site.addressed)
        elif not self.branch.roots and not self.branch.start:
            self.branch.start = site.root
        self.branch.roots.add(site.root)
        if "|" not in site.ns:
            self.branch.step = site.step

    # --- records ----------------------------------------------------------------------------------------------

    def update(self, key: str, changes: Record) -> None:
        """Change a record, or begin it. The old dict may stand in a state and stays as it is."""
        known = self.records.get(key)
        record = new_record(key) if known is None else known.copy()
        record.update(changes)
        record["version"] += 1
        self.records[key] = record
        self.unstored[key] = None

    def stored(self, channel: Mapping[str, Any] | None) -> None:
        """Note what a state holds."""
        if channel:
            done = [
                key
                for key in self.unstored
                if key in channel and channel[key]["version"] >= self.records[key]["version"]
            ]
            for key in done:
                del self.unstored[key]

    def begin_anew(self, opening: Ledger | Task) -> None:
        """The host finished the task: what comes now is another one under the same name."""
        with self.lock:
            for key, record in list(self.records.items()):
                if not self._ended(key):  # the router learns of what is still open when a task ends
                    learnt = record["learnt"] or int(key in self.home and record["answers"] > 0)
                    self.update(key, {"ended": True, "learnt": learnt})
            self.home.clear()
            self.tools.clear()
            self.opening, self.task = opening, task_of(opening)

    def take_in(
        self, records: Mapping[str, Any], refs: Mapping[str, str] | None = None
    ) -> list[tuple[Record, Record | None]]:
        """Merge records that another process wrote, or a state that was given.

        Returns:
            Those that were not known in this version, by time, each with the version that was known.
        """
        news = []
        for record in in_order(records):
            known = self.records.get(record["key"])
            if known is None or record["version"] > known["version"]:
                self.records[record["key"]] = dict(record)
                news.append((record, known))
        for ref, key in (refs or {}).items():
            if key in self.records:
                self.refs.setdefault(ref, key)
                uses = self._used.setdefault((ref.partition(":")[0], key), {})
                uses.setdefault(self.records[key]["root"], ref)
        return news

    def unknown(self, channel: Mapping[str, Any] | None) -> Records:
        """Records of a state that this process has not seen in this version."""
        found = {}
        for key, record in (channel or {}).items():
            known = self.records.get(key)
            if known is None or record["version"] > known["version"]:
                found[key] = record
        return found

    def next_step(self, steps: int) -> str:
        """The router's key for a new step: the number of steps so far, made unique for parallel calls."""
        taken = {record["step"] for record in self.records.values() if not record.get("ended")}
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


def task_of(opening: Ledger | Task) -> Task:
    """The task a ledger, or the task itself, is about."""
    return opening.task if isinstance(opening, Ledger) else opening


def within(inner: str, outer: str) -> bool:
    """Whether a graph is another one, or runs inside it."""
    return outer == "" or inner == outer or inner.startswith(f"{outer}|")
