"""A PostgreSQL server of a test's own, on a free loopback port, where the machine has the programs."""

from __future__ import annotations

import glob
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from typing_extensions import Self


class PostgresServer:
    """Starts an empty server and removes it at the end. As root it runs as the user `postgres`: it refuses root."""

    def __init__(self) -> None:
        self._bin = programs()
        self._as: list[str] = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="steproute-pg-"))
        if self._as:
            shutil.chown(self._folder, "postgres")
        data = str(self._folder / "data")
        options = f"-p {self.port} -k {self._folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync")
        self._run("pg_ctl", "-D", data, "-l", str(self._folder / "log"), "-o", options, "-w", "start")
        return self

    def __exit__(self, *_: object) -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "stop")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(Path(self._bin) / program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", timeout=120)


def programs() -> str:
    """Folder of PostgreSQL's programs; empty when it is not installed."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)
    path = found[0] if found else shutil.which("initdb")
    return str(Path(path).parent) if path else ""
