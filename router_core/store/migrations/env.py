"""Run by Alembic: migrates the database whose engine `steproute.store.migrate.upgrade` hands over.

All of it is one transaction, and one process at a time: another that opens the same old store meanwhile finds nothing left to do.
"""

from __future__ import annotations

from alembic import context

from steproute.store.schema import PREPARING, metadata

with context.config.attributes["engine"].connect() as connection:
    sqlite = connection.dialect.name == "sqlite"
    if sqlite:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({PREPARING})")
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
    if sqlite:
        connection.exec_driver_sql("COMMIT")
    connection.commit()
