"""Who may use a SQLite file: one process alone, or several that all said they share it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from steproute.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class FileOwner:
    """A lock on `FILE.lock` that the system frees when the process ends, however it ends."""

    def __init__(self, path: Path, shared: bool):
        """Take the lock.

        Raises:
            StoreError: another process has the file, or its folder cannot be written.
        """
        self.path = path.with_name(path.name + ".lock")
        self._file: IO[str] | None = None
        if not path.parent.is_dir():
            raise StoreError(f"store {path}: the folder {str(path.parent)!r} does not exist; create it first")
        try:
            self._file = self.path.open("a+", encoding="utf-8")
        except OSError as error:
            raise StoreError(
                f"store {path}: cannot be written ({error.strerror}); it needs a folder it can write to"
            ) from None
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip()
            self._file.close()
            if holder == f"process {os.getpid()}":
                raise StoreError(
                    f"store {path}: open already in this process; close that router first (router.close())"
                ) from None
            raise StoreError(
                f"store {path}: in use by another process{f' ({holder})' if holder else ''}; several processes on one file "
                "must all open it with shared=True (Store(path, shared=True)), or use PostgreSQL"
            ) from None
        if not shared:
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()}\n")
            self._file.flush()

    def release(self) -> None:
        """Give it up."""
        if self._file is not None:
            self._file.close()
            self._file = None
