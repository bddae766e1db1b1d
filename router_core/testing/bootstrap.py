"""Switches recording or replay on inside the interpreter of somebody else's program.

`steproute record -- COMMAND` puts a `sitecustomize` on the path of its child processes that calls `start`, so that a
script, a `-m` module and a console script are all recorded without a change, and so are their own Python children.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import sys
from dataclasses import asdict
from typing import Any

from steproute.testing.exchange import Exchange

SETTINGS = "STEPROUTE_TESTING"
"""Environment variable with the settings of the run, as JSON."""

SITECUSTOMIZE = f"""\
import os, sys
_here = os.path.dirname(os.path.abspath(__file__))
try:
    from steproute.testing.bootstrap import start
except ImportError as _error:
    sys.stderr.write(f"steproute: {{sys.executable}} cannot record: {{_error}}\\n")
else:
    if os.environ.get({SETTINGS!r}):
        try:
            start()
        except BaseException as _error:
            # Running on would be a program that is neither recorded nor kept off the network.
            sys.stderr.write(f"steproute: recording cannot start: {{_error}}\\n")
            sys.stderr.flush()
            os._exit(70)
# The interpreter's own sitecustomize, if it has one, still runs.
sys.path[:] = [_path for _path in sys.path if os.path.abspath(_path or os.curdir) != _here]
_mine = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError:
    if _mine is not None:
        sys.modules["sitecustomize"] = _mine
"""


def start() -> None:
    """Patch this process for its whole life, as the settings in the environment say."""
    from steproute.testing.cassette import RoutedCassette, patched

    settings = json.loads(os.environ[SETTINGS])
    log = settings["log"]
    cassette = RoutedCassette(
        settings["paths"],
        settings["mode"],
        secrets=settings["secrets"],
        sink=lambda exchange: append_line(log, {"exchange": encode(exchange)}),
    )
    patches = patched(cassette)
    patches.__enter__()
    process = os.getpid()

    def finish(_: object = patches) -> None:
        # Holding the patches keeps them on until the process is gone: other exit handlers may still send requests.
        if os.getpid() == process and cassette.report:  # a forked child has its parent's list
            append_line(log, {"mismatch": cassette.report})

    atexit.register(finish)


def append_line(path: str, record: dict[str, Any]) -> None:
    """Append one JSON line in a single write, so that processes can share the file and a crash loses nothing."""
    line = (json.dumps(record) + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def encode(exchange: Exchange) -> dict[str, Any]:
    """An exchange as JSON types."""
    fields = asdict(exchange)
    for name in ("request_body", "response_body"):
        fields[name] = base64.b64encode(fields[name]).decode()
    return fields


def decode(fields: dict[str, Any]) -> Exchange:
    """The inverse of `encode`."""
    bodies = {name: base64.b64decode(fields[name]) for name in ("request_body", "response_body")}
    return Exchange(**{**fields, **bodies})


def interpreter() -> str:
    """The Python that runs this."""
    return sys.executable or "python3"
