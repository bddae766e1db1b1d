"""What other workers learnt: their rows are read every so often and applied like a restart's."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steproute.store import schema
from steproute.store.batch import Batch
from steproute.store.connection import Connection
from steproute.store.restore import Restorer, in_order
from steproute.store.writer import Writer

PAGE = 500
"""Most rows per table and look: a decision does not wait for a long night's work of others."""
MOST_PAGES = 20
GAP_S = 60.0
"""How long a missing row number is looked for: a worker takes its numbers before it commits."""
SLICE_S = 0.002
"""How long one decision may learn from others."""
KEPT = 10_000


class Cursor:
    """Reads a table that others add to, by row number; numbers that are not there yet are asked for again."""

    def __init__(self, table: str, last: int):
        self.table, self.last = table, last
        self.missing: dict[int, float] = {}

    def query(self, now: float) -> tuple[str, Sequence[Any]]:
        """What asks for rows that were not seen before."""
        for n in [n for n, since in self.missing.items() if now - since > GAP_S]:
            del self.missing[n]
        wanted = list(self.missing)[:PAGE]
        also = f" OR n IN ({', '.join('?' for _ in wanted)})" if wanted else ""
        return f"SELECT * FROM {self.table} WHERE n > ?{also} ORDER BY n LIMIT {PAGE}", (self.last, *wanted)

    def take(self, rows: list[dict[str, Any]], now: float) -> list[dict[str, Any]]:
        """Note which rows came."""
        for row in rows:
            row["kind"] = self.table
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
        self._queue: deque[dict[str, Any]] = deque()
        self._changes: dict[str, int] = {}
        self._next = clock() + poll_s
        self.seq = 0
        """Latest `seq` that was learnt from."""

    def poll(self, now: bool = False) -> int:
        """Learn from what the others wrote, if it is time.

        Args:
            now: True = whatever the time.

        Returns:
            The latest `seq` learnt from; 0 = none.
        """
        moment = self._clock()
        try:
            if now or (moment >= self._next and len(self._queue) < PAGE):
                self._next = moment + self._poll_s
                found = self._connection.many([cursor.query(moment) for cursor in self._cursors])
                events = [
                    row for cursor, rows in zip(self._cursors, found, strict=True) for row in cursor.take(rows, moment)
                ]
                self._queue.extend(in_order([event for event in events if event["writer"] != self._writer.id]))
            return self._apply(math.inf if now else SLICE_S)
        except self._connection.failures as error:
            self._writer.failed(error)
            return 0

    def catch_up(self) -> bool:
        """Learn from everything that is there now, whatever the time; False = some rows are still on their way."""
        for _ in range(MOST_PAGES):
            before = [cursor.last for cursor in self._cursors]
            self.poll(now=True)
            if before == [cursor.last for cursor in self._cursors]:
                break
        return not self._queue and all(cursor.settled == cursor.last for cursor in self._cursors)

    def _apply(self, budget_s: float) -> int:
        """Learn from what waits, for so long at most: a decision does not wait for it."""
        seq, end = 0, time.perf_counter() + budget_s
        while self._queue and time.perf_counter() < end:
            event = self._queue.popleft()
            self._restorer.apply(event, learn=True)
            seq = event["seq"]
        self.seq = max(self.seq, seq)
        return seq

    def cursors(self) -> dict[str, int]:
        """Per table the row up to which everything was learnt from."""
        waiting: dict[str, int] = {}
        for event in self._queue:
            waiting[event["kind"]] = min(waiting.get(event["kind"], event["n"]), event["n"])
        return {
            cursor.table: min(cursor.settled, waiting.get(cursor.table, cursor.settled + 1) - 1)
            for cursor in self._cursors
        }

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
