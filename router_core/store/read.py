"""Looking into a store: steps, tasks, sums per model. Read-only, beside whoever writes to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection, Engine, Select, and_, create_engine, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from steproute.decision import CandidateScore
from steproute.errors import StoreError
from steproute.redact import redact
from steproute.store.connection import store_url
from steproute.store.migrate import current_revision, known_revisions
from steproute.store.rows import candidates_of
from steproute.store.schema import REVISION, decisions, endings, experiences, outcomes, queues, reports, tasks

PAGE = 5000
LATEST = 5000
"""Most outcomes that sums of the latest time look at."""


@dataclass(frozen=True)
class Filter:
    """Which steps; what is None is not asked."""

    task: str | None = None
    model: str | None = None
    role: str | None = None
    policy: str | None = None
    since: float | None = None
    """Unix time in seconds."""
    until: float | None = None
    failed: bool | None = None
    """True = calls that failed, False = those that did not."""


class StoreReader:
    """Opens a store for reading."""

    def __init__(self, target: str | Path):
        """Look whether it is one.

        Raises:
            StoreError: there is none, or its schema is not this version's.
            ImportError: the driver is missing; names the extra.
        """
        url = store_url(target)
        self._sqlite = url.get_backend_name() == "sqlite"
        self.label = str(url.database) if self._sqlite else url.render_as_string(hide_password=True)
        if self._sqlite and not Path(str(url.database)).is_file():
            raise StoreError(f"store {url.database}: no such file; allowed: the path of a store, or a PostgreSQL URL")
        try:
            self._engine: Engine = create_engine(url, poolclass=NullPool)
            revision = current_revision(self._engine)
        except ModuleNotFoundError:
            raise ImportError("a store on PostgreSQL needs psycopg: pip install 'steproute[postgres]'") from None
        except DBAPIError as error:
            said = redact(" ".join(str(error.orig).split()))[:300]
            raise StoreError(f"store {self.label}: cannot be read as a store of steproute: {said}") from None
        if revision != REVISION:
            known = revision in known_revisions()
            todo = "open it once with a Router, which migrates it" if known else "update steproute"
            raise StoreError(f"store {self.label}: its schema is {revision!r}, this version reads {REVISION!r}; {todo}")

    def steps(
        self, wanted: Filter = Filter(), limit: int | None = None, newest: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Decisions with what came of them, one dict each.

        Args:
            wanted: which.
            limit: most of them; None = all.
            newest: True = the latest first, else in the order they were made.
        """
        last: int | None = None
        left = limit
        with self._engine.connect() as connection:
            while left is None or left > 0:
                query = self._query(wanted, last, newest).limit(PAGE if left is None else min(PAGE, left))
                page = [dict(row) for row in connection.execute(query).mappings()]
                yield from (_plain(row) for row in page)
                if not page:
                    return
                last = page[-1]["n"]
                left = None if left is None else left - len(page)

    def task(self, task: str) -> dict[str, Any] | None:
        """The row of a task; None when the store does not know it."""
        with self._engine.connect() as connection:
            row = connection.execute(select(tasks).where(tasks.c.id == task)).mappings().first()
            return None if row is None else dict(row)

    def like(self, task: str, most: int = 5) -> list[str]:
        """Ids of tasks that contain a text, the latest first."""
        query = select(tasks.c.id).where(tasks.c.id.contains(task, autoescape=True)).order_by(tasks.c.touched.desc())
        with self._engine.connect() as connection:
            return [str(row[0]) for row in connection.execute(query.limit(most))]

    def decisions(self, task: str, step: str | None = None) -> list[dict[str, Any]]:
        """Decisions of a task, whole rows, in order."""
        query = select(decisions).where(decisions.c.task == task).order_by(decisions.c.n)
        if step is not None:
            query = query.where(decisions.c.step == step)
        return self._all(query)

    def follow(self, task: str) -> dict[str, list[dict[str, Any]]]:
        """What came of a task's decisions: its outcomes, late evidence, lessons and endings."""
        found = {}
        for table in (outcomes, reports, experiences, endings):
            found[table.name] = self._all(select(table).where(table.c.task == task).order_by(table.c.n))
        return found

    def running(self, limit: int) -> list[dict[str, Any]]:
        """Tasks that have not ended, the latest first, with their steps, spending and progress."""
        query = select(tasks).where(tasks.c.ended.is_(None)).order_by(tasks.c.touched.desc()).limit(limit)
        with self._engine.connect() as connection:
            return [{**row, **self._sums(connection, str(row["id"]))} for row in connection.execute(query).mappings()]

    def latest(self, since: float) -> list[dict[str, Any]]:
        """Sums per model over the outcomes since a moment, as far as the latest `LATEST` go back."""
        near = select(outcomes).order_by(outcomes.c.n.desc()).limit(LATEST)
        sums: dict[str, dict[str, Any]] = {}
        for row in self._all(near):
            if row["created"] < since:
                continue
            item = sums.setdefault(
                row["model"], {"model": row["model"], "calls": 0, "errors": 0, "usd": 0.0, "seconds": 0.0, "tokens": 0}
            )
            item["calls"] += 1
            item["errors"] += row["error"] is not None
            item["usd"] += row["usd"] or 0.0
            item["seconds"] += row["seconds"]
            item["tokens"] += row["prompt_tokens"] + row["completion_tokens"]
        return sorted(sums.values(), key=lambda item: -item["calls"])

    def queues(self) -> dict[str, float]:
        """The long-run queues."""
        return {row["resource"]: row["value"] for row in self._all(select(queues))}

    def counts(self) -> dict[str, int]:
        """How many decisions there are, and tasks that run; the first is exact as long as nothing was deleted."""
        with self._engine.connect() as connection:
            made = connection.execute(select(func.max(decisions.c.n))).scalar() or 0
            open_ = (
                connection.execute(select(func.count()).select_from(tasks).where(tasks.c.ended.is_(None))).scalar() or 0
            )
            return {"decisions": int(made), "running": int(open_)}

    # --- inside ----------------------------------------------------------------------------------------------

    def _all(self, query: Select[Any]) -> list[dict[str, Any]]:
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    @staticmethod
    def _sums(connection: Connection, task: str) -> dict[str, Any]:
        query = (
            select(
                outcomes.c.usd,
                outcomes.c.seconds,
                outcomes.c.g,
                outcomes.c.model,
                outcomes.c.created,
                outcomes.c.answers,
            )
            .where(outcomes.c.task == task)
            .order_by(outcomes.c.n)
        )
        rows = list(connection.execute(query).mappings())
        return {
            "steps": sum(bool(row["answers"]) for row in rows),
            "usd": sum(row["usd"] or 0.0 for row in rows),
            "seconds": sum(row["seconds"] for row in rows),
            "g": rows[-1]["g"] if rows else 0.0,
            "model": rows[-1]["model"] if rows else "",
            "heard": rows[-1]["created"] if rows else None,
        }

    @staticmethod
    def _query(wanted: Filter, last: int | None, newest: bool) -> Select[Any]:
        d, o, x, t = decisions.c, outcomes.c, experiences.c, tasks.c
        named = [d[name] for name in _DECIDED]
        came = [o[name] for name in _CAME]
        after = [o[name].label(f"{name}_after") for name in ("g", "regime")]
        query = (
            select(
                *named,
                *came,
                *after,
                d.prompt_tokens.label("expected_prompt_tokens"),
                o.model.label("answered_by"),
                x.gain,
                x.reliability,
                t.reward,
                t.domain,
                t.dimension,
            )
            .select_from(
                decisions.outerjoin(outcomes, and_(o.task == d.task, o.decision == d.id))
                .outerjoin(experiences, and_(x.task == d.task, x.decision == d.id))
                .outerjoin(tasks, t.id == d.task)
            )
            .order_by(d.n.desc() if newest else d.n)
        )
        if last is not None:
            query = query.where(d.n < last if newest else d.n > last)
        for column, value in (
            (d.task, wanted.task),
            (d.model, wanted.model),
            (d.role, wanted.role),
            (d.policy, wanted.policy),
        ):
            if value is not None:
                query = query.where(column == value)
        if wanted.since is not None:
            query = query.where(d.created >= wanted.since)
        if wanted.until is not None:
            query = query.where(d.created < wanted.until)
        if wanted.failed is not None:
            query = query.where(o.error.is_not(None) if wanted.failed else o.error.is_(None))
        return query


_DECIDED = (
    *("n", "created", "task", "step", "attempt", "role", "model", "policy", "propensity", "explored", "fallback"),
    *("pinned", "stop", "reason", "g", "regime", "r", "d", "e", "candidates", "budget", "prompt"),
)
_CAME = (
    "call_id",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "written_tokens",
    "tokens_estimated",
    "usd",
    "seconds",
    "energy_j",
    "energy_source",
    "error",
    "evidence",
    "output",
)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {str(name): value for name, value in row.items()}  # SQLAlchemy's names are no plain strings
    found["candidates"] = [
        {name: getattr(item, name) for name in _SCORED} for item in candidates_of(found["candidates"])
    ]
    found["budget"] = from_json(found["budget"])
    found["evidence"] = from_json(found["evidence"]) if found["evidence"] else []
    return found


_SCORED = [field.name for field in fields(CandidateScore)]
