"""`steproute run humaneval`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from steproute.benchmarks.humaneval.run import HumanEval, Options
from steproute.benchmarks.summary import WIDTH, tables

app = typer.Typer()

POLICIES = "pacer,progrouter,fixed:*,random,naive-ratio,cascade,oracle"
LIVE = "steproute run humaneval --backend ollama --models small=qwen2.5-coder:0.5b,large=qwen2.5-coder:7b --policy progrouter --limit 10"


@app.command(epilog=f"Live models: {LIVE}")
def humaneval(
    policy: Annotated[str, typer.Option(help="Policies, comma-separated; `fixed:*` = one per model.")] = POLICIES,
    framework: Annotated[str, typer.Option(help="ag2 or plain.")] = "ag2",
    backend: Annotated[str, typer.Option(help="cassette, ollama, litellm or local.")] = "cassette",
    models: Annotated[
        str, typer.Option(help="`name` or `name=deployment`, comma-separated; default: the recorded three.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Order of the problems and every random draw.")] = 0,
    limit: Annotated[int | None, typer.Option(help="Only the first so many problems.")] = None,
    cassettes: Annotated[Path | None, typer.Option(help="Folder of recordings.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Server of a live backend.")] = None,
    problems: Annotated[
        Path | None, typer.Option(help="Problem file (.jsonl, .jsonl.gz) in HumanEval's format.")
    ] = None,
    price_of_second: Annotated[float, typer.Option(help="Worth of a second of compute, in solved problems.")] = 0.005,
    power_w: Annotated[
        float | None, typer.Option(help="Board power in watts; gives joules, labelled as yours.")
    ] = None,
    outcomes: Annotated[
        bool, typer.Option(help="Tell the router each task's final result, as a user who accepts or rejects would.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; never overwritten.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """A team of agents (coder, tester, fixer) solves HumanEval; each policy routes the same calls.

    The tester sees only the examples of the docstring; the hidden tests grade the end.
    """
    from steproute.report import write_report

    options = Options(
        policies=_names(policy),
        framework=framework,
        backend=backend,
        seed=seed,
        limit=limit,
        models=_names(models),
        cassettes=cassettes,
        base_url=base_url,
        problems=problems,
        price_of_second=price_of_second,
        power_w=power_w,
        outcomes=outcomes,
        out=out,
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        line = bar.add_task("starting")
        result = HumanEval().run(
            options, lambda what, done, total: bar.update(line, description=what, completed=done, total=total)
        )
    page = write_report(result.path)
    if as_json:
        typer.echo(json.dumps(result.summary, indent=1))
        return
    console = Console()
    console.width = max(console.width, WIDTH)
    title = f"HumanEval, {result.summary[0]['tasks']} problems, {framework}, {backend}, seed {seed}"
    console.print(tables(result.summary, title))
    console.print(f"run     {result.path}", highlight=False)
    console.print(f"report  {page}", highlight=False, soft_wrap=True)


def _names(text: str) -> list[str]:
    return [name for item in text.split(",") if (name := item.strip())]
