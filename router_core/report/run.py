"""Reads the folder a benchmark run leaves behind; what is missing or torn is noted, not fatal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steproute.errors import ConfigError

Record = dict[str, Any]
FILES = ("config.json", "summary.json", "tasks.jsonl", "steps.jsonl")


@dataclass(frozen=True)
class Run:
    """What a run wrote: its settings, one record per policy, per (policy, task) and per decision."""

    folder: Path
    config: Record = field(default_factory=dict)
    summary: list[Record] = field(default_factory=list)
    tasks: list[Record] = field(default_factory=list)
    steps: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be read, in words for the reader of the report."""


def read_run(folder: Path) -> Run:
    """Read a run.

    Args:
        folder: holds `config.json`, `summary.json`, `tasks.jsonl` and `steps.jsonl`; each may be missing.

    Raises:
        ConfigError: no such folder, or none of the result files is in it.
    """
    if not folder.is_dir() or not any((folder / name).is_file() for name in FILES[1:]):
        raise ConfigError(
            f"run: seen {str(folder)!r}; allowed: a folder with results of `steproute run` ({', '.join(FILES)})"
        )
    notes: list[str] = []
    config = _whole(folder / "config.json", notes)
    summary = _whole(folder / "summary.json", notes)
    return Run(
        folder,
        config if isinstance(config, dict) else {},
        [row for row in summary if isinstance(row, dict)] if isinstance(summary, list) else [],
        list(_lines(folder / "tasks.jsonl", notes)),
        list(_lines(folder / "steps.jsonl", notes)),
        notes,
    )


def _whole(path: Path, notes: list[str]) -> object:
    if not path.is_file():
        notes.append(f"{path.name} is missing.")
        return None
    try:
        found: object = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except ValueError as error:
        notes.append(f"{path.name} could not be read: {error}.")
        return None
    return found


def _lines(path: Path, notes: list[str]) -> Iterator[Record]:
    """Records of a JSON-lines file. A run that was killed may have torn its last line."""
    if not path.is_file():
        notes.append(f"{path.name} is missing.")
        return
    torn: list[int] = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if isinstance(record, dict):
                yield record
            else:
                torn.append(number)
    if torn:
        shown = ", ".join(map(str, torn[:5])) + (", …" if len(torn) > 5 else "")
        notes.append(f"{path.name}: {len(torn)} line(s) could not be read and are left out (line {shown}).")
