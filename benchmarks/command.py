"""What the commands `steproute run NAME` share: their options, the progress bar and the tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from steproute.benchmarks.protocol import ProgressReport, Result
from steproute.benchmarks.summary import WIDTH, tables

PolicyOption = Annotated[str, typer.Option(help="Policies, comma-separated; `fixed:*` = one per model.")]
BackendOption = Annotated[str, typer.Option(help="litellm, ollama, local or cassette.")]
ModelsOption = Annotated[
    str, typer.Option(help="`name=deployment`, comma-separated, smallest first; or a steproute.yaml with prices.")
]
SeedOption = Annotated[int, typer.Option(help="Order of the tasks and every random draw.")]
LimitOption = Annotated[int | None, typer.Option(help="Only the first so many tasks.")]
CassettesOption = Annotated[Path | None, typer.Option(help="Folder of recordings.")]
BaseUrlOption = Annotated[str | None, typer.Option(help="Server of a live backend.")]
UsdLimitOption = Annotated[float | None, typer.Option(help="Hard limit of USD per task.")]
ValueUsdOption = Annotated[float | None, typer.Option(help="Worth of a dollar, in solved tasks.")]
PriceOfSecondOption = Annotated[float | None, typer.Option(help="Worth of a second, in solved tasks.")]
PowerOption = Annotated[float | None, typer.Option(help="Board power in watts; gives joules, labelled as yours.")]
OutcomesOption = Annotated[
    bool, typer.Option(help="Tell the router each task's final result, as a user who accepts or rejects would.")
]
JobsOption = Annotated[int, typer.Option(help="Tasks under way at one time.")]
OutOption = Annotated[Path | None, typer.Option(help="Folder of the run; never overwritten.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]


def names(text: str) -> list[str]:
    """The items of a comma-separated list."""
    return [name for item in text.split(",") if (name := item.strip())]


def execute(run: Callable[[ProgressReport], Result], title: str, as_json: bool) -> Result:
    """Run with a progress bar on standard error, write the report, print the table.

    Args:
        run: plays the benchmark.
        title: of the table; `{tasks}` becomes their number.
        as_json: print the summary as JSON instead.
    """
    from steproute.report import write_report

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        line = bar.add_task("starting")
        result = run(lambda what, done, total: bar.update(line, description=what, completed=done, total=total))
    page = write_report(result.path)
    if as_json:
        typer.echo(json.dumps(result.summary, indent=1))
        return result
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(tables(result.summary, title.format(tasks=result.summary[0]["tasks"])))
    console.print(f"run     {result.path}", highlight=False)
    console.print(f"report  {page}", highlight=False, soft_wrap=True)
    return result
