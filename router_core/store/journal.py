"""The log of a router in a database: every step becomes a few rows, committed before the host gets its answer back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from steproute.accounts import NANO, Accounts
from steproute.budget import Budget
from steproute.decision import Decision
from steproute.errors import BudgetExceeded, NoEligibleModel, StoreError
from steproute.ledger import Evidence, Outcome, Task
from steproute.policies.base import Feedback
from steproute.progress import Progress
from steproute.progress.views import fingerprint
from steproute.store.batch import Batch
from steproute.store.connection import Connection
from steproute.store.merge import Merger
from steproute.store.restore import Parts, Restorer
from steproute.store.rows import clean, decision_values, evidence_json, name, outcome_values, plain_json
from steproute.store.shared import SharedAccounts
from steproute.store.snapshots import Snapshots
from steproute.store.spool import Spool, default_folder
from steproute.store.writer import Writer
from steproute.taskstate import Made, OpenStep, TaskState

if TYPE_CHECKING:
    from steproute.store import Store

logger = logging.getLogger("steproute")


class Journal:
    """See `steproute.steplog.StepLog`. One per router."""

    def __init__(self, store: Store, clock: Callable[[], float]):
        """Open the store.

        Raises:
            StoreError: it cannot be opened, is of a newer schema, or belongs to another process.
        """
        self.store, self.clock = store, clock
        self.connection = Connection(store.target, store.shared, store.timeout_s)
        self.shared = self.connection.shared
        self.writer = Writer(self.connection, clock)
        if (self.shared and not self.connection.sqlite) or store.spool is not None:
            self.writer.spool = Spool(store.spool or default_folder(), self.connection.label, self.writer.id)
        self.batch = Batch()
        self.seq = 0
        self._paid: tuple[str, str, dict[str, float]] | None = None
        """Call id, model and spending of the outcome that is being taken in."""
        self._parts: Parts
        self._restorer: Restorer
        self._merger: Merger | None = None
        self._snapshots: Snapshots
        self._accounts: Accounts
        self._embedders: set[str] = set()
        self._next_sweep = 0.0

    def accounts(self, budget: Budget) -> Accounts:
        """The books: in this process where it owns the store, in the database where it is shared."""
        if self.shared:
            self._accounts = SharedAccounts(budget, self.clock, self.connection, self.writer, self.store.slice_share)
        else:
            self._accounts = Accounts(budget, self.clock)
        return self._accounts

    def start(self, routers: tuple[Any, ...]) -> None:
        """Bring a router to where the store is: what it learnt, its queues, its running tasks.

        Args:
            routers: the router's parts, in the order of `Parts`.

        Raises:
            StoreError: the store cannot be read, or does not fit the router's embedder.
        """
        parts = self._parts = Parts(*routers)
        try:
            self.writer.register(0)
            if self.writer.spool is not None:
                self.writer.spool.absorb(self.writer.absorb)
            self._restorer = Restorer(self.connection, parts)
            self._restorer.check_embedders()
            self._embedders = self._restorer.embedders
            self._snapshots = Snapshots(self.connection, parts, self.clock, self.store.snapshot_every)
            self.seq, cursors = self._restorer.restart(self._snapshots, self.shared, self.store.replay_limit)
        except self.connection.failures as error:
            raise StoreError(f"store {self.connection.label}: cannot be read: {self.connection.said(error)}") from None
        self.writer.waiting.clear()
        if self.shared:
            self._merger = Merger(self.connection, self._restorer, self.writer, cursors, self.store.poll_s, self.clock)
        # What was learnt from a long log again is not learnt once more if this process is killed soon.
        self._snapshots.after(self.seq, quiet=not parts.tasks.running(), cursors=cursors if self.shared else {})

    # --- what the router tells -------------------------------------------------------------------------------

    def opened(self, task: Task) -> None:
        """See `StepLog.opened`."""
        now = self.clock()
        if self._merger is not None:
            self._merger.begin(task.id)
        self.batch.tasks[task.id] = (
            clean(task.id),
            clean(task.domain),
            clean(task.dimension),
            clean(task.source),
            None if task.parent is None else clean(task.parent),
            clean(task.goal) if self.store.prompts else None,
            *(now, now, 0, self.writer.id, None, False, None, None, None),
        )

    def decided(self, made: Made, pinned: bool) -> None:
        """See `StepLog.decided`. Written with the step's outcome: a decision alone is no reason to wait for the disk."""
        decision = made.decision
        self._event(
            "decisions",
            decision.task,
            decision.created,
            decision_values(
                decision, made.context, pinned, None if self.shared else self._parts.draws.state(), self.store.prompts
            ),
        )
        for key, value in made.context.memo.items():
            if key.startswith(("request:", "state:")):
                self._note_embedder(key.partition(":")[2], len(value))

    def refused(self, task: str, role: str, error: BudgetExceeded | NoEligibleModel) -> None:
        """See `StepLog.refused`. A step without a model is no step: nothing is kept."""

    def billed(self, decision: Decision, outcome: Outcome, model: str, spent: Mapping[str, float]) -> None:
        """See `StepLog.billed`."""
        self._paid = (outcome.call_id, model, dict(spent))

    def observed(self, decision: Decision, outcome: Outcome, progress: Progress, output: str, answers: bool) -> None:
        """See `StepLog.observed`."""
        paid, self._paid = self._paid, None
        if paid is None or paid[0] != outcome.call_id:
            return
        task = decision.task
        self.seq += 1
        mark = fingerprint(output or outcome.error or "")
        values = outcome_values(
            decision, outcome, paid[1], answers, progress, paid[2], mark, output if self.store.prompts else None
        )
        head = (self.seq, self.writer.id, self.clock(), name(task))
        spends: list[tuple[str, str, int]] = []
        if isinstance(self._accounts, SharedAccounts):
            for key, parts in self._accounts.take_settled():
                spends += parts
                if key is not None:
                    self.batch.freed.append(key)
        self.batch.outcomes.append(((*head, *values), spends))
        self._touch(task)

    def reported(self, task: str, decision: str, evidence: Sequence[Evidence]) -> None:
        """See `StepLog.reported`."""
        self._event("reports", task, self.clock(), (decision, evidence_json(evidence, self.store.prompts)))
        self._touch(task)

    def learnt(self, item: OpenStep, feedback: Feedback) -> None:
        """See `StepLog.learnt`."""
        after = feedback.progress
        values = (
            item.decision.id,
            clean(item.context.candidates[item.index].name),
            item.index,
            feedback.gain,
            feedback.reliability,
            *(after.g, int(after.regime), after.r, after.d, after.e),
            plain_json(feedback.cost),
        )
        self._event("experiences", item.decision.task, self.clock(), values)

    def ended(self, task: str, reward: float | None, idle: bool, spent: Mapping[str, float]) -> None:
        """See `StepLog.ended`."""
        now = self.clock()
        if isinstance(self._accounts, SharedAccounts) and not self._accounts.ended_here:
            return
        self._event("endings", task, now, (reward, idle, plain_json(spent)))
        if not (self.shared and self.writer.down):  # else the books close it when the database is back
            self.batch.ended[clean(task)] = (now, idle, reward)
        self._touch(task)
        if not self.shared:
            for resource, amount in spent.items():
                self.batch.spent[clean(task), resource] = round(amount * NANO)
            self.batch.queues = dict(self._accounts.queues)

    def commit(self) -> None:
        """See `StepLog.commit`."""
        batch = self.batch
        if not batch:
            return
        batch.seq = self.seq
        self.batch = Batch()
        self.writer.commit(batch)
        if self._merger is not None:
            self._merger.own(batch)
        elif not self.writer.down:
            self._snapshots.after(self.seq, quiet=not self._parts.tasks.running(), cursors={})

    def close(self) -> None:
        """See `StepLog.close`. What the database does not take now stays in the spool."""
        self.commit()
        self.writer.retry(now=True)
        if self.writer.waiting:
            logger.error(
                "steproute: store %s: %d steps could not be written", self.connection.label, len(self.writer.waiting)
            )
        if self.writer.spool is not None:
            self.writer.spool.close()
        self._restorer.stop()
        self.connection.close()

    # --- what the router asks --------------------------------------------------------------------------------

    def tick(self) -> None:
        """See `StepLog.tick`."""
        if self.writer.waiting or self.writer.down:
            self.writer.retry()
        if isinstance(self._accounts, SharedAccounts):
            self._accounts.anew()
        if self._merger is not None and not self.writer.down:
            self._adopt_orphans()
            self._merger.poll()
            self.seq = max(self.seq, self._merger.seq)
            quiet, cursors = not self._parts.tasks.running(), {}
            if self._snapshots.due(self.seq, quiet):
                # of all that is known up to certain rows, and of nothing beyond them
                quiet = self._merger.catch_up() and quiet
                cursors = self._merger.cursors()
                self.seq = max(self.seq, self._merger.seq)
            if not self.writer.down:
                self._snapshots.after(self.seq, quiet, cursors)

    def recover(self, task: Task, known: TaskState | None) -> TaskState | None:
        """See `StepLog.recover`."""
        if self.writer.down or (known is not None and not self.shared):
            return None
        try:
            row = self._look_up(task)
            if row is None:
                return None
            if row["ended"] is not None and not row["idle"]:
                return None
            if known is not None and self._merger is not None and self._merger.is_ours(task.id, row["changes"]):
                return None
            state = self._restorer.rebuild(row)
        except self.connection.failures as error:
            self.writer.failed(error)
            return None
        self.seq = max(self.seq, self._restorer.top)  # what follows comes after what others did
        if self._merger is not None:
            self._merger.note(task.id, row["changes"])
            if known is not None:
                keep_pending(known, state)
        elif row["ended"] is not None:  # it only ended by being idle, and goes on
            self._accounts.restore(task.id, row["parent"], self._restorer.spent(task.id))
            self.opened(task)
        return state

    def may_end(self, task: str) -> bool:
        """See `StepLog.may_end`."""
        if not self.shared:
            return True
        row = self._asked(lambda: self._restorer.task_row(task))
        if row is None:
            return not self.writer.down
        if row["ended"] is not None or row["touched"] <= self.clock() - self._parts.tasks.idle_timeout:
            return True
        self._parts.tasks.heard(task, row["touched"])
        return False

    def finished(self, task: str) -> bool:
        """See `StepLog.finished`."""
        row = self._asked(lambda: self._restorer.task_row(task))
        return row is not None and row["ended"] is not None and not row["idle"]

    def heard(self, task: str, call_id: str) -> bool:
        """See `StepLog.heard`."""
        sql = "SELECT 1 FROM outcomes WHERE task = ? AND call_id = ?"
        return bool(self._asked(lambda: self.connection.rows(sql, (clean(task), clean(call_id)))))

    # --- inside ----------------------------------------------------------------------------------------------

    def _look_up(self, task: Task) -> dict[str, Any] | None:
        """The row of a task; where books are shared its accounts come along, since a decision asks for them next."""
        accounts = self._accounts
        if not isinstance(accounts, SharedAccounts):
            return self._restorer.task_row(task.id)
        accounts.flush()
        accounts.open(task.id, task.parent)
        sql = "SELECT * FROM tasks WHERE id = ?"
        found, rows = self.connection.many([(sql, (clean(task.id),)), accounts.prefetch(task.id)])
        accounts.prefetched(task.id, rows)
        return found[0] if found else None

    def _adopt_orphans(self) -> None:
        """Tasks that have been idle everywhere, maybe because their worker is gone, are ended by whoever sees it first."""
        now, timeout = self.clock(), self._parts.tasks.idle_timeout
        if now < self._next_sweep:
            return
        self._next_sweep = now + max(timeout / 10, self.store.poll_s)
        for row in self._asked(lambda: self._restorer.orphans(now, now - timeout)) or ():
            if self._parts.tasks.get(row["id"]) is None:
                state = self._asked(lambda: self._restorer.rebuild(row))  # noqa: B023
                if state is not None:
                    self._accounts.open(row["id"], row["parent"], resume=True)
                    self._parts.tasks.adopt(state, oldest=True)

    def _asked(self, question: Callable[[], Any]) -> Any:
        if self.writer.down:
            return None
        try:
            return question()
        except self.connection.failures as error:
            self.writer.failed(error)
            return None

    def _event(self, table: str, task: str, created: float, values: tuple[Any, ...]) -> None:
        self.seq += 1
        self.batch.rows.setdefault(table, []).append((self.seq, self.writer.id, created, name(task), *values))

    def _touch(self, task: str) -> None:
        """Other workers have to hear of it; where one process owns the store, the task's rows say as much."""
        if self.shared:
            self.batch.touched[clean(task)] = self.clock()

    def _note_embedder(self, name: str, dim: int) -> None:
        if name not in self._embedders:
            self._embedders.add(name)
            self._asked(
                lambda: self.connection.run(
                    "INSERT INTO embedders (name, dim) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", (name, dim)
                )
            )


def keep_pending(known: TaskState, fresh: TaskState) -> None:
    """Decisions that are not in the database yet are part of the task all the same."""
    for key, made in known.made.items():
        if key not in fresh.made and not made.answered:
            fresh.keep(made)
