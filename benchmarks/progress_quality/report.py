"""Progress beside simpler signals, after 5, 10 and 15 turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from steproute.benchmarks.progress_quality.measures import quality
from steproute.benchmarks.progress_quality.records import Record
from steproute.progress import View

TURNS = (5, 10, 15)

Signal = Callable[[Record, int], float]
"""A number for a run after so many turns; higher = likelier to succeed."""

BASELINES: Mapping[str, Signal] = {
    "fewer tool calls": lambda record, turns: -float(sum(len(step.tool_calls) for step in record.steps[:turns])),
    "fewer errors": lambda record, turns: (
        -float(sum(call.ok is False for step in record.steps[:turns] for call in step.tool_calls))
    ),
    "fewer messages": lambda record, turns: -float(min(turns, max(len(record.steps), len(record.g or ())))),
}


def report(
    records: Sequence[Record], views: Mapping[str, View] | None = None, turns: Sequence[int] = TURNS
) -> list[dict[str, Any]]:
    """One row per domain, number of turns and signal.

    A run that was shorter counts with its last state: it is known to have ended. `going` says how many had not.

    Args:
        records: runs whose end is known.
        views: further views by name, for runs whose steps are known, beside the progress that the domain's own view
            (or the log) gives.
        turns: the cuts.
    """
    rows = []
    for domain in sorted({record.domain for record in records}):
        mine = [record for record in records if record.domain == domain]
        success, tasks = [record.success for record in mine], [record.task for record in mine]
        share = sum(success) / len(success)
        signals: dict[str, Signal] = {"g": lambda record, cut: record.after(cut)}
        for name, view in (views or {}).items():
            if view.domain == domain:
                signals[f"g, {name}"] = lambda record, cut, view=view: record.after(cut, view)  # type: ignore[misc]
        for cut in turns:
            about = {
                "domain": domain,
                "turns": cut,
                "runs": len(mine),
                "going": sum(max(len(record.steps), len(record.g or ())) > cut for record in mine),
                "tasks": len(set(tasks)),
                "success": share,
                "brier_of_the_mean": share * (1 - share),
            }
            for name, signal in {**signals, **BASELINES}.items():
                found = quality([signal(record, cut) for record in mine], success, tasks)
                rows.append({**about, "signal": name, **asdict(found)})
    return rows
