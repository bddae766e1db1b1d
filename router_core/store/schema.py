"""The tables of a store. `docs/store.md` explains every column; migrations keep older stores in step."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.schema import SchemaItem

REVISION = "0004"
"""Newest revision of the migrations: what this version reads and writes."""

PREPARING = 7205759403792793
"""PostgreSQL's advisory lock of whoever makes or migrates the tables."""

metadata = MetaData()
_Serial = BigInteger().with_variant(Integer, "sqlite")


def _event(name: str, *columns: SchemaItem) -> Table:
    """A table that is only ever added to; `seq` and `writer` give the order over all of them."""
    return Table(
        name,
        metadata,
        Column("n", _Serial, primary_key=True, autoincrement=True),
        Column("seq", BigInteger, nullable=False),
        Column("writer", Text, nullable=False),
        Column("created", Float, nullable=False),
        Column("task", Text, nullable=False),
        *columns,
    )


decisions = _event(
    "decisions",
    Column("id", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("role", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("propensity", Float, nullable=False),
    Column("explored", Boolean, nullable=False),
    Column("fallback", Boolean, nullable=False),
    Column("pinned", Boolean, nullable=False),
    Column("stop", Boolean, nullable=False),
    Column("stop_score", Float),
    Column("reason", Text, nullable=False),
    Column("g", Float, nullable=False),
    Column("regime", Integer, nullable=False),
    Column("r", Float, nullable=False),
    Column("d", Float, nullable=False),
    Column("e", Float, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("candidates", Text, nullable=False),
    Column("worst", Text, nullable=False),
    Column("budget", Text, nullable=False),
    Column("memo", Text),
    Column("rng", Text),
    Column("prompt", Text),
    Index("decisions_task", "task"),
)

outcomes = _event(
    "outcomes",
    Column("decision", Text, nullable=False),
    Column("call_id", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("role", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("answers", Boolean, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("tokens_estimated", Boolean, nullable=False),
    Column("usd", Float),
    Column("seconds", Float, nullable=False),
    Column("energy_j", Float),
    Column("energy_source", Text, nullable=False),
    Column("amounts", Text, nullable=False),
    Column("spent", Text, nullable=False),
    Column("error", Text),
    Column("g", Float, nullable=False),
    Column("regime", Integer, nullable=False),
    Column("r", Float, nullable=False),
    Column("d", Float, nullable=False),
    Column("e", Float, nullable=False),
    Column("evidence", Text, nullable=False),
    Column("fingerprint", BigInteger, nullable=False),
    Column("output", Text),
    Column("written_tokens", Integer, nullable=False, server_default="0"),
    UniqueConstraint("task", "call_id", name="outcomes_call"),
)

reports = _event(
    "reports",
    Column("decision", Text, nullable=False),
    Column("evidence", Text, nullable=False),
    Index("reports_task", "task"),
)

experiences = _event(
    "experiences",
    Column("decision", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("candidate", Integer, nullable=False),
    Column("gain", Float, nullable=False),
    Column("reliability", Float, nullable=False),
    Column("g", Float, nullable=False),
    Column("regime", Integer, nullable=False),
    Column("r", Float, nullable=False),
    Column("d", Float, nullable=False),
    Column("e", Float, nullable=False),
    Column("cost", Text, nullable=False),
    Index("experiences_task", "task"),
)

endings = _event(
    "endings",
    Column("reward", Float),
    Column("idle", Boolean, nullable=False),
    Column("spent", Text, nullable=False),
    Index("endings_task", "task"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("domain", Text, nullable=False),
    Column("dimension", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("parent", Text),
    Column("goal", Text),
    Column("created", Float, nullable=False),
    Column("touched", Float, nullable=False),
    Column("changes", BigInteger, nullable=False),
    Column("writer", Text, nullable=False),
    Column("ended", Float),
    Column("idle", Boolean, nullable=False),
    Column("reward", Float),
    Column("counted", Text),
    Column("unused", Text),
    Index(
        "tasks_running", "touched", sqlite_where=Column("ended").is_(None), postgresql_where=Column("ended").is_(None)
    ),
    Index(
        "tasks_parent",
        "parent",
        sqlite_where=Column("parent").is_not(None),
        postgresql_where=Column("parent").is_not(None),
    ),
)

accounts = Table(
    "accounts",
    metadata,
    Column("task", Text, primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("spent", BigInteger, nullable=False),
)

reservations = Table(
    "reservations",
    metadata,
    Column("key", Text, primary_key=True),
    Column("account", Text, primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("amount", BigInteger, nullable=False),
    Column("task", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("writer", Text, nullable=False),
    Column("expires", Float, nullable=False),
    Index("reservations_account", "account"),
)

queues = Table(
    "queues",
    metadata,
    Column("resource", Text, primary_key=True),
    Column("value", Float, nullable=False),
    Column("advances", BigInteger, nullable=False),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("n", _Serial, primary_key=True, autoincrement=True),
    Column("created", Float, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("learner", Text, nullable=False),
    Column("cursors", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("set_aside", Text),
    Column("state", LargeBinary, nullable=False),
    Column("blocks", Text, nullable=False, server_default="[]"),
)

blocks = Table(
    "blocks",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("text", Text, nullable=False),
)

embedders = Table(
    "embedders",
    metadata,
    Column("name", Text, primary_key=True),
    Column("dim", Integer, nullable=False),
)

writers = Table(
    "writers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("started", Float, nullable=False),
    Column("touched", Float, nullable=False),
    Column("place", Text, nullable=False),
)

EVENTS = (decisions, outcomes, reports, experiences, endings)
"""Tables that learning is replayed from, in the order in which events of one `seq` apply."""

VIEWS = {
    "sqlite": """CREATE VIEW evidence AS
SELECT o.seq, o.writer, o.created, o.task, o.decision, json_extract(e.value, '$.source') AS source,
    json_extract(e.value, '$.score') AS score, json_extract(e.value, '$.count') AS count, 0 AS late
FROM outcomes o, json_each(o.evidence) e
UNION ALL
SELECT r.seq, r.writer, r.created, r.task, r.decision, json_extract(e.value, '$.source'),
    json_extract(e.value, '$.score'), json_extract(e.value, '$.count'), 1
FROM reports r, json_each(r.evidence) e""",
    "postgresql": """CREATE VIEW evidence AS
SELECT o.seq, o.writer, o.created, o.task, o.decision, i.value ->> 'source' AS source,
    (i.value ->> 'score')::float AS score, (i.value ->> 'count')::int AS count, false AS late
FROM outcomes o, jsonb_array_elements(o.evidence::jsonb) i(value)
UNION ALL
SELECT r.seq, r.writer, r.created, r.task, r.decision, i.value ->> 'source',
    (i.value ->> 'score')::float, (i.value ->> 'count')::int, true
FROM reports r, jsonb_array_elements(r.evidence::jsonb) i(value)""",
}
"""Evidence row by row, for SQL: it is kept with the outcome it came with, or as a report of its own."""

RESERVE = """CREATE FUNCTION steproute_reserve(
    key_ text, task_ text, writer_ text, expires_ double precision, now_ double precision,
    accounts_ text[], resources_ text[], amounts_ bigint[], limited_ text[], asked_ bigint[], limits_ bigint[]
) RETURNS TABLE (account_ text, resource_ text, spent_ bigint, reserved_ bigint) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    name text;
    gone bigint;
    held bigint;
BEGIN
    FOREACH name IN ARRAY (SELECT array_agg(a ORDER BY a) FROM unnest(accounts_) a) LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended(name, 7205759403));
    END LOOP;
    FOREACH name IN ARRAY accounts_ LOOP
        FOR i IN 1 .. coalesce(array_length(limited_, 1), 0) LOOP
            SELECT coalesce(sum(a.spent), 0) INTO gone FROM accounts a WHERE a.task = name AND a.resource = limited_[i];
            SELECT coalesce(sum(r.amount), 0) INTO held FROM reservations r
            WHERE r.account = name AND r.resource = limited_[i] AND r.expires > now_
                AND NOT (r.kind = 'slice' AND r.writer = writer_);
            IF NOT (coalesce(asked_[i] = 0, false)
                    OR (asked_[i] IS NULL AND limits_[i] - gone - held >= 1)
                    OR coalesce(asked_[i] <= limits_[i] - gone - held, false)) THEN
                RETURN QUERY SELECT name, limited_[i], gone, held;
                RETURN;
            END IF;
        END LOOP;
    END LOOP;
    INSERT INTO reservations (key, account, resource, amount, task, kind, writer, expires)
    SELECT key_, a, x.resource, x.amount, task_, 'call', writer_, expires_
    FROM unnest(accounts_) a CROSS JOIN unnest(resources_, amounts_) AS x(resource, amount);
END $$"""
"""PostgreSQL: reserves in one journey, or says which limit of which account refuses. Every statement in it sees what was
committed before it began, so what is summed after the lock is what the others left."""
