"""A file of this host in which steps wait while the database is away; a later process of the host writes what is left."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from steproute.errors import StoreError
from steproute.store.batch import Batch

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("steproute")


def default_folder() -> Path:
    """Where the system keeps a program's state: `$XDG_STATE_HOME/steproute`, or `~/.local/state/steproute`."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "steproute"


class Spool:
    """One file per process and store, named after both; locked while its process lives."""

    def __init__(self, folder: Path, store: str, writer: str):
        """Name the file; it is created when it is first needed.

        Raises:
            StoreError: the folder cannot be made.
        """
        self.folder, self._mark = folder, hashlib.blake2b(store.encode(), digest_size=6).hexdigest()
        self.path = folder / f"{self._mark}-{writer}.jsonl"
        self._file: int | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreError(
                f"store: spool folder {str(folder)!r} cannot be made ({error.strerror}); set `spool`"
            ) from None

    def add(self, batch: Batch) -> None:
        """Append a batch; it is in the system's hands when this returns.

        Raises:
            OSError: the disk is full or the file cannot be written.
        """
        if self._file is None:
            self._file = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(self._file, batch.to_json().encode() + b"\n")

    def clear(self) -> None:
        """Everything in it is in the database now."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go; what is left waits for a later process."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def set_aside(self, batch: Batch) -> None:
        """Keep a batch the database refused, beside the spool."""
        try:
            with self.path.with_suffix(".refused").open("a", encoding="utf-8") as file:
                file.write(batch.to_json() + "\n")
        except OSError as error:
            logger.error("steproute: %s cannot be written (%s)", self.path.with_suffix(".refused"), error.strerror)

    def absorb(self, write: Callable[[str, list[Batch]], object]) -> None:
        """Hand over what processes of this host that are gone left for this store, file by file; then the file goes.

        Args:
            write: called with the id of the writer that left it and its batches. A torn last line is left out.
        """
        for path in sorted(self.folder.glob(f"{self._mark}-*.jsonl")):
            if path == self.path:
                continue
            with path.open("a+", encoding="utf-8", errors="replace") as file:
                if fcntl is not None:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except OSError:
                        continue  # its process lives
                file.seek(0)
                batches = []
                for line in file:
                    try:
                        batches.append(Batch.from_json(line))
                    except ValueError as error:
                        logger.warning("steproute: spool %s: a line was left out (%s)", path, error)
                write(path.stem.partition("-")[2], batches)
                path.unlink(missing_ok=True)
