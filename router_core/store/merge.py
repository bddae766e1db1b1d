"""What other workers learnt: their rows are read every so often and applied like a restart's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from steproute.store import schema
from steproute.store.batch import Batch
from steproute.store.connection import Connection
from steproute.store.restore import Restorer, in_order
from steproute.store.writer import Writer

PAGE = 500
"""Most rows per table and look: a decision does not wait for a long night's work of others."""
GAP_S = 60.0
"""How long a missing row number is looked for: a worker takes its numbers before it commits."""
KEPT = 10_000


class Cursor:
    """Reads a table that others add to, by row number; numbers that are not there yet are asked for again."""

    def __init__(self, table: str, last: int):
        self.table, self.last = table, last
        self.missing: dict[int, float] = {}

    def read(self, connection: Connection, now: float) -> list[dict[str, Any]]:
        """Rows that were not seen before."""
        for n in [n for n, since in self.missing.items() if now - since > GAP_S]:
            del self.missing[n]
        wanted = list(self.missing)[:PAGE]
        also = f" OR n IN ({', '.join('?' for _ in wanted)})" if wanted else ""
        cursor = connection.run(
            f"SELECT * FROM {self.table} WHERE n > ?{also} ORDER BY n LIMIT {PAGE}", (self.last, *wanted)
        )
        names = [column[0] for column in cursor.description]
        rows = [{**dict(zip(names, row, strict=True)), "kind": self.table} for row in cursor.fetchall()]
        for row in rows:
            n = row["n"]
            self.missing.pop(n, None)
            if n > self.last:
                self.missing.update(dict.fromkeys(range(max(self.last + 1, n - PAGE), n), now))
                self.last = n
        return rows

    @property
    def settled(self) -> int:
        """Every row up to here has been read."""
        return min(self.missing, default=self.last + 1) - 1


class Merger:
    """Follows the other workers of a store, and knows which tasks only this one has changed."""

    def __init__(
        self,
        connection: Connection,
        restorer: Restorer,
        writer: Writer,
        cursors: Mapping[str, int],
        poll_s: float,
        clock: Callable[[], float],
    ):
        self._connection, self._restorer, self._writer = connection, restorer, writer
        self._poll_s, self._clock = poll_s, clock
        self._cursors = [Cursor(table.name, cursors.get(table.name, 0)) for table in schema.EVENTS]
        self._changes: dict[str, int] = {}
        self._next = clock() + poll_s

    def poll(self, now: bool = False) -> int:
        """Learn from what the others wrote, if it is time.

        Args:
            now: True = whatever the time.

        Returns:
            The latest `seq` seen; 0 = none.
        """
        if not now and self._clock() < self._next:
            return 0
        self._next = self._clock() + self._poll_s
        try:
            events = [row for cursor in self._cursors for row in cursor.read(self._connection, self._clock())]
            for event in in_order([event for event in events if event["writer"] != self._writer.id]):
                self._restorer.apply(event, learn=True)
        except self._connection.failures as error:
            self._writer.failed(error)
            return 0
        return max((event["seq"] for event in events), default=0)

    def cursors(self) -> dict[str, int]:
        """Per table the row up to which everything was read."""
        return {cursor.table: cursor.settled for cursor in self._cursors}

    # --- whose task it is ------------------------------------------------------------------------------------

    def begin(self, task: str) -> None:
        """This worker opens a task that nobody had."""
        self._note(task, 0)

    def own(self, batch: Batch) -> None:
        """This worker has changed tasks."""
        for task in batch.touched:
            if task in self._changes:
                self._changes[task] += 1

    def note(self, task: str, changes: int) -> None:
        """A task was read as of so many changes."""
        self._note(task, changes)

    def is_ours(self, task: str, changes: int) -> bool:
        """Whether nobody else has changed a task since this worker knows it."""
        return self._changes.get(task) == changes

    def _note(self, task: str, changes: int) -> None:
        self._changes.pop(task, None)
        self._changes[task] = changes
        while len(self._changes) > KEPT:
            del self._changes[next(iter(self._changes))]
