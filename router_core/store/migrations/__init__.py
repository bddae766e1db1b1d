"""Alembic's environment: run by `steproute.store.migrate`, never imported."""
