"""Why this model: a task's decisions from a store, with every candidate's terms and what came of the choice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steproute.accounts import Accounts
from steproute.budget import Budget
from steproute.draws import Draws
from steproute.errors import StoreError
from steproute.models import Model, ModelPool

if TYPE_CHECKING:
    from steproute.store.read import StoreReader


def explain(store: StoreReader | str | Path, task: str, step: str | None = None) -> str:
    """A text that says what was decided in a task and why.

    Args:
        store: an open reader, a path or a URL.
        task: id of the task.
        step: key of one step; None = all of them.

    Raises:
        StoreError: the store has no such task or step; names ones that are alike.
    """
    from steproute.store.read import StoreReader
    from steproute.store.rows import Reader

    reader = store if isinstance(store, StoreReader) else StoreReader(store)
    rows = reader.decisions(task, step)
    if not rows:
        raise StoreError(_nothing(reader, task, step))
    stranger = ModelPool([Model("(none)", price="unknown")])
    read = Reader(stranger, Accounts(Budget(), lambda: 0.0), Draws(0))
    came = reader.follow(task)
    parts = [_head(reader.task(task))]
    for row in rows:
        parts.append(f"{moment(row['created'])}\n{read.decision(row).why()}\n{_came(row['id'], came)}")
    ends = [_end(row) for row in came["endings"]] if step is None else []
    return "\n\n".join([*parts, *ends])


def moment(seconds: float) -> str:
    """A clock time for people, in UTC."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return f"{seconds:.0f} s"


def _nothing(reader: StoreReader, task: str, step: str | None) -> str:
    if step is not None:
        keys = list(dict.fromkeys(row["step"] for row in reader.decisions(task)))
        if keys:
            return f"task {task!r} has no step {step!r}; it has {', '.join(keys[:20])}"
    near = reader.like(task)
    hint = f"; there is {', '.join(near)}" if near else ""
    return f"store {reader.label}: no decision of task {task!r}{hint}"


def _head(task: Mapping[str, Any] | None) -> str:
    if task is None:
        return ""
    kind = " · ".join(part for part in (task["domain"], task["dimension"], task["source"]) if part)
    state = "running" if task["ended"] is None else "ended by being idle" if task["idle"] else "ended"
    goal = f"\ngoal: {task['goal']}" if task["goal"] else ""
    return f"task {task['id']} ({kind}), begun {moment(task['created'])}, {state}{goal}"


def _came(decision: str, came: Mapping[str, list[dict[str, Any]]]) -> str:
    lines: list[str] = []
    for row in came["outcomes"]:
        if row["decision"] == decision:
            cost = "usd unknown" if row["usd"] is None else f"usd {row['usd']:.4g}"
            energy = (
                "" if row["energy_j"] is None else f", {row['energy_j']:.4g} J ({row['energy_source'] or 'as told'})"
            )
            told = f"failed: {row['error']}" if row["error"] is not None else f"progress after it g={row['g']:.3f}"
            lines.append(
                f"  ↳ {row['model']}: {row['prompt_tokens']} + {row['completion_tokens']} tokens, {cost}, "
                f"{row['seconds']:.3g} s{energy}; {told}"
            )
            lines += _evidence(row, "")
    for row in came["reports"]:
        if row["decision"] == decision:
            lines += _evidence(row, " · later")
    for row in came["experiences"]:
        if row["decision"] == decision:
            lines.append(f"    learnt: gain {row['gain']:+.3f} with reliability {row['reliability']:.2f}")
    return "\n".join(lines) or "  ↳ no outcome was reported"


def _evidence(row: Mapping[str, Any], when: str) -> list[str]:
    return [
        f"    {item['source']}: {item['score']:.3g} over {item['count']} check{'' if item['count'] == 1 else 's'}"
        f"{' (' + item['detail'] + ')' if item.get('detail') else ''}{when}"
        for item in json.loads(row["evidence"])
    ]


def _end(row: Mapping[str, Any]) -> str:
    if row["idle"]:
        return f"{moment(row['created'])}\nidle: ended with success unknown"
    said = "success unknown" if row["reward"] is None else f"reward {row['reward']:g}"
    return f"{moment(row['created'])}\nended: {said}, spent {row['spent']}"
