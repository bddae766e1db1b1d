"""A step's batch as one statement of PostgreSQL, so that writing it is one journey and one transaction by itself."""

from __future__ import annotations

from typing import Any

from steproute.store import schema
from steproute.store.batch import Batch
from steproute.store.connection import Connection

Statement = tuple[str, list[Any]]


def at_once(connection: Connection, batch: Batch, writer: str, now: float) -> Statement | None:
    """The statement, with `?` for its values; None where a batch changes a row twice, which one statement cannot.

    Args:
        connection: the store.
        batch: what is written.
        writer: whose it is.
        now: clock time in seconds.
    """
    if batch.tasks or batch.ended or batch.adds or batch.queues or batch.spent or len(batch.outcomes) > 1:
        return None
    parts: list[str] = []
    values: list[Any] = []
    for row, spends in batch.outcomes:
        if len({(task, resource) for task, resource, _ in spends}) < len(spends):
            return None
        parts.append(
            f"added AS ({_insert(connection, 'outcomes', 1)} ON CONFLICT (task, call_id) DO NOTHING RETURNING 1)"
        )
        values += row
        if spends:
            marks = ", ".join(["(?::text, ?::text, ?::bigint)"] * len(spends))
            parts.append(
                "billed AS (INSERT INTO accounts (task, resource, spent) SELECT v.a, v.b, v.c "
                f"FROM (VALUES {marks}) AS v(a, b, c), added ORDER BY 1, 2 "
                "ON CONFLICT (task, resource) DO UPDATE SET spent = accounts.spent + excluded.spent)"
            )
            values += [value for spend in sorted(spends) for value in spend]
    for name, rows in batch.rows.items():
        parts.append(f"{name}_added AS ({_insert(connection, name, len(rows))})")
        values += [value for row in rows for value in row]
    if batch.touched:
        marks = ", ".join("?" for _ in batch.touched)
        parts.append(
            f"touched AS (UPDATE tasks SET touched = ?, changes = changes + 1, writer = ? WHERE id IN ({marks}))"
        )
        values += [max(batch.touched.values()), writer, *sorted(batch.touched)]
    if batch.freed:
        parts.append(f"freed AS (DELETE FROM reservations WHERE key IN ({', '.join('?' for _ in batch.freed)}))")
        values += batch.freed
    head = f"WITH {', '.join(parts)} " if parts else ""
    return f"{head}UPDATE writers SET seq = ?, touched = ? WHERE id = ?", [*values, batch.seq, now, writer]


def _insert(connection: Connection, table: str, rows: int) -> str:
    names = connection.columns(schema.metadata.tables[table])
    marks = f"({', '.join('?' for _ in names)})"
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES {', '.join([marks] * rows)}"
