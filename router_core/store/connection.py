"""One connection to the database behind a store: opening, schema revision, ownership of a SQLite file, raw statements.

SQLAlchemy opens connections, builds the schema and compiles the statements; a step then runs the compiled text on the
driver's own cursor, which costs a fifth of an execution through SQLAlchemy.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import RLock
from typing import Any

from sqlalchemy import Engine, Table, create_engine, insert, inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from steproute.errors import StoreError
from steproute.redact import redact
from steproute.store.ownership import FileOwner
from steproute.store.schema import PREPARING, RESERVE, REVISION, VIEWS, metadata

Row = Sequence[Any]
BUSY_S = 30.0
"""How long a writer waits for another process that is writing to the same SQLite file."""
_PRAGMAS = (
    "page_size=2048",  # of a new file: a commit touches ten pages for some three kilobytes of news
    "journal_mode=WAL",
    "synchronous=NORMAL",
    f"busy_timeout={int(BUSY_S * 1000)}",
    "wal_autocheckpoint=4000",
)


def store_url(target: str | Path) -> URL:
    """A database URL from a URL or from the path of a SQLite file.

    Raises:
        StoreError: neither; says what is allowed.
    """
    text = str(target)
    if "://" not in text:
        return URL.create("sqlite+pysqlite", database=text)
    try:
        url = make_url(text)
    except ArgumentError:
        raise StoreError(
            f"store: {redact(text)!r} is no database URL; allowed: a path, sqlite:///, postgresql://"
        ) from None
    kind = url.get_backend_name()
    if kind not in ("sqlite", "postgresql"):
        raise StoreError(
            f"store: seen a {kind!r} URL; allowed: a path, sqlite:///PATH, postgresql://USER@HOST/DATABASE"
        )
    return url.set(drivername="sqlite+pysqlite" if kind == "sqlite" else "postgresql+psycopg")


class Connection:
    """A raw connection with `?` turned into the driver's own placeholder. Safe between threads: one transaction at a time."""

    def __init__(self, target: str | Path, shared: bool | None = None, timeout_s: float = 5.0):
        """Open the database; an empty one gets its tables, an older one is migrated.

        Args:
            target: URL, or path of a SQLite file.
            shared: whether other processes use it too; None = yes for PostgreSQL, no for SQLite.
            timeout_s: how long to wait for a server.

        Raises:
            StoreError: it cannot be opened, is of a newer schema, or belongs to another process.
            ImportError: the driver is missing; names the extra.
        """
        self.url = store_url(target)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self.shared = (not self.sqlite) if shared is None else shared
        self.label = str(self.url.database) if self.sqlite else self.url.render_as_string(hide_password=True)
        self._owner: FileOwner | None = None
        if self.sqlite and self.url.database in (None, "", ":memory:"):
            raise StoreError("store: a database in memory outlasts nothing; give a path, or leave `store` out")
        if self.sqlite:
            self._owner = FileOwner(Path(str(self.url.database)), self.shared)
        self.engine = self._engine(timeout_s)
        self.pid = os.getpid()
        self._lock = RLock()
        self._fairy: Any = None
        self._raw: Any = None
        self._pipelines = False
        self._texts: dict[str, str] = {}
        self._inserts: dict[str, tuple[str, tuple[str, ...]]] = {}
        try:
            self.reconnect()
            self._prepare()
        except BaseException:
            self.close()
            raise

    # --- opening and closing ---------------------------------------------------------------------------------

    def reconnect(self) -> None:
        """Open the connection anew.

        Raises:
            StoreError: the database cannot be reached.
        """
        self._drop()
        try:
            self._fairy = self.engine.raw_connection()
            self._raw = self._fairy.driver_connection
            if self.sqlite:
                for pragma in _PRAGMAS:
                    self._raw.execute(f"PRAGMA {pragma}").fetchall()
            else:
                import psycopg

                self._raw.autocommit = True
                self._pipelines = psycopg.capabilities.has_pipeline()
        except Exception as error:  # noqa: BLE001 — drivers have errors of their own; told to the caller as ours
            self._drop()
            raise StoreError(f"store {self.label}: cannot be opened: {self.said(error)}") from None

    def close(self) -> None:
        """Close it and give up ownership, once nobody is asking any more."""
        with self._lock:
            self._drop()
        self.engine.dispose()
        if self._owner is not None:
            self._owner.release()

    def _drop(self) -> None:
        if self._fairy is not None:
            with suppress(Exception):  # one that is gone already cannot be closed, and nothing is lost by that
                self._fairy.invalidate()
        self._fairy = self._raw = None

    def _engine(self, timeout_s: float) -> Engine:
        try:
            if self.sqlite:
                given = {"check_same_thread": False, "isolation_level": None, "timeout": BUSY_S}
                return create_engine(self.url, poolclass=NullPool, connect_args=given)
            wait = {"connect_timeout": max(int(timeout_s), 2)} | (
                {}
                if "options" in self.url.query
                else {
                    "options": f"-c statement_timeout={int(timeout_s * 1000)} -c lock_timeout={int(timeout_s * 1000)}"
                }
            )
            return create_engine(self.url, poolclass=NullPool, paramstyle="format", connect_args=wait)
        except (ModuleNotFoundError, NoSuchModuleError):
            raise ImportError("a store on PostgreSQL needs psycopg: pip install 'steproute[postgres]'") from None

    def _prepare(self) -> None:
        from steproute.store.migrate import current_revision, known_revisions, upgrade

        try:
            if not inspect(self.engine).has_table("alembic_version"):
                self._create()
                return
            revision = current_revision(self.engine)
            if revision == REVISION:
                self._check_writable()
                return
            if revision not in known_revisions():
                raise StoreError(
                    f"store {self.label}: its schema {revision!r} is newer than this version of steproute knows "
                    f"({REVISION!r}); update steproute, or open another store. Nothing was changed"
                )
            upgrade(self.engine)
        except (DBAPIError, sqlite3.Error) as error:
            raise StoreError(f"store {self.label}: cannot be prepared: {self.said(error)}") from None

    def _create(self) -> None:
        from steproute.store.migrate import stamp

        with self.engine.begin() as connection:
            if not self.sqlite:  # several workers may start on an empty database at once
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({PREPARING})")
            else:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            if not inspect(connection).has_table("alembic_version"):  # nobody else was faster
                metadata.create_all(connection)
                connection.exec_driver_sql(VIEWS[self.engine.dialect.name])
                if not self.sqlite:
                    connection.exec_driver_sql(RESERVE)
            stamp(connection, REVISION)
            if self.sqlite:
                connection.exec_driver_sql("COMMIT")

    def _check_writable(self) -> None:
        if self.sqlite:
            self._raw.execute("BEGIN IMMEDIATE")
            self._raw.execute("ROLLBACK")

    # --- statements ------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether there is a connection at all."""
        return self._raw is not None

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What the driver raises when something goes wrong."""
        if self.sqlite:
            return (sqlite3.Error,)
        import psycopg

        return (psycopg.Error,)

    @property
    def write_failures(self) -> tuple[type[Exception], ...]:
        """The same, and a number that is too large for the driver."""
        return (*self.failures, OverflowError)

    def refuses(self, error: BaseException) -> bool:
        """Whether an error says that the content is wrong, and not that the database is away or full."""
        if self.sqlite:
            kinds: tuple[type[BaseException], ...] = (sqlite3.IntegrityError, sqlite3.DataError, OverflowError)
            return isinstance(error, kinds) or "binding parameter" in str(error)
        import psycopg

        return isinstance(error, (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError, OverflowError))

    def run(self, sql: str, values: Row = ()) -> Any:
        """Run one statement; gives the driver's cursor."""
        with self._lock:
            if self._raw is None:
                self.reconnect()
            return self._raw.execute(self._text(sql), values)

    def rows(self, sql: str, values: Row = ()) -> list[tuple[Any, ...]]:
        """Run a query; gives every row."""
        with self._lock:
            found: list[tuple[Any, ...]] = self.run(sql, values).fetchall()
            return found

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows whose values are in the order of `columns(table)`."""
        sql, _ = self._insert(table)
        if len(rows) == 1:
            self._raw.execute(sql, rows[0])
        else:
            self._raw.cursor().executemany(sql, rows)

    def columns(self, table: Table) -> tuple[str, ...]:
        """Columns an insert fills, in order: all but the serial number."""
        return self._insert(table)[1]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction for writing. PostgreSQL's statements travel together; the first failure undoes all of it."""
        with self._lock:
            if self._raw is None:
                self.reconnect()
            try:
                with self._together():
                    self._raw.execute("BEGIN IMMEDIATE" if self.sqlite else "BEGIN")
                    yield
                    self._raw.execute("COMMIT")
            except BaseException:
                try:
                    self._raw.execute("ROLLBACK")
                except self.failures:
                    self._drop()
                raise

    def many(self, queries: Sequence[tuple[str, Row]]) -> list[list[dict[str, Any]]]:
        """Several queries in one journey; gives each one's rows by column name."""
        with self._lock, self._ready():
            cursors = [self._raw.execute(self._text(sql), values) for sql, values in queries]
            found = []
            for cursor in cursors:
                rows = cursor.fetchall()
                names = [column[0] for column in cursor.description]
                found.append([dict(zip(names, row, strict=True)) for row in rows])
        return found

    def _ready(self) -> AbstractContextManager[Any]:
        if self._raw is None:
            self.reconnect()
        return self._together()

    def _together(self) -> AbstractContextManager[Any]:
        """Statements inside do not wait for each other's answers (PostgreSQL's pipeline mode)."""
        if self.sqlite or not self._pipelines:
            return nullcontext()
        pipeline: AbstractContextManager[Any] = self._raw.pipeline()
        return pipeline

    def said(self, error: BaseException) -> str:
        """What an error of the driver says, on one line, without secrets."""
        original = getattr(error, "orig", None) or error
        return redact(" ".join(str(original).split()))[:300]

    def _text(self, sql: str) -> str:
        if self.sqlite:
            return sql
        text = self._texts.get(sql)
        if text is None:
            text = self._texts[sql] = sql.replace("?", "%s")
        return text

    def _insert(self, table: Table) -> tuple[str, tuple[str, ...]]:
        found = self._inserts.get(table.name)
        if found is None:
            names = [column.name for column in table.columns if column.name != "n"]
            compiled = insert(table).compile(dialect=self.engine.dialect, column_keys=names)
            order = compiled.positiontup or names
            found = self._inserts[table.name] = (str(compiled).partition(" RETURNING")[0], tuple(order))
        return found
