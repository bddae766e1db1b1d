"""`steproute log`, `explain` and `top`: what a store says, in a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steproute.errors import ConfigError
from steproute.explain import moment
from steproute.store.export import export, write_jsonl
from steproute.store.read import Filter, StoreReader

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table


def show_log(target: str, wanted: Filter, limit: int | None, as_json: bool, out: Path | None) -> None:
    """Print steps, or write them to a file."""
    reader = StoreReader(target)
    if out is not None:
        n = export(reader.steps(wanted, limit), out)
        sys.stdout.write(f"{n} steps written to {out}\n")
        return
    if as_json:
        write_jsonl(reader.steps(wanted, limit), sys.stdout)
        return
    from rich.console import Console

    steps = list(reader.steps(wanted, limit if limit is not None else 50, newest=True))
    if not steps:
        sys.stdout.write(f"no such step among the {reader.counts()['decisions']} decisions in {reader.label}\n")
        return
    width = None if sys.stdout.isatty() else 180
    Console(width=width).print(steps_table(steps[::-1]))


def steps_table(steps: list[dict[str, Any]]) -> Table:
    """Steps as a table, one row each."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), show_edge=False)
    for name in ("time", "task", "step", "role", "model", "p", "g", "→ g", "tokens", "usd", "s", "outcome"):
        table.add_column(name, no_wrap=True)
    for item in steps:
        tokens = "" if item["completion_tokens"] is None else f"{item['prompt_tokens']}+{item['completion_tokens']}"
        told = item["error"] or ("stop" if item["stop"] else "no outcome" if item["call_id"] is None else "")
        table.add_row(
            moment(item["created"])[5:19],
            item["task"],
            item["step"] + (f" #{item['attempt']}" if item["attempt"] > 1 else ""),
            item["role"],
            item["answered_by"] or item["model"],
            f"{item['propensity']:.2g}",
            f"{item['g']:.2f}",
            _number(item["g_after"], ".2f"),
            tokens,
            _number(item["usd"], ".3g"),
            _number(item["seconds"], ".3g"),
            told[:60],
        )
    return table


def show_top(target: str, every: float, minutes: float, once: bool, clock: Callable[[], float] = time.time) -> None:
    """A live table of what a store's routers are doing, until interrupted."""
    from rich.console import Console, Group
    from rich.live import Live
    from sqlalchemy.exc import DBAPIError

    reader = StoreReader(target)
    console = Console()
    if once:
        console.print(overview(reader, minutes, clock()))
        return
    seen: RenderableType = overview(reader, minutes, clock())
    with Live(seen, console=console, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(every)
                try:
                    seen = overview(reader, minutes, clock())
                except DBAPIError as error:  # a database that is away for a while is no reason to end
                    told = (
                        f"{moment(clock())}: {reader.label} does not answer ({type(error.orig).__name__}); asking again"
                    )
                    live.update(Group(seen, told), refresh=True)
                else:
                    live.update(seen, refresh=True)
        except KeyboardInterrupt:
            return


def overview(reader: StoreReader, minutes: float, now: float) -> Group:
    """Models, running tasks and queues of now."""
    from rich.console import Group
    from rich.table import Table

    models = Table("model", "calls", "share", "errors", "usd", "s/call", "tokens", title=f"last {minutes:g} min")
    sums = reader.latest(now - 60 * minutes)
    calls = sum(item["calls"] for item in sums) or 1
    for item in sums:
        models.add_row(
            item["model"],
            str(item["calls"]),
            f"{100 * item['calls'] / calls:.0f} %",
            str(item["errors"]),
            f"{item['usd']:.4g}",
            f"{item['seconds'] / item['calls']:.3g}",
            str(item["tokens"]),
        )
    counts = reader.counts()
    running = Table(
        "task", "steps", "g", "usd", "s", "last model", "heard of", title=f"{counts['running']} tasks running"
    )
    for item in reader.running(15):
        heard = item["heard"] if item["heard"] is not None else item["touched"]
        running.add_row(
            item["id"],
            str(item["steps"]),
            f"{item['g']:.2f}",
            f"{item['usd']:.4g}",
            f"{item['seconds']:.3g}",
            item["model"],
            f"{max(now - heard, 0):.0f} s ago",
        )
    queues = ", ".join(f"{name} {value:.4g}" for name, value in reader.queues().items()) or "none"
    parts: list[RenderableType] = [
        models,
        running,
        f"long-run queues: {queues} · {counts['decisions']} decisions in {reader.label}",
    ]
    return Group(*parts)


def when(text: str | None, now: float) -> float | None:
    """A moment from a date (`2026-11-30`, `2026-11-30T08:00`, UTC unless it says otherwise) or an age (`90s`, `15m`, `2h`, `7d`).

    Raises:
        ConfigError: it is neither.
    """
    if text is None:
        return None
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if text[-1:] in units and text[:-1].replace(".", "", 1).isdigit():
        return now - float(text[:-1]) * units[text[-1]]
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"time: seen {text!r}; allowed: a date like 2026-11-30T08:00, or an age like 15m, 2h, 7d"
        ) from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)).timestamp()


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
