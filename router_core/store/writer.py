"""Commits batches in order; what the database cannot take now is kept, spooled where it is shared, and written later."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any

from steproute.errors import StoreError
from steproute.store import schema
from steproute.store.atonce import at_once
from steproute.store.batch import Batch
from steproute.store.connection import Connection
from steproute.store.spool import Spool

logger = logging.getLogger("steproute")

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 10.0
KEPT_BATCHES = 100_000

_TOUCH = "UPDATE tasks SET touched = ?, changes = changes + 1, writer = ? WHERE id = ?"
_WRITER = "UPDATE writers SET seq = ?, touched = ? WHERE id = ?"
_SPENT = (
    "INSERT INTO accounts (task, resource, spent) VALUES (?, ?, ?) "
    "ON CONFLICT (task, resource) DO UPDATE SET spent = excluded.spent"
)
_SPEND = (
    "INSERT INTO accounts (task, resource, spent) VALUES (?, ?, ?) "
    "ON CONFLICT (task, resource) DO UPDATE SET spent = accounts.spent + excluded.spent"
)
_QUEUE = (
    "INSERT INTO queues (resource, value, advances) VALUES (?, ?, 1) "
    "ON CONFLICT (resource) DO UPDATE SET value = excluded.value, advances = queues.advances + 1"
)
_END = "UPDATE tasks SET ended = ?, idle = ?, reward = ? WHERE id = ?"


class Writer:
    """The store's only writer in this process. The caller holds the router's lock."""

    def __init__(self, connection: Connection, clock: Callable[[], float]):
        """Register with the store.

        Args:
            connection: the open store.
            clock: gives the time in seconds.
        """
        self.connection, self.clock = connection, clock
        self.spool: Spool | None = None
        """Where batches wait on disk while the database is away; None = in memory only."""
        self.id = uuid.uuid4().hex[:12]
        self.waiting: deque[Batch] = deque()
        self.down = False
        """True while the database does not answer."""
        self.lost = 0
        """Batches that were dropped: more than `KEPT_BATCHES` were waiting."""
        self.refused = 0
        """Batches set aside because the database refused their content."""
        self._wait = FIRST_WAIT_S
        self._next_try = 0.0
        self._registered = False
        self._insert_calls = ""

    def register(self, seq: int) -> None:
        """Add this process to the writers."""
        now = self.clock()
        place = f"{socket.gethostname()}:{os.getpid()}"
        self.connection.run(
            "INSERT INTO writers (id, seq, started, touched, place) VALUES (?, ?, ?, ?, ?)",
            (self.id, seq, now, now, place),
        )
        self._registered = True

    def commit(self, batch: Batch) -> bool:
        """Write a batch, after those that wait.

        Returns:
            True = everything is in the database now.
        """
        if self.waiting or self.down:
            self._keep(batch)
            return self.retry()
        try:
            self._write(batch)
        except self.connection.write_failures as error:
            self._keep(batch)
            if self._hopeless(error):
                return True
            self._failed(error)
            return False
        return True

    def retry(self, now: bool = False) -> bool:
        """Write what waits, if it is time to try again; `now`: whatever the time."""
        if not self.waiting and not self.down:
            return True
        if not now and self.clock() < self._next_try:
            return False
        if self.down:
            try:
                self.connection.reconnect()
            except StoreError as error:
                self._failed(error)
                return False
        try:
            self._recover()
            while self.waiting:
                self._write(self.waiting[0])
                self.waiting.popleft()
        except self.connection.write_failures as error:
            if self._hopeless(error):
                return self.retry(now)
            self._failed(error)
            return False
        if self.down:
            logger.warning("steproute: store %s is back; everything that waited is written", self.connection.label)
        self.down, self._wait = False, FIRST_WAIT_S
        if self.spool is not None:
            self.spool.clear()
        return True

    def failed(self, error: Exception) -> None:
        """Note that the database did not answer a question either."""
        self._failed(error)

    def absorb(self, writer: str, batches: list[Batch]) -> None:
        """Write what an earlier process left in its spool, from where the database last heard of it."""
        found = self.connection.rows("SELECT seq FROM writers WHERE id = ?", (writer,))
        known = int(found[0][0]) if found else 0
        for batch in batches:
            if batch.seq > known:
                self._write(batch, writer)
        logger.warning(
            "steproute: store %s: %d steps of an earlier process were written", self.connection.label, len(batches)
        )

    # --- inside ----------------------------------------------------------------------------------------------

    def _keep(self, batch: Batch) -> None:
        self.waiting.append(batch)
        if len(self.waiting) > KEPT_BATCHES:
            self.waiting.popleft()
            self.lost += 1
            logger.error("steproute: store %s: too much waits to be written; the oldest is lost", self.connection.label)
        if self.spool is not None:
            try:
                self.spool.add(batch)
            except OSError as error:
                logger.error(
                    "steproute: spool %s cannot be written (%s); steps wait in memory", self.spool.path, error.strerror
                )

    def _failed(self, error: Exception) -> None:
        if not self.down:
            said = self.connection.said(error)
            logger.error(
                "steproute: store %s does not take what is written (%s); steps are kept", self.connection.label, said
            )
        self.down = True
        self._next_try = self.clock() + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT_S)

    def _hopeless(self, error: Exception) -> bool:
        """A batch whose content is refused would hold up all others: it is set aside. True = go on with the next."""
        if not self.waiting or not self.connection.refuses(error):
            return False
        batch = self.waiting.popleft()
        self.refused += 1
        logger.error(
            "steproute: store %s refuses a step (%s); it is set aside", self.connection.label, type(error).__name__
        )
        if self.spool is not None:
            self.spool.set_aside(batch)
        return True

    def _recover(self) -> None:
        """Drop what was written after all: a connection may break between commit and answer."""
        if not self.down:
            return
        found = self.connection.rows("SELECT seq FROM writers WHERE id = ?", (self.id,))
        if not found:
            self.register(0)
            return
        while self.waiting and self.waiting[0].seq <= int(found[0][0]):
            self.waiting.popleft()

    def _write(self, batch: Batch, writer: str = "") -> None:
        connection, writer = self.connection, writer or self.id
        if connection.pid != os.getpid():
            raise StoreError("store: this process was forked after the store was opened; open it after forking")
        whole = None if connection.sqlite else at_once(connection, batch, writer, self.clock())
        if whole is not None:
            connection.run(*whole)
            return
        with connection.transaction():
            if batch.tasks:
                self._begin(batch)
            for row, spends in batch.outcomes:
                self._outcome(row, spends)
            for name, rows in batch.rows.items():
                connection.insert(schema.metadata.tables[name], rows)
            for task, touched in batch.touched.items():
                connection.run(_TOUCH, (touched, writer, task))
            for (task, resource), amount in batch.spent.items():
                connection.run(_SPENT, (task, resource, amount))
            for part in batch.adds:
                connection.run(_SPEND, part)
            for key in batch.freed:
                connection.run("DELETE FROM reservations WHERE key = ?", (key,))
            for task, (when, idle, reward) in batch.ended.items():
                connection.run(_END, (when, idle, reward, task))
            for resource, value in batch.queues.items():
                connection.run(_QUEUE, (resource, value))
            if self.spool is not None or connection.shared:  # else nobody asks
                connection.run(_WRITER, (batch.seq, self.clock(), writer))

    def _begin(self, batch: Batch) -> None:
        names = [column.name for column in schema.tasks.columns]
        marks = ", ".join("?" for _ in names)
        again = ", ".join(f"{name} = excluded.{name}" for name in ("touched", "ended", "idle"))
        sql = (
            f"INSERT INTO tasks ({', '.join(names)}) VALUES ({marks}) "
            f"ON CONFLICT (id) DO UPDATE SET {again}, parent = COALESCE(tasks.parent, excluded.parent)"
        )
        for row in batch.tasks.values():
            self.connection.run(sql, row)

    def _outcome(self, row: tuple[Any, ...], spends: list[tuple[str, str, int]]) -> None:
        """A call is billed once, whoever says so."""
        if not self._insert_calls:
            names = self.connection.columns(schema.outcomes)
            marks = ", ".join("?" for _ in names)
            self._insert_calls = (
                f"INSERT INTO outcomes ({', '.join(names)}) VALUES ({marks}) ON CONFLICT (task, call_id) DO NOTHING"
            )
        if not spends:
            self.connection.run(self._insert_calls, row)
        elif self.connection.sqlite:
            if self.connection.run(self._insert_calls, row).rowcount:
                for spend in spends:
                    self.connection.run(_SPEND, spend)
        else:  # in one statement, whose answer need not be awaited; in order, so that no two workers wait for each other
            marks = ", ".join(["(?::text, ?::text, ?::bigint)"] * len(spends))
            self.connection.run(
                f"WITH added AS ({self._insert_calls} RETURNING 1) INSERT INTO accounts (task, resource, spent) "
                f"SELECT v.a, v.b, v.c FROM (VALUES {marks}) AS v(a, b, c), added ORDER BY 1, 2 "
                "ON CONFLICT (task, resource) DO UPDATE SET spent = accounts.spent + excluded.spent",
                (*row, *(value for spend in sorted(spends) for value in spend)),
            )
