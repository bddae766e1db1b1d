"""The books of several workers: spending, reservations and queues are rows, so that limits hold whoever asks."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from steproute.accounts import NANO, Accounts, Spending
from steproute.budget import CALLS, Budget, advance_queue
from steproute.errors import BudgetExceeded
from steproute.ids import new_id
from steproute.store import schema
from steproute.store.batch import Batch
from steproute.store.connection import Connection
from steproute.store.rows import clean, plain_json
from steproute.store.writer import Writer

logger = logging.getLogger("steproute")

CALL, SLICE = "call", "slice"
"""Kinds of reservations: of one call in flight; of a worker, for the time the database is away."""
Found = tuple[dict[str, int], dict[str, int]]
"""Spent and reserved nano-units of an account, per resource."""
Settled = tuple[str | None, list[tuple[str, str, int]]]


class SharedAccounts(Accounts):
    """See `Accounts`. Every reservation is one transaction that locks the accounts it charges.

    Where the database does not answer, what is known of a task's spending is what this worker has seen: a hard limit is
    closed but for the slice the worker has leased, everything else stays open.
    """

    def __init__(
        self, budget: Budget, clock: Callable[[], float], connection: Connection, writer: Writer, slice_share: float
    ):
        super().__init__(budget, clock)
        self._db, self._writer, self._share = connection, writer, slice_share
        self._parents: dict[str, str | None] = {}
        self._settled: list[Settled] = []
        self._slices: dict[tuple[str, str], int] = {}
        """(account, resource) → nano-units leased and not used, for while the database is away."""
        self._mine: dict[str, Mapping[str, Any]] = {}
        """Reservations of this worker that are not settled."""
        self.ended_here = True
        """Whether the latest `close` ended the task, and no other worker had."""
        self._unclosed: deque[tuple[str, bool]] = deque()
        self._fresh: dict[str, Found] = {}
        """Accounts as they were read for the decision that is being made."""
        self._seen: dict[str, dict[str, int]] = {}
        """Account → spent nano-units as they were last read."""

    # --- the life of an account ------------------------------------------------------------------------------

    def open(self, task: str, parent: str | None = None, resume: bool = False) -> None:
        """See `Accounts.open`. Where the account is new is known to the database alone."""
        known = self._parents.get(task)
        if task not in self._parents or (known is None and parent is not None and task not in self._names(parent)):
            self._parents[task] = parent

    def restore(self, task: str, parent: str | None, spent: Mapping[str, int]) -> None:
        """See `Accounts.restore`: the database has it already."""
        self.open(task, parent)

    def close(self, task: str) -> Mapping[str, float]:
        """See `Accounts.close`. Among all workers one ends the task and advances the queues."""
        self.flush()
        names = self._names(task)
        spent = self._seen.get(task, {})
        self.ended_here = True
        if not self._writer.down:
            try:
                with self._db.transaction():
                    spent, self.ended_here = self._close(clean(task), parentless=len(names) == 1)
            except self._db.failures as error:
                self._writer.failed(error)
        if self._writer.down:
            self._unclosed.append((clean(task), len(names) == 1))
        for key in [key for key, item in self._mine.items() if item["task"] == task]:
            del self._mine[key]
        self._parents.pop(task, None)
        self._seen.pop(task, None)
        for leased in [leased for leased in self._slices if leased[0] == task]:
            del self._slices[leased]
        return _units(spent)

    def _close(self, task: str, parentless: bool) -> tuple[dict[str, int], bool]:
        lock = "" if self._db.sqlite else " FOR UPDATE"
        found = self._db.rows(f"SELECT ended, counted, unused FROM tasks WHERE id = ?{lock}", (task,))
        self._db.run("DELETE FROM reservations WHERE task = ?", (task,))
        rows = self._db.rows("SELECT resource, spent FROM accounts WHERE task = ?", (task,))
        spent = {str(name): int(amount) for name, amount in rows}
        if not found or found[0][0] is not None:
            return spent, False
        counted, unused = (None if text is None else json.loads(text) for text in found[0][1:])
        if parentless:
            unused = self._advance(spent, counted, unused or {})
        self._db.run(
            "UPDATE tasks SET ended = ?, counted = ?, unused = ? WHERE id = ?",
            (self._clock(), plain_json(spent), plain_json(unused or {}), task),
        )
        return spent, True

    def _advance(
        self, spent: dict[str, int], counted: dict[str, int] | None, unused: dict[str, float]
    ) -> dict[str, float]:
        lock = "" if self._db.sqlite else " FOR UPDATE"
        for name in self.queues:
            self._db.run(
                "INSERT INTO queues (resource, value, advances) VALUES (?, 0, 0) ON CONFLICT (resource) DO NOTHING",
                (name,),
            )
            value = float(self._db.rows(f"SELECT value FROM queues WHERE resource = ?{lock}", (name,))[0][0])
            limit = self.limits[name]
            target = (limit.target or 0.0) * (1.0 if limit.per == "task" else spent.get(CALLS, 0) / NANO)
            amount = spent.get(name, 0) / NANO
            if counted is None:
                fresh = advance_queue(value, amount, target)
                unused[name] = max(0.0, target - value - amount)
            else:  # it went on after an end: what its target left covers the rest first
                more = amount - counted.get(name, 0) / NANO
                covered = min(unused.get(name, 0.0), more)
                unused[name] = unused.get(name, 0.0) - covered
                fresh = value + more - covered
            self._db.run("UPDATE queues SET value = ?, advances = advances + 1 WHERE resource = ?", (fresh, name))
            self.queues[name] = fresh
        return unused

    # --- asking ----------------------------------------------------------------------------------------------

    def spending(self, task: str) -> Spending:
        """See `Accounts.spending`."""
        self._fresh = {}
        return self._spending_of(task)

    def pressure(self, task: str) -> Spending:
        """See `Accounts.pressure`."""
        return self._spending_of(self._names(task)[-1])

    def _spending_of(self, task: str) -> Spending:
        self.flush()
        spent, reserved = self._read([task])[task]
        return Spending(_units(spent), _units(reserved), dict(self.queues))

    def refusals(self, task: str, worst: Sequence[Mapping[str, float]]) -> list[BudgetExceeded | None]:
        """See `Accounts.refusals`."""
        names = self._names(task)
        if not self.hard:
            return [None] * len(worst)
        self.flush()
        found = self._read(names)
        return [self._refused(task, names, found, self._held(amounts, amounts)) for amounts in worst]

    def holds(self, key: str) -> bool:
        """See `Accounts.holds`."""
        item = self._mine.get(key)
        return item is not None and item["expires"] > self._clock()

    # --- changing --------------------------------------------------------------------------------------------

    def reserve(self, task: str, amounts: Mapping[str, float], worst: Mapping[str, float]) -> str:
        """See `Accounts.reserve`. One transaction: lock, look, take."""
        held = self._held(amounts, worst)
        names = self._names(task)
        key = new_id()
        self._fresh = {}
        now = self._clock()
        expires = now + self.budget.lease_s
        if not self._writer.down:
            try:
                self.flush()
                if self._db.sqlite or self._share:
                    with self._db.transaction():
                        self._reserve(task, names, held, key, expires)
                else:
                    self._reserve_there(task, names, held, key, expires)
            except self._db.failures as error:
                self._writer.failed(error)
        if self._writer.down:
            self._from_slice(task, names, held)
        self._mine[key] = {"task": task, "expires": expires, "held": held}
        return key

    def release(self, key: str | None) -> None:
        """See `Accounts.release`."""
        if key is not None and self._mine.pop(key, None) is not None:
            self._settled.append((key, []))

    def settle(self, task: str, key: str | None, spent: Mapping[str, float]) -> None:
        """See `Accounts.settle`. Written together with the outcome it belongs to, or with whatever comes next."""
        if key is not None:
            self._mine.pop(key, None)
        parts = [
            (clean(name), resource, round(amount * NANO))
            for name in self._names(task)
            for resource, amount in spent.items()
        ]
        for name, resource, amount in parts:
            seen = self._seen.setdefault(name, {})
            seen[resource] = seen.get(resource, 0) + amount
        self._settled.append((key, parts))

    def take_settled(self) -> list[Settled]:
        """What was settled and is not written: the caller writes it."""
        taken, self._settled = self._settled, []
        self._fresh = {}
        return taken

    def flush(self) -> None:
        """Write what was settled without an outcome."""
        if not self._settled:
            return
        batch = Batch()
        for key, parts in self.take_settled():
            batch.adds += parts
            if key is not None:
                batch.freed.append(key)
        self._writer.commit(batch)

    # --- inside ----------------------------------------------------------------------------------------------

    def _names(self, task: str) -> list[str]:
        names: list[str] = []
        name: str | None = task
        while name is not None and name not in names:
            names.append(name)
            name = self._parents.get(name)
        return names

    def anew(self) -> None:
        """Another decision begins: accounts are read again, and those closed while the database was away are closed there."""
        self._fresh.clear()
        while self._unclosed and not self._writer.down:
            try:
                with self._db.transaction():
                    self._close(*self._unclosed[0])
                self._unclosed.popleft()
            except self._db.failures as error:
                self._writer.failed(error)

    def _read(self, names: Sequence[str]) -> dict[str, Found]:
        """Spent and reserved per account, and the queues, in one statement: one moment of the database."""
        if self._writer.down:
            return self._remembered(names)
        if all(name in self._fresh for name in names):
            return {name: self._fresh[name] for name in names}
        try:
            self._fresh = self._look(names)
            return self._fresh
        except self._db.failures as error:
            self._writer.failed(error)
            return self._remembered(names)

    def _remembered(self, names: Sequence[str]) -> dict[str, Found]:
        reserved: dict[str, int] = {}
        for item in self._mine.values():
            for resource, amount in item["held"].items():
                reserved[resource] = reserved.get(resource, 0) + amount
        return {name: (self._seen.get(clean(name), {}), reserved) for name in names}

    def _look(self, names: Sequence[str]) -> dict[str, Found]:
        cleaned = [clean(name) for name in names]
        sql, values = self._looking(cleaned)
        return self._seen_in(names, self._db.rows(sql, values))

    def prefetch(self, task: str) -> tuple[str, Sequence[Any]]:
        """The query that `prefetched` takes the rows of, to be asked together with others."""
        return self._looking([clean(name) for name in self._names(task)])

    def prefetched(self, task: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Accounts as they were just read; see `prefetch`."""
        self._fresh = self._seen_in(self._names(task), [tuple(row.values()) for row in rows])

    def _looking(self, cleaned: Sequence[str]) -> tuple[str, Sequence[Any]]:
        marks = ", ".join("?" for _ in cleaned)
        return (
            f"SELECT 0 AS kind, task, resource, CAST(spent AS DOUBLE PRECISION) AS value, spent FROM accounts WHERE task IN ({marks}) "
            "UNION ALL SELECT 1, account, resource, 0, SUM(amount) FROM reservations "
            f"WHERE account IN ({marks}) AND expires > ? AND NOT (kind = 'slice' AND writer = ?) GROUP BY account, resource "
            "UNION ALL SELECT 2, '', resource, value, 0 FROM queues",
            (*cleaned, *cleaned, self._clock(), self._writer.id),
        )

    def _seen_in(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Found]:
        cleaned = [clean(name) for name in names]
        found: dict[str, Found] = {name: ({}, {}) for name in names}
        by_clean = dict(zip(cleaned, names, strict=True))
        for kind, account, resource, value, amount in rows:
            if kind == 2:
                if resource in self.queues:
                    self.queues[resource] = float(value)
            else:
                found[by_clean[account]][kind][resource] = int(amount)
        for name, (spent, _) in found.items():
            self._seen[clean(name)] = dict(spent)
        return found

    def _refused(
        self, task: str, names: Iterable[str], found: Mapping[str, Found], held: Mapping[str, int]
    ) -> BudgetExceeded | None:
        for name in names:
            spent, reserved = found[name]
            for resource, limit in self.hard.items():
                asked, gone, kept = held.get(resource), spent.get(resource, 0), reserved.get(resource, 0)
                room = limit - gone - kept
                if self._writer.down:
                    room = min(room, self._slices.get((name, resource), 0))
                if not (asked == 0 or (room >= 1 if asked is None else asked <= room)):
                    amounts = (limit / NANO, gone / NANO, kept / NANO, (asked or 0) / NANO)
                    return BudgetExceeded(resource, *amounts, task, name)
        return None

    def _reserve(self, task: str, names: Sequence[str], held: Mapping[str, int], key: str, expires: float) -> None:
        charged = [clean(name) for name in names]
        if self.hard and not self._db.sqlite:  # SQLite's writers are one at a time as it is
            for name in sorted(charged):  # the same order in every worker
                self._db.run("SELECT pg_advisory_xact_lock(hashtextextended(?, 7205759403))", (name,))
        found = self._look(names) if self.hard else {}
        if self.hard:
            refusal = self._refused(task, names, found, held)
            if refusal is not None:
                raise refusal
        rows = [
            (key, name, resource, amount, clean(task), CALL, self._writer.id, expires)
            for name in charged
            for resource, amount in held.items()
        ]
        if rows:
            self._db.insert(schema.reservations, rows)
        if self._share and found:
            self._lease(task, found, held, expires)

    def _reserve_there(
        self, task: str, names: Sequence[str], held: Mapping[str, int], key: str, expires: float
    ) -> None:
        """The same in the database itself: one journey."""
        limited = list(self.hard)
        found = self._db.rows(
            "SELECT * FROM steproute_reserve(?, ?, ?, ?, ?, ?::text[], ?::text[], ?::bigint[], ?::text[], ?::bigint[], "
            "?::bigint[])",
            (
                *(key, clean(task), self._writer.id, expires, self._clock()),
                *([clean(name) for name in names], list(held), list(held.values())),
                *(limited, [held.get(name) for name in limited], list(self.hard.values())),
            ),
        )
        for payer, resource, gone, kept in found:
            asked, limit = held.get(resource) or 0, self.hard[resource]
            amounts = (limit / NANO, int(gone) / NANO, int(kept) / NANO, asked / NANO)
            raise BudgetExceeded(resource, *amounts, task, "" if payer == clean(task) else str(payer))

    def _lease(self, task: str, found: Mapping[str, Found], held: Mapping[str, int], expires: float) -> None:
        """Keep a part of every hard limit for the time the database is away, of what is left."""
        for name, (spent, reserved) in found.items():
            for resource, limit in self.hard.items():
                left = limit - spent.get(resource, 0) - reserved.get(resource, 0) - held.get(resource, 0)
                share = min(round(limit * self._share), max(left, 0))
                self._slices[name, resource] = share
                self._db.run(
                    "INSERT INTO reservations (key, account, resource, amount, task, kind, writer, expires) "
                    "VALUES (?, ?, ?, ?, ?, 'slice', ?, ?) ON CONFLICT (key, account, resource) "
                    "DO UPDATE SET amount = excluded.amount, expires = excluded.expires",
                    (f"slice {self._writer.id}", clean(name), resource, share, clean(task), self._writer.id, expires),
                )

    def _from_slice(self, task: str, names: Sequence[str], held: Mapping[str, int]) -> None:
        """The database is away: take from what was leased, or refuse."""
        refusal = self._refused(task, names, self._remembered(names), held)
        if refusal is not None:
            raise refusal
        for name in names:
            for resource in self.hard:
                left = self._slices.get((name, resource), 0) - held.get(resource, 0)
                self._slices[name, resource] = max(left, 0)


def _units(amounts: Mapping[str, int]) -> dict[str, float]:
    return {name: amount / NANO for name, amount in amounts.items()}
