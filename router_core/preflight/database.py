"""The store's database: whether it can be opened, its schema, and whether the clocks agree."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import steproute
from steproute.errors import StoreError
from steproute.preflight.finding import Finding
from steproute.redact import redact

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from steproute.store import Store

SKEW_S = 2.0
"""Seconds two clocks may differ before leases and idle timeouts notice."""
AHEAD_S = 60.0
"""Seconds the newest step of a store may be in the future."""
DAY_S = 86_400.0


def check_database(given: Store | str | Path | None, now: float, timeout_s: float) -> list[Finding]:
    """Look into the database without changing it.

    Args:
        given: the store of a configuration.
        now: Unix time in seconds.
        timeout_s: how long to wait for a server.
    """
    began = time.monotonic()
    found = list(_clock(now))
    if given is None:
        return [*found, Finding("skipped", "database.none", "store", "no store: nothing outlasts the process")]
    try:
        import sqlalchemy
    except ImportError as error:  # the package requires it; a broken installation is no reason for a traceback
        return [*found, Finding("error", "database.driver", "store", str(error))]
    from steproute.store import as_store
    from steproute.store.connection import store_url

    target = as_store(given).target
    try:
        url = store_url(target)
    except StoreError as error:
        return [*found, Finding("error", "database.url", "store", str(error))]
    sqlite = url.get_backend_name() == "sqlite"
    label = str(url.database) if sqlite else url.render_as_string(hide_password=True)
    if sqlite:
        early = _file(Path(label), label)
        if early is not None:
            return [*found, early]
        options: dict[str, Any] = {"timeout": timeout_s}
    else:
        options = {"connect_timeout": max(int(timeout_s), 2)}
    try:
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool, connect_args=options)
        return [*found, *_inside(engine, label, now, began)]
    except ModuleNotFoundError:
        said = "a store on PostgreSQL needs psycopg: pip install 'steproute[postgres]'"
        return [*found, Finding("error", "database.driver", label, said)]
    except sqlalchemy.exc.DBAPIError as error:
        said = redact(" ".join(str(error.orig).split()))[:300]
        return [*found, Finding("error", "database.unreachable", label, f"cannot be opened: {said}")]


def _file(path: Path, label: str) -> Finding | None:
    """What can be said of a SQLite file without opening it; None = it is one to open."""
    if not path.parent.is_dir():
        return Finding("error", "database.folder", label, f"the folder {str(path.parent)!r} does not exist")
    if not os.access(path.parent, os.W_OK):
        return Finding("error", "database.folder", label, f"the folder {str(path.parent)!r} cannot be written")
    if path.is_dir():
        return Finding("error", "database.folder", label, "is a folder; allowed: the path of a file")
    if not path.exists() or path.stat().st_size == 0:
        return Finding("ok", "database.new", label, "will be made when a router opens it")
    if not os.access(path, os.W_OK):
        return Finding("error", "database.readonly", label, "cannot be written")
    return None


def _inside(engine: Engine, label: str, now: float, began: float) -> Iterator[Finding]:
    from sqlalchemy import inspect, text

    from steproute.store.migrate import current_revision, known_revisions
    from steproute.store.schema import REVISION

    if engine.dialect.name == "postgresql":
        with engine.connect() as connection:
            asked = time.monotonic()
            theirs = float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
            midway = (asked + time.monotonic()) / 2  # connecting may have taken seconds since `now`
            off = theirs - (now + midway - began)
        if abs(off) > SKEW_S:
            said = f"the database's clock is {abs(off):.1f} s {'ahead' if off > 0 else 'behind'}; leases go by it"
            yield Finding("warning", "clock.skew", label, said)
    names = set(inspect(engine).get_table_names())
    if "alembic_version" not in names:
        if names & {"decisions", "outcomes"} or (names and engine.dialect.name == "sqlite"):
            yield Finding("error", "database.foreign", label, "holds tables that are not a store of steproute")
        else:
            yield Finding("ok", "database.new", label, "empty: its tables will be made when a router opens it")
        return
    revision = current_revision(engine)
    if revision not in known_revisions():
        said = f"its schema {revision!r} is newer than {REVISION!r}, which this version knows; update steproute"
        yield Finding("error", "database.newer", label, said)
        return
    if revision != REVISION:
        said = f"its schema {revision!r} will be migrated to {REVISION!r} when a router opens it"
        yield Finding("warning", "database.older", label, said)
        return
    with engine.connect() as connection:
        count, newest = connection.execute(text("SELECT count(*), max(created) FROM decisions")).one()
    yield Finding("ok", "database.ok", label, f"{count} decisions")
    if newest is not None and newest > now + AHEAD_S:
        said = f"the store's newest decision is {newest - now:.0f} s in the future: was this machine's clock set back?"
        yield Finding("error", "clock.behind_store", label, said)


def _clock(now: float) -> Iterator[Finding]:
    installed = Path(steproute.__file__).stat().st_mtime
    moment = datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    if now < installed - DAY_S:
        said = f"{moment} is before steproute was installed: leases, approvals and logs will be wrong"
        yield Finding("error", "clock.wrong", "clock", said)
    else:
        yield Finding("ok", "clock.ok", "clock", moment)
