"""Which way of isolating an interpreter works on this machine: tried out, not guessed."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from steproute.errors import SteprouteError
from steproute.verify.channel import Ended
from steproute.verify.launcher import Launcher, discard, guest_program
from steproute.verify.limits import SandboxLimits

Kind = Literal["auto", "bwrap", "subprocess"]

_log = logging.getLogger(__name__)
_probing = threading.Lock()


class SandboxUnavailable(SteprouteError, RuntimeError):
    """The kind of sandbox asked for does not work here; says what was tried and what happened."""


def find_launcher(kind: Kind = "auto", python: str | None = None) -> Launcher:
    """The best way to start an isolated interpreter on this machine, tried out once per process.

    Args:
        kind: `bwrap` insists on bubblewrap, `subprocess` does without, `auto` prefers the first and warns once if it
            has to do with less.
        python: interpreter to use; by default the one that runs this program, else the system's.

    Raises:
        SandboxUnavailable: nothing of the kind asked for starts here.
    """
    with _probing:
        return _find_launcher(kind, python, shutil.which("bwrap") or "")


@functools.cache
def _find_launcher(kind: Kind, python: str | None, bwrap: str) -> Launcher:
    problems = [] if bwrap or kind == "subprocess" else ["no `bwrap` on PATH (the package is called bubblewrap)"]
    best: Launcher | None = None
    for launcher in _ways(kind, python, bwrap):
        flaw = _probe(launcher)
        if flaw is None:
            best = replace(launcher, safe=launcher.kind == "bwrap")
            break
        problems.append(f"{launcher.kind} with {launcher.interpreter}: {flaw.text}")
        if flaw.starts and best is None:
            best = launcher
    if best is None:
        raise SandboxUnavailable(f"no sandbox of kind {kind!r} works here: {'; '.join(problems)}")
    if not best.safe and kind != "subprocess":
        why = "; ".join(problems)
        _log.warning("model-written code runs without full isolation (%s); results are marked unsafe", why)
    return best


@dataclass(frozen=True)
class _Flaw:
    text: str
    starts: bool


def _ways(kind: Kind, python: str | None, bwrap: str) -> Iterator[Launcher]:
    """Everything worth trying, best first."""
    root = os.geteuid() == 0
    interpreters = [os.path.realpath(python)] if python else list(_interpreters())
    if kind != "subprocess" and bwrap:
        for interpreter in interpreters:
            if root:
                yield Launcher("bwrap", interpreter, bwrap, drops_user=True)
            yield Launcher("bwrap", interpreter, bwrap)
    if kind != "bwrap":
        for interpreter in interpreters:
            if root:
                yield Launcher("subprocess", interpreter, drops_user=True)
            yield Launcher("subprocess", interpreter)


_OWN_VARIABLES = {"PYTHONHASHSEED", "LC_CTYPE", "LD_LIBRARY_PATH", "PWD"}
# what must hold inside: an expression and the result it must have, or the error
_WALLS = (
    ("__import__('decimal').Decimal(1) == 1", "True", "modules cannot be imported"),
    (f"sorted(set(__import__('os').environ) - {_OWN_VARIABLES})", "[]", "the environment is visible"),
    ("__import__('os').fork()", "BlockingIOError", "processes are not limited"),
    ("[name for _, name in __import__('socket').if_nameindex()]", "['lo']", "the network is open"),
    ("open('/usr/steproute', 'w')", "Error", "the system is writable"),
)


def _probe(launcher: Launcher) -> _Flaw | None:
    """Start a guest and try its walls; None when all stand."""
    limits = SandboxLimits(processes=1)
    channel, folder = launcher.start(guest_program(), limits, cpu_seconds=5)
    try:
        for number, (expression, right, flaw) in enumerate(_WALLS):
            if launcher.kind == "subprocess" and number > 0:
                break
            try:
                answer = channel.exchange(f"{number} call {expression!a}".encode("ascii"), time.monotonic() + 10)
            except Ended as ended:
                return _Flaw(flaw, starts=True) if number else _Flaw(_complaint(launcher, limits, ended), starts=False)
            if right not in answer.decode("ascii", "replace"):
                return _Flaw(flaw, starts=number > 0)
    finally:
        channel.close()
        discard(folder)
    return None


def _complaint(launcher: Launcher, limits: SandboxLimits, ended: Ended) -> str:
    """The last words of a way that does not start."""
    command, env = launcher.command("import decimal", limits, 5)
    try:
        run = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not start ({type(error).__name__})"
    lines = run.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"does not start ({lines[-1][:200] if lines else ended.ending})"


def _interpreters() -> Iterator[str]:
    """Interpreters that may work inside: the one under this virtual environment, then the system's."""
    seen = set()
    for name in (getattr(sys, "_base_executable", ""), sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        path = os.path.realpath(name) if name else ""
        if path and path not in seen and os.access(path, os.X_OK) and os.path.basename(path).startswith("python"):
            seen.add(path)
            yield path
