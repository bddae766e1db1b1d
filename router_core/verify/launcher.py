"""How an isolated interpreter is started: behind bubblewrap where that works, else as a plain subprocess."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from steproute.verify.channel import Channel
from steproute.verify.limits import SandboxLimits

_turn = itertools.count()
_SPARE_UIDS = range(0x70000000, 0x7FFFFFFE)  # assigned to nobody by systemd's table of user ids
_SYSTEM = ("/usr", "/lib", "/lib64", "/nix/store", "/etc/ld.so.cache")
_OWN_LINES = ("from steproute.", "from __future__ ")


@dataclass(frozen=True)
class Launcher:
    """One way to start an isolated interpreter, found to work."""

    kind: Literal["bwrap", "subprocess"]
    interpreter: str
    bwrap: str = ""
    version: str = ""
    """Its Python version, `3.11`."""
    drops_user: bool = False
    """Started as root, the interpreter becomes a user id of its own: the kernel limits no root's processes."""
    safe: bool = False
    """True when the probe found every wall standing."""

    def start(self, program: str, limits: SandboxLimits, cpu_seconds: int) -> tuple[Channel, str | None]:
        """Start `program` (source text) and return its channel, and a folder to delete afterwards if there is one."""
        command, environment = self.command(program, limits, cpu_seconds)
        if self.kind == "bwrap":
            return Channel(command, environment, None, limits.answer_bytes, reports_child=True), None
        folder = tempfile.mkdtemp(prefix="steproute-")
        if self.drops_user:
            os.chmod(folder, 0o777)
        try:
            return Channel(command, environment, folder, limits.answer_bytes), folder
        except OSError:
            discard(folder)
            raise

    def command(self, program: str, limits: SandboxLimits, cpu_seconds: int) -> tuple[list[str], dict[str, str]]:
        """The command line, and the environment it gets."""
        uid = _spare_uid() if self.drops_user else 0
        settings = repr((limits.of_process(cpu_seconds), uid, self.kind == "bwrap"))
        # no -I: it would ignore the hash seed, and sets would print in another order each time
        command = [self.interpreter, "-s", "-S", "-B", "-c", program, settings]
        environment = {"PYTHONHASHSEED": "0"} | _library_path()
        # bubblewrap's own environment is empty: what it was started with can be read in its /proc/1/environ
        return ([*self._walls(limits, environment), *command], {}) if self.kind == "bwrap" else (command, environment)

    def _walls(self, limits: SandboxLimits, environment: dict[str, str]) -> list[str]:
        """The bubblewrap part of the command: nothing but a read-only system, an empty /tmp and an own /proc."""
        walls = [self.bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        if self.drops_user:
            walls += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            walls += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
        walls += ["--die-with-parent", "--new-session", "--clearenv"]
        for name, value in environment.items():
            walls += ["--setenv", name, value]
        walls += ["--perms", "1777", "--size", str(limits.folder_bytes), "--tmpfs", "/tmp"]
        folders = (*_SYSTEM, *_interpreter_folders(self.interpreter))
        for parent in sorted({str(parent) for folder in folders for parent in list(Path(folder).parents)[:-1]}):
            walls += ["--perms", "0755", "--dir", parent]  # else closed to the user id the candidate gets
        for folder in folders:
            walls += ["--ro-bind-try", folder, folder]
        # the root and /dev are in memory and would else be writable without a limit
        walls += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
        return walls


def program(*modules: str) -> str:
    """The source of some modules of this folder as one program; later ones use what earlier ones define."""
    parts = []
    for module in modules:
        text = resources.files("steproute.verify").joinpath(f"{module}.py").read_text(encoding="utf-8")
        parts.append("\n".join(line for line in text.splitlines() if not line.startswith(_OWN_LINES)))
    return "\n".join(parts) + "\n"


@functools.cache
def guest_program() -> str:
    """The program that holds a candidate."""
    return program("literals", "_confine", "_guest")


@functools.cache
def tester_program() -> str:
    """The program that runs a test."""
    return program("literals", "reader", "_confine", "_tester")


def discard(folder: str | None) -> None:
    """Delete a session's folder, if it has one."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _interpreter_folders(interpreter: str) -> list[str]:
    """What an interpreter outside the system's folders needs to see."""
    if interpreter == os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable):
        folders = [sys.base_prefix, sys.base_exec_prefix, sysconfig.get_path("stdlib"), os.path.dirname(interpreter)]
    else:
        folders = [str(Path(interpreter).parent.parent)]
    kept: list[str] = []
    for folder in sorted(set(map(os.path.realpath, folders))):
        too_wide = folder in ("/", os.path.expanduser("~")) or Path(folder).is_relative_to("/usr")
        if not too_wide and not any(Path(folder).is_relative_to(known) for known in kept):
            kept.append(folder)
    return kept


def _library_path() -> dict[str, str]:
    """`LD_LIBRARY_PATH`, if this interpreter is one that needs it to find its own library."""
    parts = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    inside = [part for part in parts if part and Path(part).is_relative_to(sys.base_prefix)]
    return {"LD_LIBRARY_PATH": ":".join(inside)} if inside else {}


def _spare_uid() -> int:
    """A user id no one has, another for each session, so that their processes are counted apart."""
    number = os.getpid() * 4099 + next(_turn)
    try:
        ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
        last = max(int(first) + int(count) for first, _, count in ranges)
    except (OSError, ValueError):
        last = 65536
    allowed = _SPARE_UIDS if last > _SPARE_UIDS.stop else range(20_000, min(last, 60_000))
    return allowed[number % len(allowed)] if len(allowed) else 65534
