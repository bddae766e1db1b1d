"""What one commit writes: kept until the database has taken it, and carried over a restart by the spool if need be."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from steproute.store.rows import plain_json
from steproute.store.schema import REVISION

ADDED: dict[str, tuple[Any, ...]] = {"0001": (0,)}
"""Revision of an older spool → values of the columns that outcomes did not have then, the last of the table."""


@dataclass(slots=True)
class Batch:
    """Rows and changes that belong together."""

    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    """Table → rows to add; outcomes are kept apart, since they are added once per call."""
    outcomes: list[tuple[tuple[Any, ...], list[tuple[str, str, int]]]] = field(default_factory=list)
    """Each with what it adds to which accounts: (task, resource, nano-units)."""
    tasks: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Tasks that begin: id → row of `tasks`."""
    touched: dict[str, float] = field(default_factory=dict)
    spent: dict[tuple[str, str], int] = field(default_factory=dict)
    """(task, resource) → nano-units in all of a task that ended, where one process owns the books."""
    adds: list[tuple[str, str, int]] = field(default_factory=list)
    """(task, resource, nano-units) on top, for spending without an outcome."""
    freed: list[str] = field(default_factory=list)
    """Reservations that were settled."""
    ended: dict[str, tuple[float, bool, float | None]] = field(default_factory=dict)
    """Task → when, idle, reward."""
    queues: dict[str, float] = field(default_factory=dict)
    """Values of the queues, where one process owns the books."""
    seq: int = 0

    def __bool__(self) -> bool:
        return bool(self.rows or self.outcomes or self.tasks or self.touched or self.freed or self.ended or self.adds)

    def to_json(self) -> str:
        """One line for the spool."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "spent"}
        return plain_json(
            {**values, "revision": REVISION, "spent": [[*key, amount] for key, amount in self.spent.items()]}
        )

    @classmethod
    def from_json(cls, text: str) -> Batch:
        """Read what `to_json` made.

        Raises:
            ValueError: it is torn or no batch.
        """
        try:
            data = json.loads(text)
            data["spent"] = {(task, resource): amount for task, resource, amount in data["spent"]}
            data["rows"] = {name: [tuple(row) for row in rows] for name, rows in data["rows"].items()}
            added = ADDED.get(data.pop("revision", "0001"), ())
            data["outcomes"] = [((*row, *added), [tuple(part) for part in parts]) for row, parts in data["outcomes"]]
            data["adds"] = [tuple(part) for part in data["adds"]]
            data["tasks"] = {name: tuple(row) for name, row in data["tasks"].items()}
            data["ended"] = {name: tuple(row) for name, row in data["ended"].items()}
            return cls(**data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no batch of a store: {error}") from None
