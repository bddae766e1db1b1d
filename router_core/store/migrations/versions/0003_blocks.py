"""Snapshots share the long parts of what was learnt: each is kept once, under its checksum."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, and to every snapshot which rows of it are part of it."""
    op.create_table(
        "blocks",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.add_column("snapshots", sa.Column("blocks", sa.Text(), nullable=False, server_default="[]"))


def downgrade() -> None:
    """Drop both; snapshots that had such parts go with them."""
    op.execute("DELETE FROM snapshots WHERE blocks <> '[]'")
    op.drop_column("snapshots", "blocks")
    op.drop_table("blocks")
