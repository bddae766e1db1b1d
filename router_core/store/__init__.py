"""What outlasts the process: every decision, outcome and lesson in a database that ordinary SQL can read.

`Router(models, store="steproute.db")` keeps a SQLite file for one process; `Store(..., shared=True)` or a PostgreSQL URL one
router for many. Nothing of SQLAlchemy is loaded before a store is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steproute.errors import ConfigError

if TYPE_CHECKING:
    from steproute.store.journal import Journal

__all__ = ["Store", "as_store"]


@dataclass(frozen=True)
class Store:
    """Where a router's steps are kept, and how."""

    target: str | Path
    """Path of a SQLite file, or a URL: `sqlite:///PATH`, `postgresql://USER@HOST/DATABASE` (extra `postgres`)."""
    shared: bool | None = None
    """Whether other processes use it too: budgets are then kept in the database and learning is exchanged. None = yes for
    PostgreSQL, no for SQLite, whose file then belongs to one process."""
    prompts: bool = False
    """True = goals, prompts, outputs and details of evidence are kept too. Without it no text of the user's is."""
    snapshot_every: int = 3000
    """Events between two snapshots of what was learnt; 0 = none, and a restart reads the whole log."""
    replay_limit: int = 20_000
    """Most decisions that are learnt from again at a start for which no snapshot fits."""
    poll_s: float = 1.0
    """Shared: seconds between two looks at what other workers learnt."""
    slice_share: float = 0.0
    """Shared: part of every hard limit that a worker leases of a task it works on, to go on with while the database is away;
    the others cannot spend it meanwhile. 0 = hard limits are closed then."""
    spool: Path | None = None
    """Folder in which steps wait while the database is away; None = the user's state folder for PostgreSQL, none for SQLite."""
    timeout_s: float = 5.0
    """Seconds to wait for a server's answer."""

    def __post_init__(self) -> None:
        for name, least in (("snapshot_every", 0), ("replay_limit", 1), ("poll_s", 0), ("timeout_s", 0.1)):
            value = getattr(self, name)
            if not value >= least:
                raise ConfigError(f"store: {name}: seen {value!r}; allowed: {least} or more")
        if not 0 <= self.slice_share <= 0.5:
            raise ConfigError(f"store: slice_share: seen {self.slice_share!r}; allowed: 0 to .5")

    def open(self, clock: Callable[[], float]) -> Journal:
        """Open it for a router.

        Raises:
            StoreError: it cannot be opened, is of a newer schema, or belongs to another process.
            ImportError: the driver is missing; names the extra.
        """
        from steproute.store.journal import Journal

        return Journal(self, clock)


def as_store(store: Store | str | Path) -> Store:
    """A store from a path or URL; a `Store` is returned as it is.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(store, Store):
        return store
    if isinstance(store, (str, Path)) and str(store):
        return Store(store)
    raise ConfigError(f"store: seen {store!r}; allowed: a path, a URL, or Store(...)")
