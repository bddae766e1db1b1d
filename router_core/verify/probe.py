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
from dataclasses import replace
from typing import Literal

from steproute.errors import SteprouteError
from steproute.verify.channel import Channel, Ended
from steproute.verify.launcher import Launcher, discard, guest_program
from steproute.verify.limits import SandboxLimits
from steproute.verify.reader import loads

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
        version, flaw = _probe(launcher)
        if version and (best is None or not flaw):
            best = replace(launcher, version=version, safe=launcher.kind == "bwrap" and not flaw)
        if not flaw:
            break
        problems.append(f"{launcher.kind} with {launcher.interpreter}: {flaw}")
    if best is None:
        raise SandboxUnavailable(f"no sandbox of kind {kind!r} works here: {'; '.join(problems)}")
    if not best.safe and kind != "subprocess":
        why = "; ".join(problems)
        _log.warning("model-written code runs without full isolation (%s); results are marked unsafe", why)
    return best


def _ways(kind: Kind, python: str | None, bwrap: str) -> Iterator[Launcher]:
    """Everything worth trying, best first: another interpreter rather than another's rights."""
    interpreters = [os.path.realpath(python)] if python else list(_interpreters())
    ways: list[tuple[Literal["bwrap", "subprocess"], str]] = []
    if kind != "subprocess" and bwrap:
        ways.append(("bwrap", bwrap))
    if kind != "bwrap":
        ways.append(("subprocess", ""))
    for way, program in ways:
        for drops_user in (True, False) if os.geteuid() == 0 else (False,):
            for interpreter in interpreters:
                yield Launcher(way, interpreter, program, drops_user=drops_user)


_OWN_VARIABLES = {"PYTHONHASHSEED", "LC_CTYPE", "LD_LIBRARY_PATH", "PWD"}
_VERSION = "__import__('decimal') and '%d.%d' % __import__('sys').version_info[:2]"
# what must hold inside: an expression, a part of the answer it must give, and what is wrong if it does not
_WALLS = (
    (f"sorted(set(__import__('os').environ) - {_OWN_VARIABLES})", "[]", "the environment is visible"),
    ("__import__('os').fork()", "BlockingIOError", "processes are not limited"),
    ("[name for _, name in __import__('socket').if_nameindex()]", "['lo']", "the network is open"),
    ("open('/usr/steproute', 'w')", "Error", "the system is writable"),
)


def _probe(launcher: Launcher) -> tuple[str, str]:
    """Start a guest and try its walls.

    Returns:
        The interpreter's version, empty if it does not start, and what is wrong, empty if nothing is.
    """
    limits = SandboxLimits(processes=1)
    try:
        channel, folder = launcher.start(guest_program(), limits, cpu_seconds=5)
    except OSError as error:
        return "", f"does not start ({error.strerror})"
    version = ""
    try:
        version = _answer(channel, _VERSION).strip("'")
        if not version[:1].isdigit():
            return "", f"modules cannot be imported ({version[:100]})"
        for expression, right, flaw in _WALLS if launcher.kind == "bwrap" else ():
            if right not in _answer(channel, expression):
                return version, flaw
    except Ended as ended:
        return version, f"stops answering ({ended.ending})" if version else _complaint(launcher, limits, ended)
    finally:
        channel.close()
        discard(folder)
    return version, ""


def _answer(channel: Channel, expression: str) -> str:
    """What an expression gives inside, or the error it leads to."""
    line = channel.exchange(f"0 call {expression!a}".encode("ascii"), time.monotonic() + 10)
    said = loads(line.decode("ascii").split(" ", 2)[2])
    return said if isinstance(said, str) else repr(said)


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
