"""`steproute run progrouter`: Table 1 and figures 3 to 5."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

from steproute.benchmarks.progrouter.figures import write_pareto, write_shares
from steproute.benchmarks.progrouter.methods import METHODS, Job, Run, run
from steproute.benchmarks.progrouter.summary import Estimate, Row, as_dict, front, summarise
from steproute.benchmarks.simulator.variants import TARGET_J
from steproute.benchmarks.statistics import ONE_SEED
from steproute.errors import ConfigError, unknown_name

app = typer.Typer(add_completion=False)


@app.command()
def progrouter(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 10,
    seed_base: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    tasks: Annotated[int, typer.Option(min=30, help="Tasks per run.")] = 240,
    warmup: Annotated[int, typer.Option(min=1, help="Tasks that count as cold start.")] = 100,
    method: Annotated[list[str] | None, typer.Option(help="Part of a method's name; repeatable.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder for figures and summary.json.")] = None,
) -> None:
    """ProgRouter's Table 1 and figures 3 to 5, on the simulated workload, with intervals over seeds."""
    if warmup >= tasks:
        raise typer.BadParameter(f"warmup: seen {warmup}; allowed: less than tasks ({tasks})")
    names = chosen(method or [])
    todo = [Job(name, seed, tasks, warmup) for seed in range(seed_base, seed_base + seeds) for name in names]
    runs = played(todo, jobs)
    phases = {phase: summarise(runs, TARGET_J, phase) for phase in ("steady", "cold")}
    console = Console(width=max(Console().width, 140))
    for phase, rows in phases.items():
        show(console, rows, f"{'After' if phase == 'steady' else 'During'} the first {warmup} tasks")
    if seeds == 1:
        console.print(ONE_SEED, style="dim", highlight=False)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        steady, over = phases["steady"], f"{seeds} seeds, {tasks - warmup} tasks each after {warmup}"
        write_pareto(out / "figure3.svg", steady, TARGET_J, f"Quality and energy: {over}")
        write_shares(out / "figure4.svg", steady, "family", f"Calls per family: {over}")
        write_shares(out / "figure5.svg", steady, "size", f"Calls per size: {over}")
        told = {"target_j": TARGET_J, "seeds": seeds, "seed_base": seed_base, "tasks": tasks, "warmup": warmup}
        whole = {**told, **{phase: as_dict(rows) for phase, rows in phases.items()}, "front": front(steady)}
        (out / "summary.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        console.print(f"figures and summary: {out}", highlight=False)


def chosen(parts: Sequence[str]) -> list[str]:
    """Methods whose names hold one of the parts; all without any.

    Raises:
        ConfigError: a part matches nothing.
    """
    for part in parts:
        if not any(part.lower() in name.lower() for name in METHODS):
            raise ConfigError(unknown_name("method", part, METHODS))
    return [name for name in METHODS if not parts or any(part.lower() in name.lower() for part in parts)]


def played(jobs: Sequence[Job], workers: int) -> list[Run]:
    """Play all, in order."""
    if workers == 1:
        return [run(job) for job in jobs]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(run, jobs))


def show(console: Console, rows: Sequence[Row], title: str) -> None:
    """Print Table 1: the budget first; * marks the best among those within it."""
    sizes = list(rows[0].size)
    heads = ("method", "within budget", "J", "solved %", "s", "calls", *(f"{name} %" for name in sizes))
    table = Table(*(Column(head, no_wrap=True) for head in heads), title=title, box=SIMPLE, pad_edge=False)
    for row in rows:
        within = ("yes" if row.feasible else "no") + ("" if row.sure else ", not sure")
        values = row.values
        table.add_row(
            row.method,
            within,
            _said(values["energy_j"], 0) + _star(row, "energy_j"),
            _said(values["quality"], 1, 100) + _star(row, "quality"),
            _said(values["seconds"], 1) + _star(row, "seconds"),
            _said(values["calls"], 2),
            *(f"{100 * row.size[name].mean:.0f}" for name in sizes),
        )
    console.print(table)


def _star(row: Row, name: str) -> str:
    return " *" if name in row.best else ""


def _said(value: Estimate, digits: int, scale: float = 1.0) -> str:
    return f"{scale * value.mean:.{digits}f} ±{scale * value.half:.{digits}f}"
