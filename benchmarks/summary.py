"""From task rows to the table of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from steproute.benchmarks.statistics import wilson_interval
from steproute.models import Model


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
                "pass_rate_ci95": list(wilson_interval(passed, n)),
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


def table(summary: Sequence[Mapping[str, Any]], title: str) -> Table:
    """The summary for people."""
    out = Table(
        title=title, caption="amounts are means per task; ± is half the 95 % Wilson interval; lower regret is better"
    )
    energy = any(row["energy_j"] is not None for row in summary)
    heads = [
        "policy",
        "tasks",
        "pass rate",
        "seconds",
        "tokens",
        *(["joules*"] if energy else []),
        "USD",
        "calls",
        "step regret",
    ]
    for name in [*heads, "visible pass, hidden fail", "value", "calls per model"]:
        out.add_column(name, justify="left" if name in ("policy", "calls per model") else "right")
    for row in summary:
        low, high = row["pass_rate_ci95"]
        regret = row["step_regret"]
        share = "  ".join(f"{name} {part:.0%}" for name, part in row["share"].items() if part)
        out.add_row(
            row["policy"],
            str(row["tasks"]),
            f"{row['pass_rate']:.1%} ±{(high - low) / 2:.1%}",
            f"{row['seconds']:.1f}",
            f"{row['tokens']:.0f}",
            *([f"{row['energy_j']:.0f}" if row["energy_j"] is not None else "-"] if energy else []),
            f"{row['usd']:.4f}",
            f"{row['calls_per_task']:.2f}",
            "-" if regret is None else f"{regret:.4f}",
            f"{row['visible_pass_hidden_fail']:.1%}",
            f"{row['value']:+.3f}",
            share,
        )
    return out
