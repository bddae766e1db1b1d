"""From task rows to the table of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from steproute.evidence import EvidenceModel
from steproute.models import Model
from steproute.report.summary import wilson
from steproute.router import Router


def summarise(
    rows: Sequence[Mapping[str, Any]],
    pool: Sequence[Model],
    price_of_second: float,
    power_w: float | None,
    value_usd: float = 0.0,
) -> list[dict[str, Any]]:
    """One object per policy, in order of first appearance; amounts are means per task.

    Args:
        rows: lines of `tasks.jsonl`.
        pool: the models, for the shares.
        price_of_second: worth of a second in solved problems.
        power_w: board power the user gave; labels the joules.
        value_usd: worth of a dollar in solved problems.
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
        usd = [row["usd"] for row in mine]
        mean_usd = None if None in usd else sum(usd) / n
        rewards = [row["reward"] for row in mine if row.get("reward") is not None]
        errors = sum(bool(row.get("error")) for row in mine)
        summary.append(
            {
                "policy": policy,
                "tasks": n,
                "pass_rate": passed / n,
                "pass_rate_ci95": list(wilson(passed, n)),
                "seconds": seconds,
                "tokens": sum(row["tokens"] for row in mine) / n,
                "energy_j": None if None in joules else sum(joules) / n,
                "energy_source": None if None in joules else _source(power_w),
                "usd": mean_usd,
                "calls_per_task": total / n,
                "step_regret": sum((row["regret"] or 0.0) * row["choices"] for row in mine) / choices
                if choices
                else None,
                "visible_pass_hidden_fail": sum(bool(row["visible_ok"]) and not row["passed"] for row in mine) / n,
                "value": passed / n - price_of_second * seconds - value_usd * (mean_usd or 0.0),
                "share": {model.name: calls[model.name] / total if total else 0.0 for model in pool},
                **({"reward": sum(rewards) / len(rewards)} if rewards else {}),
                **({"errors": errors} if errors else {}),
            }
        )
    return summary


def judged(router: Router) -> dict[str, float]:
    """What a router's evidence model made of the checks on the tasks it held out: Brier and ECE with a check's score taken
    for the truth (before), and as weighed and calibrated (after). Empty where there is none, or no result was told."""
    model = router.reliability
    report = next(iter(model.report()), None) if isinstance(model, EvidenceModel) else None
    if report is None:
        return {}
    before, after = report.face_value, report.calibrated
    return {
        "tasks": report.tasks,
        "brier_before": before.brier,
        "brier_after": after.brier,
        "ece_before": before.ece,
        "ece_after": after.ece,
    }


def _source(power_w: float | None) -> str:
    return "the models' profiles" if power_w is None else f"seconds x {power_w:g} W given by the user"


WIDTH = 120
"""Columns the tables need; a narrower terminal gets them all the same."""


def tables(summary: Sequence[Mapping[str, Any]], title: str) -> Group:
    """The summary for people: what came out, and who was called."""
    energy = any(row["energy_j"] is not None for row in summary)
    results = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
    graded = all("reward" in row for row in summary)
    faulty = any(row.get("errors") for row in summary)
    heads = ["policy", "tasks", "pass %", *(["reward"] if graded else []), "seconds", "tokens", "USD"]
    heads += [*(["joules"] if energy else []), "calls", *([] if graded else ["regret"]), "fooled %", "value"]
    for name in [*heads, *(["errors"] if faulty else [])]:
        results.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    shares = Table(box=SIMPLE_HEAD, pad_edge=False, title="share of calls per model", title_justify="left")
    shares.add_column("policy", no_wrap=True)
    for name in summary[0]["share"]:
        shares.add_column(name, justify="right")
    for row in summary:
        low, high = row["pass_rate_ci95"]
        regret = "-" if row["step_regret"] is None else f"{row['step_regret']:.4f}"
        joules = ["-" if row["energy_j"] is None else f"{row['energy_j']:.0f}"] if energy else []
        results.add_row(
            row["policy"],
            str(row["tasks"]),
            f"{row['pass_rate']:.1%} ±{50 * (high - low):.0f}".replace("%", ""),
            *([f"{row['reward']:.3f}" if "reward" in row else "-"] if graded else []),
            f"{row['seconds']:.1f}",
            f"{row['tokens']:.0f}",
            "-" if row["usd"] is None else f"{row['usd']:.4f}",
            *joules,
            f"{row['calls_per_task']:.2f}",
            *([] if graded else [regret]),
            f"{100 * row['visible_pass_hidden_fail']:.1f}",
            f"{row['value']:+.3f}",
            *([str(row.get("errors", 0))] if faulty else []),
        )
        shares.add_row(row["policy"], *(f"{part:.0%}" for part in row["share"].values()))
    prices = "the price of the seconds and dollars" if graded else "the price of the seconds"
    notes = [
        f"Amounts are means per task; ± is half the 95 % Wilson interval; value = solved problems minus {prices}.",
    ]
    if not graded:
        notes.append("regret: mean of V* − Q* over all choices, known from the recorded tree (lower is better).")
    notes.append("fooled: passed all visible checks, failed the hidden tests.")
    if faulty:
        notes.append("errors: tasks that ended in a fault, counted as failed; `--resume` tries them again.")
    for row in summary:
        if seen := row.get("evidence"):
            notes.append(
                f"{row['policy']}: visible checks taken for the truth → as learnt, on {seen['tasks']} held-out tasks: "
                f"Brier {seen['brier_before']:.3f} → {seen['brier_after']:.3f}, "
                f"ECE {seen['ece_before']:.3f} → {seen['ece_after']:.3f}."
            )
    if energy:
        notes.append(f"joules: {next(row['energy_source'] for row in summary if row['energy_source'])}, not measured.")
    return Group(results, Text("\n".join(notes), style="dim"), "", shares)
