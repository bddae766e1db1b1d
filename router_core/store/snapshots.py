"""Snapshots of learnt state: plain JSON with a checksum, so that a restart need not read the whole log.

What a part's `state()` gives under `blocks`, a list of long texts of which most stay as they were (a memory's experiences), is
kept once per text under its checksum: a snapshot then writes the new ones alone. Texts that a part's `filled()` gives are
written when they come up, and those that no snapshot needs any more are dropped one by one: no step waits for many of them.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from steproute.errors import SteprouteError, StoreError
from steproute.store.rows import plain_json
from steproute.store.schema import PREPARING

if TYPE_CHECKING:
    from steproute.store.connection import Connection
    from steproute.store.restore import Parts

logger = logging.getLogger("steproute")

VERSION = 1
KEPT = 3
BROKEN = (SteprouteError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a state that is damaged, or a part of the user's own, may raise."""
_ADD = "INSERT INTO blocks (digest, text) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING"
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
        self._digests: dict[str, str] = {}
        """Block → its checksum: a text that is the same object is not read again."""
        self._stale: set[str] | None = None
        """Blocks to be dropped; None = not looked for yet."""
        self._filling = [part.filled for _, part in parts.learners() if hasattr(part, "filled")]
        self.learner = " + ".join(_label(name, part) for name, part in parts.learners())
        self._possible = all(_keeps(part) for _, part in parts.learners())

    def after(self, seq: int, quiet: bool, cursors: Mapping[str, int]) -> None:
        """Write one if it is time.

        Args:
            seq: the latest event.
            quiet: no task is running, so nothing is half learnt.
            cursors: per table the latest row that was learnt from; empty = all of them.
        """
        if not self._possible or not self._every:
            return
        now = self.due(seq, quiet)
        if now or self._filling:
            with self._parts.faults.kept("snapshot"):
                self._ahead()
                if now:
                    self._last = seq
                    self.write(seq, cursors)

    def due(self, seq: int, quiet: bool) -> bool:
        """Whether there have been enough events since the last one; arguments as of `after`."""
        enough = self._every if quiet else NOISY * self._every
        return self._possible and self._every > 0 and seq - self._last >= enough

    def write(self, seq: int, cursors: Mapping[str, int]) -> None:
        """Write one now; the oldest beyond `KEPT` goes."""
        connection = self._connection
        if not cursors:
            names = ("decisions", "outcomes", "reports", "experiences", "endings")
            cursors = {name: int(connection.rows(f"SELECT COALESCE(MAX(n), 0) FROM {name}")[0][0]) for name in names}
        learners = {name: _state(part) for name, part in self._parts.learners()}
        blocks = self._set_apart(learners)
        state = self._text(learners).encode()
        with connection.transaction():
            self._alone()
            held = {key for (key,) in connection.rows("SELECT digest FROM blocks")}
            for key in blocks.keys() - held:
                connection.run(_ADD, (key, blocks[key]))
            connection.run(
                "INSERT INTO snapshots (created, seq, learner, cursors, digest, set_aside, state, blocks) "
                "VALUES (?, ?, ?, ?, ?, NULL, ?, ?)",
                (self._clock(), seq, self.learner, plain_json(cursors), digest(state), state, json.dumps([*blocks])),
            )
            old = connection.rows(
                f"SELECT n, blocks FROM snapshots WHERE set_aside IS NULL AND learner = ? ORDER BY n DESC LIMIT 100 OFFSET {KEPT}",
                (self.learner,),
            )
            for n, _ in old:
                connection.run("DELETE FROM snapshots WHERE n = ?", (n,))
            used = self._used()
        if self._stale is None:
            self._stale = held - used  # also what an earlier process left
        else:
            self._stale.update(key for _, text in old for key in json.loads(text) if key not in used)

    def _ahead(self) -> None:
        """Write a block that became full, or else drop one that nobody needs."""
        connection = self._connection
        for filled in self._filling:
            text = filled()
            if text is not None:
                key = self._digests[text] = digest(text.encode())
                connection.run(_ADD, (key, text))
                return
        if self._stale:
            with connection.transaction():
                self._alone()
                key = self._stale.pop()
                if key not in self._used():
                    connection.run("DELETE FROM blocks WHERE digest = ?", (key,))

    def _alone(self) -> None:
        """No other worker refers to blocks, or drops any, until this transaction ends."""
        if not self._connection.sqlite:
            self._connection.run(f"SELECT pg_advisory_xact_lock({PREPARING} + 1)")

    def _used(self) -> set[str]:
        """Blocks that sound snapshots refer to."""
        rows = self._connection.rows("SELECT blocks FROM snapshots WHERE set_aside IS NULL AND blocks <> '[]'")
        return {key for (text,) in rows for key in json.loads(text)}

    def _set_apart(self, learners: dict[str, Any]) -> dict[str, str]:
        """Put checksums in the place of blocks; gives checksum → block."""
        known, self._digests = self._digests, {}
        found: dict[str, str] = {}
        for name, state in learners.items():
            if isinstance(state, dict) and "blocks" in state:
                keys = []
                for text in state["blocks"]:
                    keys.append(known.get(text) or digest(text.encode()))
                    self._digests[text] = keys[-1]
                    found[keys[-1]] = text
                learners[name] = {**state, "blocks": keys}
        return found

    def capture(self) -> str:
        """Everything learnt, as JSON text."""
        return self._text({name: _state(part) for name, part in self._parts.learners()})

    def _text(self, learners: Mapping[str, Any]) -> str:
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
            "SELECT n, seq, cursors, digest, state, blocks FROM snapshots "
            "WHERE set_aside IS NULL AND learner = ? ORDER BY n DESC"
        )
        if not self._possible:
            return None
        try:
            fresh = self.capture().encode()
        except BROKEN as error:
            self._give_up("its `state()` gives no plain JSON", error)
            return None
        for n, seq, cursors, checksum, data, blocks in self._connection.rows(sql, (self.learner,)):
            try:
                self._take(bytes(data), checksum, self._blocks(json.loads(blocks)))
                marks = {str(name): int(value) for name, value in json.loads(cursors).items()}
            except BROKEN as error:
                reason = f"{type(error).__name__}: {error}"[:300]
                logger.warning(
                    "steproute: store %s: snapshot %d is set aside (%s); what it held is learnt again from the log",
                    self._connection.label, n, reason,
                )  # fmt: skip
                self._connection.run("UPDATE snapshots SET set_aside = ? WHERE n = ?", (reason, n))
                self._digests = {}
                try:
                    self._take(fresh, digest(fresh), None)  # half of it may have been taken over
                except BROKEN as fault:
                    self._give_up("its `load()` does not take its own state back", fault)
                    return None
                continue
            self._last = int(seq)
            return marks
        return None

    def _give_up(self, why: str, error: Exception) -> None:
        """Keep no snapshots: a part of the user's own is not made for them, and a restart learns from the log."""
        logger.warning(
            "steproute: store %s: no snapshots of %s are kept: %s (%s: %s)",
            self._connection.label, self.learner, why, type(error).__name__, error,
        )  # fmt: skip
        self._possible = False

    def _blocks(self, keys: list[str]) -> dict[str, str]:
        """The blocks of a snapshot; one that is damaged goes, lest a later snapshot refer to it.

        Raises:
            StoreError: one is missing or damaged.
        """
        found: dict[str, str] = {}
        reasons = []
        for key in keys:
            rows = self._connection.rows("SELECT text FROM blocks WHERE digest = ?", (key,))
            text = str(rows[0][0]) if rows else ""
            if rows and digest(text.encode()) != key:
                self._connection.run("DELETE FROM blocks WHERE digest = ?", (key,))
                reasons.append(f"block {key}: the checksum does not match")
            elif not rows:
                reasons.append(f"block {key} is missing")
            found[key], self._digests[text] = text, key
        if reasons:
            raise StoreError("; ".join(reasons))
        return found

    def _take(self, data: bytes, checksum: str, blocks: Mapping[str, str] | None) -> None:
        """Take over a state.

        Args:
            data: JSON text.
            checksum: what it must have.
            blocks: checksum → block; None = they are in their places.
        """
        if digest(data) != checksum:
            raise StoreError("the checksum does not match")
        state = from_json(data)
        if state["version"] != VERSION:
            raise StoreError(f"version: seen {state['version']!r}; allowed: {VERSION}")
        for name, part in self._parts.learners():
            kept = state["learners"][name]
            if blocks is not None and isinstance(kept, dict) and "blocks" in kept:
                kept = {**kept, "blocks": [blocks[key] for key in kept["blocks"]]}
            _load(part, kept)
        self._parts.forecast.load(state["forecast"], self._parts.pool)
        self._parts.derived.load(state["derived"])
        self._parts.health.load(state["health"])


def digest(data: bytes) -> str:
    """Checksum of a snapshot's state."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _label(name: str, part: Any) -> str:
    """Which part it is, and whose embeddings it learns from: those of another say nothing to it."""
    texts = getattr(part, "texts", None)
    return f"{name}:{type(part).__qualname__}" + ("" if texts is None else f"({texts.embedder.name})")


def _keeps(part: Any) -> bool:
    return (hasattr(part, "state") and hasattr(part, "load")) or not (hasattr(part, "learn") or hasattr(part, "finish"))


def _state(part: Any) -> Any:
    return part.state() if hasattr(part, "state") else None


def _load(part: Any, state: Any) -> None:
    if hasattr(part, "load"):
        part.load(state)
