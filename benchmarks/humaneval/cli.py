"""`steproute run humaneval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from steproute.benchmarks.command import (
    BaseUrlOption,
    CassettesOption,
    JobsOption,
    JsonOption,
    OutcomesOption,
    OutOption,
    PolicyOption,
    PowerOption,
    ResumeOption,
    execute,
    names,
)
from steproute.benchmarks.humaneval.run import HumanEval, Options

app = typer.Typer()

POLICIES = "pacer,progrouter,fixed:*,random,naive-ratio,cascade,oracle"
LIVE = "steproute run humaneval --backend ollama --models small=qwen2.5-coder:0.5b,large=qwen2.5-coder:7b --policy progrouter --limit 10"


@app.command(epilog=f"Live models: {LIVE}")
def humaneval(
    policy: PolicyOption = POLICIES,
    framework: Annotated[str, typer.Option(help="ag2, langgraph, litellm or plain.")] = "ag2",
    backend: Annotated[str, typer.Option(help="cassette, ollama, litellm or local.")] = "cassette",
    models: Annotated[
        str, typer.Option(help="`name` or `name=deployment`, comma-separated; default: the recorded three.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Order of the problems and every random draw.")] = 0,
    limit: Annotated[int | None, typer.Option(help="Only the first so many problems.")] = None,
    cassettes: CassettesOption = None,
    base_url: BaseUrlOption = None,
    problems: Annotated[
        Path | None, typer.Option(help="Problem file (.jsonl, .jsonl.gz) in HumanEval's format.")
    ] = None,
    price_of_second: Annotated[float, typer.Option(help="Worth of a second of compute, in solved problems.")] = 0.005,
    power_w: PowerOption = None,
    outcomes: OutcomesOption = False,
    jobs: JobsOption = 1,
    out: OutOption = None,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """A team of agents (coder, tester, fixer) solves HumanEval; each policy routes the same calls.

    The tester sees only the examples of the docstring; the hidden tests grade the end.
    """
    options = Options(
        policies=names(policy),
        framework=framework,
        backend=backend,
        seed=seed,
        limit=limit,
        models=names(models),
        cassettes=cassettes,
        base_url=base_url,
        problems=problems,
        price_of_second=price_of_second,
        power_w=power_w,
        outcomes=outcomes,
        jobs=jobs,
        out=out,
        resume=resume,
    )
    title = f"HumanEval, {{tasks}} problems, {framework}, {backend}, seed {seed}"
    execute(lambda progress: HumanEval().run(options, progress), title, as_json)
