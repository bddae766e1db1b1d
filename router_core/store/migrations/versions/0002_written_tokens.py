"""Outcomes keep the tokens a call wrote to its provider's prompt cache."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of what was logged before, none is known to have been written."""
    op.add_column("outcomes", sa.Column("written_tokens", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("outcomes", "written_tokens")
