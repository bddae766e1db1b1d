"""Whose children a task has is found without reading every task: a restart asks it of each that runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Index the parents that are there."""
    some = sa.text("parent IS NOT NULL")
    op.create_index("tasks_parent", "tasks", ["parent"], sqlite_where=some, postgresql_where=some)


def downgrade() -> None:
    """Drop it."""
    op.drop_index("tasks_parent", "tasks")
