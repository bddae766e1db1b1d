"""Rows back into what a router knows: learnt state, running tasks, queues.

Events are applied in the order in which they happened. A decision is put to estimator and policy again, on the context it
was made from, since policies keep what they worked out at a decision for when its outcome comes; the choice itself is
taken from the log. Feedback is handed over exactly as it was.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from steproute.accounts import NANO, Accounts
from steproute.derived import Derived
from steproute.draws import Draws
from steproute.errors import StoreError
from steproute.faults import Faults
from steproute.fleet import Fleet
from steproute.forecast import CostForecast
from steproute.health import Health
from steproute.learning import Learner
from steproute.ledger import Task
from steproute.models import ModelPool
from steproute.policies.base import Feedback, Policy
from steproute.predict.base import GainEstimator
from steproute.store import schema
from steproute.store.connection import Connection
from steproute.store.rows import Reader, evidence_of, outcome_of, progress_of, step_of, task_of
from steproute.store.samples import SampleLog
from steproute.store.snapshots import Snapshots
from steproute.tasks import TaskTable
from steproute.taskstate import Made, TaskState

logger = logging.getLogger("steproute")

LOST = "lost"
"""Reservation of a decision whose process is gone: it is held by nobody and made anew when the call is."""
KEPT_TASKS = 2000
PAGE = 2000
Event = dict[str, Any]


@dataclass(slots=True)
class Parts:
    """What of a router is brought back."""

    pool: ModelPool
    accounts: Accounts
    forecast: CostForecast
    health: Health
    policy: Policy
    estimator: GainEstimator
    reliability: Any
    learner: Learner
    tasks: TaskTable
    draws: Draws
    faults: Faults
    fleet: Fleet
    derived: Derived

    def learners(self) -> list[tuple[str, Any]]:
        """Everything that learns, each once."""
        found: dict[int, tuple[str, Any]] = {}
        for name in ("policy", "estimator", "reliability"):
            part = getattr(self, name)
            if part is not None:
                found.setdefault(id(part), (name, part))
        return list(found.values())


class Restorer:
    """Reads events and applies them."""

    def __init__(self, connection: Connection, parts: Parts):
        self._connection, self._parts = connection, parts
        self._reader = Reader(parts.pool, parts.accounts, Draws(0))
        self._tasks: OrderedDict[str, TaskState] = OrderedDict()
        """Tasks that are being followed: at a restart those that may go on, later those of other workers."""
        self._samples = SampleLog(connection)
        self.embedders: set[str] = set()
        self.top = 0
        """Latest `seq` of a task that was rebuilt."""
        self.skipped = 0
        """Feedback that could not be applied: its decision was not kept, or it does not fit the policy any more."""

    # --- starting --------------------------------------------------------------------------------------------

    def check_embedders(self) -> None:
        """Compare the stored embeddings with the router's embedders.

        Raises:
            StoreError: one of the same name has another dimension.
        """
        stored = dict(self._connection.rows("SELECT name, dim FROM embedders"))
        self.embedders = set(stored)
        ours = {}
        for _, part in self._parts.learners():
            texts = getattr(part, "texts", None)
            if texts is not None:
                ours[texts.embedder.name] = texts.embedder.dim
        for name, dim in ours.items():
            if stored.get(name, dim) != dim:
                raise StoreError(
                    f"store {self._connection.label}: it holds embeddings of {name!r} with dimension {stored[name]}, the "
                    f"router's embedder of that name has dimension {dim}; use the embedder it was filled with, give the "
                    "new one a name of its own, or open another store"
                )
        if ours and stored and not set(ours) & set(stored):
            logger.warning(
                "steproute: store %s holds embeddings of %s, the router embeds with %s: past steps teach costs and scores, "
                "but are no one's neighbours",
                self._connection.label, ", ".join(sorted(stored)), ", ".join(sorted(ours)),
            )  # fmt: skip

    def restart(self, snapshots: Snapshots, shared: bool, limit: int) -> tuple[int, dict[str, Any]]:
        """Bring everything back.

        Args:
            snapshots: where learnt state is kept.
            shared: other workers use the store: their running tasks stay theirs.
            limit: most decisions learnt from again where no snapshot helps.

        Returns:
            The latest `seq`, and per table the latest row that was read.
        """
        parts, connection = self._parts, self._connection
        start = snapshots.load()
        ends = {table.name: self._last(table.name) for table in schema.EVENTS}
        top = max((seq for _, seq in ends.values()), default=0)
        if start is None:
            after: Mapping[str, int] = self._floor(limit)
        else:
            after = start
            self._refill(after)
        running = [] if shared else self._running()
        begun = {row["id"] for row in running}
        running.sort(key=self.touched)
        for row in running:  # what came before the snapshot is known to the learners; the tasks need it all the same
            if start is not None:
                self._follow(row, after)
        for event in self._events(after, {name: n for name, (n, _) in ends.items()}):
            self.apply(event, learn=True)
        if not shared:
            for row in running:
                parts.accounts.restore(row["id"], row["parent"], self.spent(row["id"]))
                state = self._tasks.pop(row["id"], None) or self.rebuild(row)
                state.touched = self.touched(row)
                parts.tasks.adopt(state)
            for name, value in connection.rows("SELECT resource, value FROM queues"):
                if name in parts.accounts.queues:
                    parts.accounts.queues[name] = value
            self._restore_rng()
            self._tasks.clear()
        if self._reader.strangers:
            logger.warning(
                "steproute: store %s mentions models that the pool does not have: %s; what was learnt of the others is used",
                connection.label, ", ".join(self._reader.strangers),
            )  # fmt: skip
        if begun:
            logger.info("steproute: store %s: %d running tasks go on", connection.label, len(begun))
        return top, {name: n for name, (n, _) in ends.items()}

    def _last(self, table: str) -> tuple[int, int]:
        found = self._connection.rows(f"SELECT n, seq FROM {table} ORDER BY n DESC LIMIT 1")
        return (int(found[0][0]), int(found[0][1])) if found else (0, 0)

    def _floor(self, limit: int) -> dict[str, int]:
        """Without a snapshot the latest `limit` decisions are learnt from again, and what followed them."""
        found = self._connection.rows(f"SELECT n, seq FROM decisions ORDER BY n DESC LIMIT 1 OFFSET {limit}")
        if not found:
            return dict.fromkeys((table.name for table in schema.EVENTS), 0)
        logger.warning(
            "steproute: store %s: no snapshot fits; only the latest %d decisions are learnt from again",
            self._connection.label, limit,
        )  # fmt: skip
        seq, floor = int(found[0][1]), {}
        for table in schema.EVENTS:
            rows = self._connection.rows(f"SELECT MAX(n) FROM {table.name} WHERE seq <= ?", (seq,))
            floor[table.name] = int(rows[0][0] or 0)
        return floor

    def _running(self) -> list[Event]:
        return self._mappings("SELECT * FROM tasks WHERE ended IS NULL", ())

    def _follow(self, row: Event, until: Mapping[str, int]) -> None:
        events = [event for event in self._task_events(row["id"]) if event["n"] <= until.get(event["kind"], 0)]
        if events:
            self._tasks[row["id"]] = self._parts.tasks.blank(task_of(row))
            for event in events:
                self.apply(event, learn=False)

    def _refill(self, until: Mapping[str, int]) -> None:
        """A snapshot has the trees, the log what they were fitted on: samples are made of its latest rows."""
        estimator: Any = self._parts.estimator
        if not hasattr(estimator, "refill"):
            return
        last, most = until.get("experiences", 0), estimator.trainer.config.max_rows
        estimator.refill(lambda: self._samples.latest(f"state:{estimator.texts.embedder.name}", last, most))

    def stop(self) -> None:
        """Read no more samples: the connection is about to be closed."""
        self._samples.stop()

    def _restore_rng(self) -> None:
        found = self._connection.rows("SELECT rng FROM decisions ORDER BY n DESC LIMIT 1")
        if not found or found[0][0] is None:
            return
        self._parts.draws.load(str(found[0][0]))

    # --- asking ----------------------------------------------------------------------------------------------

    def task_row(self, task: str) -> Event | None:
        """The row of a task."""
        found = self._mappings("SELECT * FROM tasks WHERE id = ?", (task,))
        return found[0] if found else None

    def orphans(self, now: float, before: float) -> list[Event]:
        """Tasks that run, were touched last before a moment, and have no call in flight."""
        return self._mappings(
            "SELECT * FROM tasks WHERE ended IS NULL AND touched < ? AND NOT EXISTS (SELECT 1 FROM reservations r WHERE "
            "r.task = tasks.id AND r.kind = 'call' AND r.expires > ?) ORDER BY touched LIMIT 20",
            (before, now),
        )

    def spent(self, task: str) -> dict[str, int]:
        """What a task and its children spent, in nano-units, call by call."""
        rows = self._connection.rows(
            "WITH RECURSIVE line(id) AS (SELECT id FROM tasks WHERE id = ? UNION SELECT t.id FROM tasks t JOIN line "
            "ON t.parent = line.id) SELECT o.spent FROM outcomes o JOIN line ON o.task = line.id",
            (task,),
        )
        total: dict[str, int] = {}
        for (text,) in rows:
            for name, amount in from_json(text).items():
                total[name] = total.get(name, 0) + round(amount * NANO)
        return total

    def touched(self, row: Event) -> float:
        """When something happened in a task last."""
        found = self._connection.rows("SELECT MAX(created) FROM outcomes WHERE task = ?", (row["id"],))
        return max(float(row["touched"]), float(found[0][0] or 0.0))

    def rebuild(self, row: Event) -> TaskState:
        """The state of a task from its own rows; nobody learns from them."""
        kept = self._tasks.pop(row["id"], None)
        self._tasks[row["id"]] = self._parts.tasks.blank(task_of(row))
        for event in self._task_events(row["id"]):
            self.apply(event, learn=False)
            self.top = max(self.top, event["seq"])
        state = self._tasks.pop(row["id"])
        if kept is not None:
            self._tasks[row["id"]] = kept
        state.touched = self.touched(row)
        return state

    def _task_events(self, task: str) -> list[Event]:
        events = []
        for table in schema.EVENTS:
            for event in self._mappings(f"SELECT * FROM {table.name} WHERE task = ? ORDER BY n", (task,)):
                event["kind"] = table.name
                events.append(event)
        return in_order(events)

    def _events(self, after: Mapping[str, int], until: Mapping[str, int] | None = None) -> Iterable[Event]:
        """All events after some rows, and up to others, in order, in pages of `seq`.

        What other workers add meanwhile is beyond `until`: it is read, and learnt, once, by whoever follows them.
        """
        for table in schema.EVENTS:
            after = {table.name: 0, **after}
        marks = dict(after)
        while True:
            page: list[Event] = []
            full: list[int] = []
            for table in schema.EVENTS:
                last_row = 2**62 if until is None else until.get(table.name, 0)
                rows = self._mappings(
                    f"SELECT * FROM {table.name} WHERE n > ? AND n <= ? ORDER BY n LIMIT {PAGE}",
                    (marks[table.name], last_row),
                )
                for event in rows:
                    event["kind"] = table.name
                if len(rows) == PAGE:
                    full.append(rows[-1]["seq"])
                page += rows
            if not page:
                return
            # a table with more to come bounds the page: nothing after its last row is in order yet
            last = min(full, default=None)
            ready = [event for event in page if last is None or event["seq"] < last] or page
            for event in ready:
                marks[event["kind"]] = max(marks[event["kind"]], event["n"])
            yield from in_order(ready)

    def _mappings(self, sql: str, values: Sequence[Any]) -> list[Event]:
        cursor = self._connection.run(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    # --- applying --------------------------------------------------------------------------------------------

    def apply(self, event: Event, learn: bool) -> None:
        """Apply one event.

        Args:
            event: a row, with its table's name as `kind`.
            learn: whether estimator, policy and forecast learn from it; else only the task's state follows.
        """
        kind: Callable[[Event, TaskState, bool], None] = getattr(self, f"_apply_{event['kind']}")
        with self._parts.faults.kept("replay"):
            kind(event, self._state(event), learn)

    def forget(self, task: str) -> None:
        """Stop following a task."""
        self._tasks.pop(task, None)

    def _state(self, event: Event) -> TaskState:
        """The state of an event's task; one that began before what is applied now (a snapshot, a limit) is read from its start."""
        task = event["task"]
        state = self._tasks.get(task)
        if state is not None:
            self._tasks.move_to_end(task)
            return state
        row = self.task_row(task)
        state = self._tasks[task] = self._parts.tasks.blank(Task(id=task) if row is None else task_of(row))
        while len(self._tasks) > KEPT_TASKS:
            self._tasks.popitem(last=False)
        moment = (event["seq"], event["writer"])
        if self._connection.rows("SELECT 1 FROM decisions WHERE task = ? AND seq < ? LIMIT 1", (task, event["seq"])):
            for earlier in self._task_events(task):
                if (earlier["seq"], earlier["writer"]) < moment:
                    self.apply(earlier, learn=False)
        return state

    def _apply_decisions(self, event: Event, state: TaskState, learn: bool) -> None:
        decision = self._reader.decision(event)
        decision.reservation = None if decision.stop else LOST
        context = self._reader.context(event, decision, state.ledger.task, state.ledger, tuple(state.models))
        if context.candidates and not decision.fallback:
            with self._parts.faults.kept("replay"):
                self._parts.estimator.predict(context)
                if not event["pinned"] and not _cannot_score(self._parts.policy):
                    self._parts.policy.score(context)
        state.attempts[decision.step] = max(state.attempts.get(decision.step, 1), decision.attempt)
        state.baseline = decision.progress.g
        state.latest = decision.progress
        state.moments += 1
        state.keep(Made(decision, context, state.moments))

    def _apply_outcomes(self, event: Event, state: TaskState, learn: bool) -> None:
        if event["call_id"] in state.billed:
            return
        state.billed.add(event["call_id"])
        outcome = outcome_of(event)
        model = self._reader.model(event["model"])
        made = state.made.get((event["step"], event["attempt"]))
        if made is not None and made.decision.id != event["decision"]:
            made = None
        if learn:
            decision = None if made is None else made.decision
            self._parts.learner.remember(model, decision, event["task"], event["role"], outcome, event["created"])
            self._parts.fleet.remember(model, event["prompt_tokens"] + event["completion_tokens"], event["created"])
        if made is None:
            return
        progress = progress_of(event)
        spent = from_json(event["spent"])
        state.tracker.prints[event["decision"]] = event["fingerprint"]
        item = self._parts.learner.place(state, made, outcome, event["output"] or "", (), model.name, spent)
        if item is not None:
            item.step.g = progress.g
            if not item.step.role:
                item.step = step_of(event, outcome)
        state.baseline, state.latest = progress.g, progress

    def _apply_reports(self, event: Event, state: TaskState, learn: bool) -> None:
        index = next((i for i, step in enumerate(state.ledger.steps) if step.id == event["decision"]), None)
        if index is None:
            return
        step = state.ledger.steps[index]
        step.outcome.evidence.extend(evidence_of(event))
        state.tracker.rewind(index)
        with self._parts.faults.kept("progress"):
            state.progress()
        after = state.tracker.after(index)
        step.g = after.g if after is not None else step.g
        self._parts.learner.moved(state, index)
        state.baseline = state.latest.g

    def _apply_experiences(self, event: Event, state: TaskState, learn: bool) -> None:
        item = next((item for item in state.waiting if item.decision.id == event["decision"]), None)
        if item is None or not 0 <= event["candidate"] < len(item.context.candidates):
            self.skipped += 1
            return
        state.waiting.remove(item)
        state.learnt.append(item)
        if learn and event["model"] in self._parts.pool:
            self._parts.learner.teach(
                Feedback(
                    item.context,
                    event["candidate"],
                    event["gain"],
                    progress_of(event),
                    event["reliability"],
                    from_json(event["cost"]),
                    item.step.outcome.evidence,
                )
            )

    def _apply_endings(self, event: Event, state: TaskState, learn: bool) -> None:
        learnt, state.learnt = state.learnt, []
        self._parts.forecast.caches.forget(event["task"])
        if not learn:
            return
        for _, part in self._parts.learners():
            if hasattr(part, "finish"):
                with self._parts.faults.kept("finish"):
                    part.finish(state.ledger, learnt, event["reward"])
        if not event["idle"]:
            self._tasks.pop(event["task"], None)


def _cannot_score(policy: Policy) -> bool:
    """Whether scoring asks a model, or needs what the host said then."""
    return bool(getattr(policy, "calls_out", False) or getattr(policy, "needs_extra", False))


_RANK = {table.name: rank for rank, table in enumerate(schema.EVENTS)}


def in_order(events: list[Event]) -> list[Event]:
    """Events as they happened: by `seq`, those of one worker together, an outcome before what was learnt of it."""
    return sorted(events, key=lambda event: (event["seq"], event["writer"], _RANK[event["kind"]], event["n"]))
