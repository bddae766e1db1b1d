"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from steproute.store.schema import RESERVE, VIEWS

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make every table."""
    op.create_table(
        "accounts",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("spent", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("task", "resource"),
    )
    op.create_table(
        "decisions",
        sa.Column("n", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("propensity", sa.Float(), nullable=False),
        sa.Column("explored", sa.Boolean(), nullable=False),
        sa.Column("fallback", sa.Boolean(), nullable=False),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.Column("stop", sa.Boolean(), nullable=False),
        sa.Column("stop_score", sa.Float(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("g", sa.Float(), nullable=False),
        sa.Column("regime", sa.Integer(), nullable=False),
        sa.Column("r", sa.Float(), nullable=False),
        sa.Column("d", sa.Float(), nullable=False),
        sa.Column("e", sa.Float(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("candidates", sa.Text(), nullable=False),
        sa.Column("worst", sa.Text(), nullable=False),
        sa.Column("budget", sa.Text(), nullable=False),
        sa.Column("memo", sa.Text(), nullable=True),
        sa.Column("rng", sa.Text(), nullable=True),
        sa.Column("prompt", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("n"),
    )
    op.create_index("decisions_task", "decisions", ["task"], unique=False)
    op.create_table(
        "embedders",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("dim", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "endings",
        sa.Column("n", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("idle", sa.Boolean(), nullable=False),
        sa.Column("spent", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("n"),
    )
    op.create_index("endings_task", "endings", ["task"], unique=False)
    op.create_table(
        "experiences",
        sa.Column("n", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("candidate", sa.Integer(), nullable=False),
        sa.Column("gain", sa.Float(), nullable=False),
        sa.Column("reliability", sa.Float(), nullable=False),
        sa.Column("g", sa.Float(), nullable=False),
        sa.Column("regime", sa.Integer(), nullable=False),
        sa.Column("r", sa.Float(), nullable=False),
        sa.Column("d", sa.Float(), nullable=False),
        sa.Column("e", sa.Float(), nullable=False),
        sa.Column("cost", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("n"),
    )
    op.create_index("experiences_task", "experiences", ["task"], unique=False)
    op.create_table(
        "outcomes",
        sa.Column("n", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("answers", sa.Boolean(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("cached_tokens", sa.Integer(), nullable=False),
        sa.Column("tokens_estimated", sa.Boolean(), nullable=False),
        sa.Column("usd", sa.Float(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("energy_j", sa.Float(), nullable=True),
        sa.Column("energy_source", sa.Text(), nullable=False),
        sa.Column("amounts", sa.Text(), nullable=False),
        sa.Column("spent", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("g", sa.Float(), nullable=False),
        sa.Column("regime", sa.Integer(), nullable=False),
        sa.Column("r", sa.Float(), nullable=False),
        sa.Column("d", sa.Float(), nullable=False),
        sa.Column("e", sa.Float(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.BigInteger(), nullable=False),
        sa.Column("output", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("n"),
        sa.UniqueConstraint("task", "call_id", name="outcomes_call"),
    )
    op.create_table(
        "queues",
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("advances", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("resource"),
    )
    op.create_table(
        "reports",
        sa.Column("n", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("n"),
    )
    op.create_index("reports_task", "reports", ["task"], unique=False)
    op.create_table(
        "reservations",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("expires", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key", "account", "resource"),
    )
    op.create_index("reservations_account", "reservations", ["account"], unique=False)
    op.create_table(
        "snapshots",
        sa.Column("n", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("learner", sa.Text(), nullable=False),
        sa.Column("cursors", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("set_aside", sa.Text(), nullable=True),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("n"),
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("dimension", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("parent", sa.Text(), nullable=True),
        sa.Column("goal", sa.Text(), nullable=True),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("touched", sa.Float(), nullable=False),
        sa.Column("changes", sa.BigInteger(), nullable=False),
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("ended", sa.Float(), nullable=True),
        sa.Column("idle", sa.Boolean(), nullable=False),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("counted", sa.Text(), nullable=True),
        sa.Column("unused", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "tasks_running",
        "tasks",
        ["touched"],
        unique=False,
        sqlite_where=sa.text("ended IS NULL"),
        postgresql_where=sa.text("ended IS NULL"),
    )
    op.create_table(
        "writers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("touched", sa.Float(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.execute(VIEWS[op.get_bind().dialect.name])
    if op.get_bind().dialect.name == "postgresql":
        op.execute(RESERVE)


def downgrade() -> None:
    """Drop every table."""
    op.execute("DROP VIEW evidence")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION steproute_reserve")
    op.drop_table("writers")
    op.drop_index(
        "tasks_running",
        table_name="tasks",
        sqlite_where=sa.text("ended IS NULL"),
        postgresql_where=sa.text("ended IS NULL"),
    )
    op.drop_table("tasks")
    op.drop_table("snapshots")
    op.drop_index("reservations_account", table_name="reservations")
    op.drop_table("reservations")
    op.drop_index("reports_task", table_name="reports")
    op.drop_table("reports")
    op.drop_table("queues")
    op.drop_table("outcomes")
    op.drop_index("experiences_task", table_name="experiences")
    op.drop_table("experiences")
    op.drop_index("endings_task", table_name="endings")
    op.drop_table("endings")
    op.drop_table("embedders")
    op.drop_index("decisions_task", table_name="decisions")
    op.drop_table("decisions")
    op.drop_table("accounts")
