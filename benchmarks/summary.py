"""From task rows to the table of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from steproute.models import Model
from steproute.report.summary import wilson


def summarise(
    rows: Sequence[Mapping[str, Any]], pool: Sequence[Model], price_of_second: float, power_w: float | None
) -> list[dict[str, Any]]:
    """One object per policy, in order of first appearance; amounts are means per task.

    Args:
        rows: lines of `tasks.jsonl`.
        pool: the models, for the shares.
        price_of_second: worth of a second in solved problems.
        power_w: board power the user gave; labels the joules.
    """
    summary = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == policy]
        n = len(mine)
        passed = sum(row["passed"] for row in mine)
        calls = Counter(model for row in mine for model in row["models"])
        total = sum(calls.values())
        choices = sum(row["choices"] for row in mine)
        joules = [row["energy_j"] for row in mine]
        seconds = sum(row["seconds"] for row in mine) / n
        summary.append(
            {
                "policy": policy,
                "tasks": n,
                "pass_rate": passed / n,
                "pass_rate_ci95": list(wilson(passed, n)),
                "seconds": seconds,
                "tokens": sum(row["tokens"] for row in mine) / n,
                "energy_j": None if None in joules else sum(joules) / n,
                "energy_source": None if None in joules else f"seconds x {power_w:g} W given by the user",
                "usd": sum(row["usd"] for row in mine) / n,
                "calls_per_task": total / n,
                "step_regret": sum(row["regret"] * row["choices"] for row in mine) / choices if choices else None,
                "visible_pass_hidden_fail": sum(row["visible_ok"] and not row["passed"] for row in mine) / n,
                "value": passed / n - price_of_second * seconds,
                "share": {model.name: calls[model.name] / total if total else 0.0 for model in pool},
            }
        )
    return summary


WIDTH = 120
"""Columns the tables need; a narrower terminal gets them all the same."""


def tables(summary: Sequence[Mapping[str, Any]], title: str) -> Group:
    """The summary for people: what came out, and who was called."""
    energy = any(row["energy_j"] is not None for row in summary)
    results = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
    heads = ["policy", "tasks", "pass %", "seconds", "tokens", "USD", *(["joules"] if energy else [])]
    for name in [*heads, "calls", "regret", "fooled %", "value"]:
        results.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    shares = Table(box=SIMPLE_HEAD, pad_edge=False, title="share of calls per model", title_justify="left")
    shares.add_column("policy", no_wrap=True)
    for name in summary[0]["share"]:
        shares.add_column(name, justify="right")
    for row in summary:
        low, high = row["pass_rate_ci95"]
        regret = row["step_regret"]
        joules = ["-" if row["energy_j"] is None else f"{row['energy_j']:.0f}"] if energy else []
        results.add_row(
            row["policy"],
            str(row["tasks"]),
            f"{row['pass_rate']:.1%} ±{50 * (high - low):.0f}".replace("%", ""),
            f"{row['seconds']:.1f}",
            f"{row['tokens']:.0f}",
            f"{row['usd']:.4f}",
            *joules,
            f"{row['calls_per_task']:.2f}",
            "-" if regret is None else f"{regret:.4f}",
            f"{100 * row['visible_pass_hidden_fail']:.1f}",
            f"{row['value']:+.3f}",
        )
        shares.add_row(row["policy"], *(f"{part:.0%}" for part in row["share"].values()))
    notes = [
        "Amounts are means per task; ± is half the 95 % Wilson interval; value = solved problems minus the price of the seconds.",
        "regret: mean of V* − Q* over all choices, known from the recorded tree (lower is better).",
        "fooled: passed all visible checks, failed the hidden tests.",
    ]
    if energy:
        notes.append(f"joules: {next(row['energy_source'] for row in summary if row['energy_source'])}, not measured.")
    return Group(results, Text("\n".join(notes), style="dim"), "", shares)
