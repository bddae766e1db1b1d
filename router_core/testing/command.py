"""`steproute record -- COMMAND`: run a user's own program with recording, or replay, switched on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from steproute.errors import ConfigError
from steproute.testing.bootstrap import SETTINGS, SITECUSTOMIZE, decode, interpreter
from steproute.testing.cassette import Mode
from steproute.testing.exchange import Exchange, load_cassette, save_cassette


@dataclass(frozen=True)
class CommandResult:
    """How a recorded or replayed program ended."""

    exit_code: int
    """The program's own; in a replay 1 instead of 0 when it swallowed a mismatch. 128 + N after signal N."""
    exchanges: int
    """How many exchanges were recorded."""
    path: Path
    """The cassette."""
    report: str = ""
    """Mismatches of a replay, explained."""


def record_command(argv: Sequence[str], cassette: str | Path, *, add: bool = False, secrets: Sequence[str] = ()) -> int:
    """`record_program` for a command line: says on standard error what was recorded, returns the exit code."""
    result = record_program(argv, cassette, add=add, secrets=secrets)
    noun = "exchange" if result.exchanges == 1 else "exchanges"
    what = f"{result.exchanges} {noun} recorded in {result.path}" if result.exchanges else _NOTHING
    sys.stderr.write(f"steproute: {what}\n")
    return result.exit_code


def replay_command(argv: Sequence[str], cassettes: Sequence[str | Path]) -> int:
    """`replay_program` for a command line: explains mismatches on standard error, returns the exit code."""
    result = replay_program(argv, cassettes)
    if result.report:
        sys.stderr.write(f"steproute: {result.report}\n")
    return result.exit_code


def record_program(
    argv: Sequence[str], cassette: str | Path, *, add: bool = False, secrets: Sequence[str] = ()
) -> CommandResult:
    """Run a Python program and record its HTTP to model servers.

    Args:
        argv: `python prog.py …`, `prog.py …`, `-m module …`, or a console script; Python children are recorded too.
        cassette: file to write. Nothing is written when the program made no request.
        add: keep what the file holds and record only requests that it lacks.
        secrets: further strings to keep out of the file.

    Returns:
        The result; standard input, output and error are the program's own.

    Raises:
        ConfigError: no command, or one that does not exist.
        ImportError: vcrpy is missing.
    """
    return _run(argv, [cassette], "new" if add else "record", secrets)


def replay_program(argv: Sequence[str], cassettes: Sequence[str | Path]) -> CommandResult:
    """Run a Python program against recordings, with the network off.

    Args:
        argv: as for `record_program`.
        cassettes: files to serve from, merged.

    Returns:
        The result; `report` explains each request that was never recorded.
    """
    return _run(argv, cassettes, "replay", ())


def _run(argv: Sequence[str], cassettes: Sequence[str | Path], mode: Mode, secrets: Sequence[str]) -> CommandResult:
    _need_vcrpy()
    command = _python_command(argv)
    paths = [Path(path).resolve() for path in cassettes]
    with tempfile.TemporaryDirectory(prefix="steproute-") as folder:
        Path(folder, "sitecustomize.py").write_text(SITECUSTOMIZE, encoding="utf-8")
        log = Path(folder, "exchanges.jsonl")
        settings = {"paths": [str(path) for path in paths], "mode": mode, "secrets": list(secrets), "log": str(log)}
        inherited = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            SETTINGS: json.dumps(settings),
            "PYTHONPATH": folder if not inherited else os.pathsep.join([folder, inherited]),
        }
        try:
            code = subprocess.run(command, env=environment, check=False).returncode
        except OSError as error:
            raise ConfigError(f"command: cannot run {command[0]!r}: {error.strerror or error}") from error
        exchanges, reports = _read_log(log)
    if code < 0:
        code = 128 - code
    if mode != "replay" and exchanges:
        kept = load_cassette(paths[0]) if mode == "new" and paths[0].exists() else []
        save_cassette(paths[0], [*kept, *exchanges])
    if reports and code == 0:
        code = 1
    return CommandResult(code, len(exchanges), paths[0], "\n\n".join(reports))


def _need_vcrpy() -> None:
    try:
        import vcr  # noqa: F401
    except ImportError as error:
        raise ImportError('recording and replaying HTTP needs vcrpy: pip install "steproute[testing]"') from error


def _python_command(argv: Sequence[str]) -> list[str]:
    if not argv:
        raise ConfigError("command: nothing to run; give it after `--`, e.g. `steproute record -- python prog.py`")
    first = argv[0]
    if first == "-m" or first.endswith(".py"):
        return [interpreter(), *argv]
    if first in ("python", "python3"):
        # The interpreter that has steproute, also where another one comes first on PATH.
        return [interpreter(), *argv[1:]]
    return list(argv)


def _read_log(log: Path) -> tuple[list[Exchange], list[str]]:
    exchanges, reports = [], []
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        record = json.loads(line)
        if "exchange" in record:
            exchanges.append(replace(decode(record["exchange"]), source=""))
        else:
            reports.append(str(record["mismatch"]))
    return exchanges, reports


_NOTHING = (
    "nothing was recorded: the program made no HTTP request through httpx, httpx2, aiohttp, requests or urllib3, "
    "or its interpreter has no steproute[testing]"
)
