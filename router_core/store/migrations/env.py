"""Run by Alembic: migrates the database whose engine `steproute.store.migrate.upgrade` hands over."""

from __future__ import annotations

from alembic import context

from steproute.store.schema import metadata

with context.config.attributes["engine"].connect() as connection:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()
