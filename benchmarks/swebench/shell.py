"""A bash that sees a repository and a read-only system, and nothing of the user's: bubblewrap, no network, empty environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steproute.verify.probe import find_launcher

TESTBED = "/testbed"
"""Where the repository lies inside, as in the benchmark's images."""
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/passwd",
    "/etc/group",
)
_USER = 0x70005357
"""User id, assigned to nobody, that a shell started by root runs under: the kernel limits no root's processes."""


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    output: str
    """Standard output and error together, at most `Shell.output_bytes`."""
    code: int
    timed_out: bool = False


@dataclass(frozen=True)
class Shell:
    """Runs commands in one repository."""

    folder: Path
    """The repository; the only thing commands may change. Give it away with `own` first."""
    tools: Sequence[Path] = (Path(sys.prefix),)
    """Folders to show read-only; their `bin` leads the search path. By default the environment this program runs in."""
    memory_bytes: int = 4 << 30
    processes: int = 256
    file_bytes: int = 256 << 20
    folder_bytes: int = 1 << 30
    """Size of its /tmp."""
    output_bytes: int = 4 << 20
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the few variables a command sees. Nothing is taken from this program's own environment."""

    def run(self, command: str, timeout_s: float, cwd: str = TESTBED, files: Mapping[str, Path] | None = None) -> Ran:
        """Run a bash command; everything it started ends with it.

        Args:
            command: text for `bash -c`.
            timeout_s: seconds of wall clock.
            cwd: folder inside.
            files: read-only files to show, path inside → path here.

        Raises:
            SandboxUnavailable: bubblewrap does not work here.
        """
        limits = (  # set by the first process, which nothing of the repository has touched
            f"ulimit -c 0 -u {self.processes} -v {self.memory_bytes >> 10} -f {self.file_bytes >> 9} -t {int(timeout_s) + 1}"
        )
        drop = [
            "setpriv",
            f"--reuid={_USER}",
            f"--regid={_USER}",
            "--clear-groups",
            "--no-new-privs",
            "--inh-caps=-all",
        ]
        inside = [
            *(drop if _is_root() else ()),
            "/bin/bash",
            "-c",
            f'{limits} || exit 125; exec /bin/bash -c "$1"',
            "bash",
            command,
        ]
        with tempfile.TemporaryFile() as output:  # a file: its size is limited with those the command writes
            process = subprocess.Popen(
                [*self._walls(cwd, files or {}), *inside],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={},
                start_new_session=True,
            )
            late = False
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                late = True
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # bubblewrap takes its whole process namespace along
                    process.wait()
            output.seek(0)
            text = output.read(self.output_bytes).decode("utf-8", "replace")
        return Ran(text, -1 if late else process.returncode, late)

    def own(self) -> None:
        """Give the folder to the user the commands run as, where that is another one."""
        if _is_root():
            subprocess.run(["chown", "-R", f"{_USER}:{_USER}", str(self.folder)], check=True, timeout=600)

    def _walls(self, cwd: str, files: Mapping[str, Path]) -> list[str]:
        walls = [find_launcher("bwrap").bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        walls += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if _is_root() else ["--unshare-user"]
        walls += ["--die-with-parent", "--new-session", "--clearenv"]
        path = ":".join([*(f"{tool}/bin" for tool in self.tools), "/usr/local/bin", "/usr/bin", "/bin"])
        fixed = {"PATH": path, "HOME": "/tmp", "LANG": "C.UTF-8", "PAGER": "cat", "PYTHONDONTWRITEBYTECODE": "1"}
        for name, value in {**fixed, **self.environment}.items():
            walls += ["--setenv", name, value]
        walls += [
            "--perms",
            "1777",
            "--size",
            str(self.folder_bytes),
            "--tmpfs",
            "/tmp",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
        ]
        folders = [*_SYSTEM, *map(str, self.tools), *_interpreters(self.tools)]
        for parent in sorted({str(parent) for folder in folders for parent in list(Path(folder).parents)[:-1]}):
            walls += ["--perms", "0755", "--dir", parent]  # else closed to the user id the commands get
        for folder in folders:
            walls += ["--ro-bind-try", folder, folder]
        walls += ["--bind", str(self.folder), TESTBED]
        for inside, outside in files.items():
            walls += ["--ro-bind", str(outside), inside]
        return [*walls, "--chdir", cwd]


def _is_root() -> bool:
    return os.geteuid() == 0


def _interpreters(tools: Sequence[Path]) -> list[str]:
    """Where the Pythons of virtual environments really live, outside the system's folders."""
    real = [(tool / "bin" / "python").resolve().parent.parent for tool in tools if (tool / "bin" / "python").exists()]
    return [
        str(folder) for folder in dict.fromkeys(real) if not folder.is_relative_to("/usr") and len(folder.parts) > 2
    ]
