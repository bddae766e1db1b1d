"""The summary of a run that ended before it wrote one, from its tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steproute.report.run import Record
from steproute.report.values import names, number, text

MEANS = {
    "seconds": "seconds",
    "tokens": "tokens",
    "usd": "usd",
    "energy_j": "energy_j",
    "calls": "calls_per_task",
}
"""Field of a task → field of the summary that holds its mean."""


def wilson(passed: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """Interval of a share (Wilson 1927), at 95 % by default; (0, 1) when nothing was seen."""
    if total == 0:
        return 0.0, 1.0
    share, spread = passed / total, z * z / total
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def summarise(tasks: Iterable[Mapping[str, Any]], price_of_second: float | None = None) -> list[Record]:
    """One record per policy, in the order in which policies appear.

    Args:
        tasks: records of `tasks.jsonl`.
        price_of_second: λ of value = pass − λ·seconds; None = no value.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in tasks:
        groups.setdefault(text(row.get("policy")), []).append(row)
    return [_summary(policy, rows, price_of_second) for policy, rows in groups.items()]


def _summary(policy: str, rows: Sequence[Mapping[str, Any]], price_of_second: float | None) -> Record:
    graded = [row for row in rows if isinstance(row.get("passed"), bool)]
    passed = sum(row["passed"] for row in graded)
    record: Record = {"policy": policy, "tasks": len(rows)}
    if graded:
        record["pass_rate"] = passed / len(graded)
        record["pass_rate_ci95"] = list(wilson(passed, len(graded)))
        fooled = sum(row.get("visible_ok") is True and not row["passed"] for row in graded)
        record["visible_pass_hidden_fail"] = fooled / len(graded)
    for source, target in MEANS.items():
        seen = [value for value in (number(row.get(source), 12) for row in rows) if value is not None]
        if seen:
            record[target] = sum(seen) / len(seen)
    calls = [model for row in rows for model in names(row.get("models"))]
    if calls:
        record["share"] = {model: calls.count(model) / len(calls) for model in dict.fromkeys(calls)}
    if price_of_second is not None and "pass_rate" in record and "seconds" in record:
        record["value"] = record["pass_rate"] - price_of_second * record["seconds"]
    return record
