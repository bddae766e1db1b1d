"""`python -m steproute.benchmarks.progress_quality`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from steproute.benchmarks.progress_quality.fit import fit_outlook, on_unseen_tasks
from steproute.benchmarks.progress_quality.records import read_run, read_taubench
from steproute.benchmarks.progress_quality.report import report
from steproute.errors import ConfigError, SteprouteError
from steproute.progress.outlook import CalibratedToolsView

app = typer.Typer()


@app.command()
def progress_quality(
    taubench: Annotated[
        Path | None, typer.Option(help="Recorded runs of τ-bench: a .json file, or a folder of them.")
    ] = None,
    run: Annotated[list[Path] | None, typer.Option(help="Folder that `steproute run` wrote; repeatable.")] = None,
    turns: Annotated[str, typer.Option(help="Cuts, comma-separated.")] = "5,10,15",
    fit: Annotated[
        bool, typer.Option("--fit", help="Also fit the outlook to the τ-bench runs, and judge fits on unseen tasks.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON.")] = False,
) -> None:
    """How well progress after some turns foretells how a run ends: AUC and calibration, beside simpler signals.

    Cuts are after a number of turns, never at a share of a run. Intervals draw tasks anew; calibration is fitted on other
    tasks than it is judged on. Runs that were shorter count with their last state.
    """
    cuts = _whole(turns)
    recorded = [] if taubench is None else read_taubench(taubench)
    records = [*recorded, *(record for folder in run or () for record in read_run(folder))]
    if not records:
        raise ConfigError("data: none given; --taubench FILE or --run FOLDER")
    rows = report(records, {"outlook": CalibratedToolsView()} if recorded else None, cuts)
    fits: dict[str, Any] = {}
    if fit:
        outlook = fit_outlook(recorded)
        unseen = {cut: on_unseen_tasks(recorded, cut) for cut in cuts}
        fits = {"bias": outlook.bias, "handed_over": outlook.handed_over, "demanding": outlook.demanding}
        fits["unseen"] = {cut: {"auc": mean, "sd": spread} for cut, (mean, spread) in unseen.items()}
    if as_json:
        typer.echo(json.dumps({"rows": rows, "fit": fits} if fit else rows, indent=1))
        return
    console = Console()
    console.width = max(console.width, 120)
    console.print(_table(rows))
    if fit:
        said = ", ".join(f"{cut} turns {found['auc']:.2f} ± {found['sd']:.2f}" for cut, found in fits["unseen"].items())
        console.print(f"fitted after 10 turns: {outlook}", highlight=False)
        console.print(
            f"AUC of fits on half of the tasks, judged on the other half (mean ± sd): {said}", highlight=False
        )


def _whole(text: str) -> list[int]:
    try:
        cuts = [int(part) for part in text.split(",")]
    except ValueError:
        cuts = []
    if not cuts or min(cuts) < 1:
        raise ConfigError(f"turns: seen {text!r}; allowed: whole numbers of 1 or more, comma-separated")
    return cuts


def _table(rows: list[dict[str, Any]]) -> Table:
    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("domain", "turns", "signal"):
        out.add_column(name)
    for name in ("runs (going)", "tasks", "success", "AUC [95 %]", "Brier (of the mean)", "ECE"):
        out.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        out.add_row(
            row["domain"],
            str(row["turns"]),
            row["signal"],
            f"{row['runs']} ({row['going']})",
            str(row["tasks"]),
            f"{row['success']:.2f}",
            f"{row['auc']:.2f} [{row['low']:.2f}, {row['high']:.2f}]",
            f"{row['brier']:.3f} ({row['brier_of_the_mean']:.3f})",
            f"{row['ece']:.2f}",
        )
    return out


if __name__ == "__main__":
    try:
        app()
    except SteprouteError as error:
        raise SystemExit(f"error: {error}") from None
