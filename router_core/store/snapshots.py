"""Snapshots of learnt state: plain JSON with a checksum, so that a restart need not read the whole log."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from steproute.errors import SteprouteError, StoreError
from steproute.store.rows import plain_json

if TYPE_CHECKING:
    from steproute.store.connection import Connection
    from steproute.store.restore import Parts

logger = logging.getLogger("steproute")

VERSION = 1
KEPT = 3
NOISY = 3
"""A router that is never without a running task is snapshotted all the same, after this many times the usual number of events."""


class Snapshots:
    """Writes one every so many events, between tasks where it can; reads the newest sound one."""

    def __init__(self, connection: Connection, parts: Parts, clock: Callable[[], float], every: int):
        """Set up.

        Args:
            connection: the store.
            parts: what is kept of the router.
            clock: gives the time in seconds.
            every: events between two snapshots; 0 = none is written.
        """
        self._connection, self._parts, self._clock, self._every = connection, parts, clock, every
        self._last = 0
        self.learner = " + ".join(f"{name}:{type(part).__qualname__}" for name, part in parts.learners())
        self._possible = all(_keeps(part) for _, part in parts.learners())

    def after(self, seq: int, quiet: bool, cursors: Mapping[str, int]) -> None:
        """Write one if it is time.

        Args:
            seq: the latest event.
            quiet: no task is running, so nothing is half learnt.
            cursors: per table the latest row that was learnt from; empty = all of them.
        """
        due = seq - self._last
        if not self._possible or not self._every or due < self._every or (not quiet and due < NOISY * self._every):
            return
        self._last = seq
        with self._parts.faults.kept("snapshot"):
            self.write(seq, cursors)

    def write(self, seq: int, cursors: Mapping[str, int]) -> None:
        """Write one now; the oldest beyond `KEPT` goes."""
        connection = self._connection
        if not cursors:
            names = ("decisions", "outcomes", "reports", "experiences", "endings")
            cursors = {name: int(connection.rows(f"SELECT COALESCE(MAX(n), 0) FROM {name}")[0][0]) for name in names}
        state = self.capture().encode()
        with connection.transaction():
            connection.run(
                "INSERT INTO snapshots (created, seq, learner, cursors, digest, set_aside, state) "
                "VALUES (?, ?, ?, ?, ?, NULL, ?)",
                (self._clock(), seq, self.learner, plain_json(cursors), digest(state), state),
            )
            connection.run(
                "DELETE FROM snapshots WHERE set_aside IS NULL AND learner = ? AND n NOT IN "
                f"(SELECT n FROM snapshots WHERE set_aside IS NULL AND learner = ? ORDER BY n DESC LIMIT {KEPT})",
                (self.learner, self.learner),
            )

    def capture(self) -> str:
        """Everything learnt, as JSON text."""
        learners = {name: _state(part) for name, part in self._parts.learners()}
        parts = {
            "forecast": self._parts.forecast.state(),
            "health": self._parts.health.state(),
            "derived": self._parts.derived.state(),
        }
        return json.dumps({"version": VERSION, "learners": learners, **parts}, allow_nan=False)

    def load(self) -> dict[str, int] | None:
        """Take over the newest sound snapshot; one that is not is set aside with its reason.

        Returns:
            Per table the latest row it has learnt from; None = there is none.
        """
        sql = (
            "SELECT n, seq, cursors, digest, state FROM snapshots "
            "WHERE set_aside IS NULL AND learner = ? ORDER BY n DESC"
        )
        if not self._possible:
            return None
        fresh = self.capture().encode()
        for n, seq, cursors, checksum, data in self._connection.rows(sql, (self.learner,)):
            try:
                self._take(bytes(data), checksum)
                marks = {str(name): int(value) for name, value in json.loads(cursors).items()}
            except (SteprouteError, AttributeError, KeyError, TypeError, ValueError) as error:
                reason = f"{type(error).__name__}: {error}"[:300]
                logger.warning(
                    "steproute: store %s: snapshot %d is set aside (%s); what it held is learnt again from the log",
                    self._connection.label, n, reason,
                )  # fmt: skip
                self._connection.run("UPDATE snapshots SET set_aside = ? WHERE n = ?", (reason, n))
                self._take(fresh, digest(fresh))  # half of it may have been taken over
                continue
            self._last = int(seq)
            return marks
        return None

    def _take(self, data: bytes, checksum: str) -> None:
        if digest(data) != checksum:
            raise StoreError("the checksum does not match")
        state = json.loads(data)
        if state["version"] != VERSION:
            raise StoreError(f"version: seen {state['version']!r}; allowed: {VERSION}")
        for name, part in self._parts.learners():
            _load(part, state["learners"][name])
        self._parts.forecast.load(state["forecast"], self._parts.pool)
        self._parts.derived.load(state["derived"])
        self._parts.health.load(state["health"])


def digest(data: bytes) -> str:
    """Checksum of a snapshot's state."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _keeps(part: Any) -> bool:
    return (hasattr(part, "state") and hasattr(part, "load")) or not (hasattr(part, "learn") or hasattr(part, "finish"))


def _state(part: Any) -> Any:
    return part.state() if hasattr(part, "state") else None


def _load(part: Any, state: Any) -> None:
    if hasattr(part, "load"):
        part.load(state)
