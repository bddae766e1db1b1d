"""A PostgreSQL server of the tests' own, on a free loopback port, where the machine has the programs."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

_USERS = ("postgres", "nobody")
"""Whom it runs as when the tests run as root, which PostgreSQL refuses."""


class PostgresServer:
    """Starts an empty server, and stops and removes it at the end. `url` is that of its database `postgres`."""

    def __init__(self) -> None:
        self._bin = Path(programs())
        self._user = _unprivileged() if os.geteuid() == 0 else None
        self.port = 0

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="steproute-pg-"))
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        try:
            self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
            self._start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _start(self) -> None:
        """Another program may take the free port before the server does: try some more."""
        for left in reversed(range(3)):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            options = f"-p {self.port} -k {self._folder} -c listen_addresses=127.0.0.1 -c fsync=off"
            try:
                self._run("pg_ctl", "-D", self._data, "-l", str(self._folder / "log"), "-o", options, "-w", "start")
                return
            except RuntimeError:
                if not left:
                    raise

    def _run(self, program: str, *arguments: str) -> None:
        before = ["runuser", "-u", self._user, "--"] if self._user is not None else []
        command = [*before, str(self._bin / program), *arguments]
        # a file, not a pipe: the server inherits it and would keep a pipe open
        with tempfile.TemporaryFile() as said:
            done = subprocess.run(command, stdout=said, stderr=said, cwd="/", timeout=120)
            if done.returncode:
                said.seek(0)
                raise RuntimeError(
                    f"{program} ended with {done.returncode}: {said.read().decode(errors='replace')[-500:]}"
                )


def programs() -> str:
    """Folder of PostgreSQL's programs; empty when it is not installed."""
    found = [path for path in glob.glob("/usr/lib/postgresql/*/bin/initdb") if os.access(path, os.X_OK)]
    newest = max(found, key=lambda path: float(path.split("/")[4]), default=None) or shutil.which("initdb")
    folder = Path(os.path.realpath(newest)).parent if newest else None
    return str(folder) if folder is not None and (folder / "pg_ctl").exists() else ""


def missing() -> str:
    """Why no server can be started here; empty when one can."""
    if not programs():
        return "PostgreSQL's programs are not installed (Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and _unprivileged() is None:
        return f"PostgreSQL does not run as root, and there is no user {' or '.join(_USERS)}"
    return ""


def _unprivileged() -> str | None:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in _USERS if name in names), None)
