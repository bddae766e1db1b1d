"""Runs whose end is known: recorded conversations of τ-bench, and the run folders of our own benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steproute.benchmarks.rows import need, read_rows
from steproute.benchmarks.seat import fingerprint
from steproute.errors import ConfigError
from steproute.ledger import Ledger, Outcome, Step, Task, ToolCall
from steproute.progress import ProgressTracker, View, view_for


@dataclass(frozen=True)
class Record:
    """One run of a task."""

    domain: str
    task: str
    """Runs of one task are never on both sides of a split."""
    success: bool
    steps: Sequence[Step]
    """One per call of a model: its turns. They may hold nothing but tool calls."""
    g: Sequence[float] | None = None
    """Progress after each turn, as it was logged; None = a view reads the steps."""

    def after(self, turns: int, view: View | None = None) -> float:
        """g after so many turns, or at the end of a run that was shorter.

        A cut at a share of the run would tell how long it was going to be.
        """
        if self.g is not None and view is None:
            return self.g[:turns][-1] if self.g else 0.0
        ledger = Ledger(task=Task(id=self.task, domain=self.domain), steps=list(self.steps[:turns]))
        return ProgressTracker(view or view_for(self.domain)).update(ledger).g


def read_taubench(path: Path) -> list[Record]:
    """Recorded runs of τ-bench: a JSON list of `task_id`, `reward` and `traj` (messages), or a folder of such files.

    Nothing else is read; `info` holds the answer key.

    Raises:
        ConfigError: names the file, run and field, what was seen and what is allowed.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"data: {path} holds no .json file")
    records = []
    for file in files:
        for where, row in read_rows(file):
            reward = need(row, where, "reward", float)
            if not 0 <= reward <= 1:
                raise ConfigError(f"{where}: field 'reward': seen {reward!r}; allowed: a number in [0, 1]")
            if "task_id" not in row:
                raise ConfigError(f"{where}: field 'task_id' is missing")
            messages = need(row, where, "traj", list)
            steps = list(_turns(messages, where))
            records.append(Record("tools", f"{file.stem}/{row['task_id']}", reward >= 1 - 1e-6, steps))
    return records


def _turns(messages: Sequence[Any], where: str) -> Iterator[Step]:
    """One step per message of the assistant, with what came of its tool calls."""
    said: Mapping[str, Any] | None = None
    results: list[Mapping[str, Any]] = []
    number = 0
    for message in [*messages, {"role": "assistant"}]:
        if not isinstance(message, dict) or "role" not in message:
            raise ConfigError(f"{where}: field 'traj': seen {message!r:.80}; allowed: messages with a role")
        if message["role"] == "assistant":
            if said is not None:
                yield _step(said, results, number)
                number += 1
            said, results = message, []
        elif message["role"] == "tool":
            results.append(message)


def _step(said: Mapping[str, Any], results: Sequence[Mapping[str, Any]], number: int) -> Step:
    calls = []
    for place, asked in enumerate(said.get("tool_calls") or []):
        function = asked.get("function") or {}
        name = str(function.get("name") or "unnamed")
        text = str(results[place].get("content") or "") if place < len(results) else None
        failed = text is not None and text.startswith("Error")
        calls.append(
            ToolCall(
                name=name,
                ok=None if text is None else not failed,
                error=(text or "")[:200] if failed else "",
                fingerprint=fingerprint(name, str(function.get("arguments") or "")),
            )
        )
    output = str(said.get("content") or "") + "".join(f"\n{call.name} {call.fingerprint}" for call in calls)
    return Step(id=str(number), output=output, outcome=Outcome(call_id=str(number)), tool_calls=calls)


def read_run(folder: Path) -> list[Record]:
    """The runs of a folder that `steproute run` wrote: outcomes, tool calls and the progress it logged.

    Tasks that ended in a fault are left out.

    Raises:
        ConfigError: it is no run folder, or a line lacks a field; names both.
    """
    if not (folder / "tasks.jsonl").is_file():
        raise ConfigError(f"run: {folder} holds no tasks.jsonl; allowed: a folder that `steproute run` wrote")
    calls: dict[tuple[str, str], list[Step]] = {}
    logged: dict[tuple[str, str], list[float]] = {}
    for where, row in read_rows(folder / "steps.jsonl", name="run"):
        if row.get("model") is not None:
            key = (need(row, where, "policy", str), need(row, where, "task", str))
            made = [ToolCall.model_validate(call) for call in row.get("tools") or []]
            calls.setdefault(key, []).append(Step(id=str(len(calls.get(key, ()))), tool_calls=made))
            if "g_after" not in row:
                raise ConfigError(f"{where}: field 'g_after' is missing")
            before = logged.setdefault(key, [])
            before.append(float(row["g_after"]) if row["g_after"] is not None else (before or [0.0])[-1])
    records = []
    for where, row in read_rows(folder / "tasks.jsonl", name="run"):
        if row.get("error"):
            continue
        policy, task = need(row, where, "policy", str), need(row, where, "task", str)
        about = row.get("about") or {}
        domain = str(about.get("domain") or "generic")
        g = logged.get((policy, task), [])
        records.append(Record(domain, task, need(row, where, "passed", bool), calls.get((policy, task), []), g))
    return records
