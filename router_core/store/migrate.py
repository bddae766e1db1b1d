"""Schema revisions: Alembic's migrations, shipped inside the package."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any

from sqlalchemy import Connection, Engine, text

from steproute.store.schema import REVISION

FOLDER = Path(__file__).parent / "migrations"
_ONE = Lock()
"""Alembic keeps what it is working on in a module of its own: one migration at a time in a process."""


def current_revision(engine: Engine) -> str:
    """Revision a database is at; empty when it has none."""
    with engine.connect() as connection:
        return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or "")


def known_revisions() -> set[str]:
    """Every revision this version can migrate from."""
    return {path.name.split("_")[0] for path in (FOLDER / "versions").glob("[0-9]*.py")}


def stamp(connection: Connection, revision: str) -> None:
    """Note the revision of a fresh schema, in Alembic's own table; it need not be loaded for that."""
    connection.exec_driver_sql(
        "CREATE TABLE IF NOT EXISTS alembic_version "
        "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
    )
    if connection.exec_driver_sql("SELECT version_num FROM alembic_version").first() is None:
        connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": revision})


def upgrade(engine: Engine, revision: str = REVISION) -> None:
    """Bring a database to a revision, newest by default; from nothing, it is built up migration by migration."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    attributes: dict[str, Any] = config.attributes
    attributes["engine"] = engine
    with _ONE:
        command.upgrade(config, revision)
