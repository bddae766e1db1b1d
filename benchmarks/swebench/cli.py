"""`steproute run swebench`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from steproute.benchmarks.command import (
    BackendOption,
    BaseUrlOption,
    CassettesOption,
    JobsOption,
    JsonOption,
    LimitOption,
    ModelsOption,
    OutcomesOption,
    OutOption,
    PolicyOption,
    PowerOption,
    PriceOfSecondOption,
    ResumeOption,
    SeedOption,
    UsdLimitOption,
    ValueUsdOption,
    execute,
    names,
)
from steproute.benchmarks.pool import candidates
from steproute.benchmarks.protocol import ProgressReport, Result
from steproute.benchmarks.runner import run
from steproute.benchmarks.swebench.run import Options, Swebench, write_predictions

app = typer.Typer()

LIVE = (
    "ANTHROPIC_API_KEY=… steproute run swebench --data SWE-bench/SWE-bench_Verified --runtime docker --backend litellm "
    '--models small=anthropic/claude-haiku-4-5,large=anthropic/claude-sonnet-4-5 --policy "pacer,fixed:*" '
    "--value-usd 0.2 --usd-limit 3 --limit 5 --jobs 2 --out runs/swebench"
)


@app.command(epilog=f"Live models: {LIVE}")
def swebench(
    policy: PolicyOption = "pacer,fixed:*",
    data: Annotated[
        str, typer.Option(help="Instances: a .json, .jsonl or .parquet file, or a hub name.")
    ] = "SWE-bench/SWE-bench_Verified",
    split: Annotated[str, typer.Option(help="Split of a hub data set.")] = "test",
    instances: Annotated[str, typer.Option(help="Instance ids, comma-separated; default: all.")] = "",
    runtime: Annotated[
        str, typer.Option(help="docker (official images and harness), local (our sandbox, not official) or auto.")
    ] = "auto",
    repos: Annotated[Path, typer.Option(help="Folder of git clones `owner__name`, for local.")] = Path("repos"),
    tools: Annotated[
        str, typer.Option(help="Folders whose bin the commands may use, comma-separated, for local.")
    ] = "",
    framework: Annotated[str, typer.Option(help="mini-swe-agent: its DefaultAgent.")] = "mini-swe-agent",
    backend: BackendOption = "litellm",
    models: ModelsOption = "",
    base_url: BaseUrlOption = None,
    cassettes: CassettesOption = None,
    temperature: Annotated[float, typer.Option(help="Of the models.")] = 0.0,
    max_tokens: Annotated[int | None, typer.Option(help="Completion limit of one call.")] = None,
    max_steps: Annotated[int, typer.Option(help="Calls per instance.")] = 100,
    command_timeout: Annotated[float, typer.Option(help="Seconds for one command.")] = 60.0,
    test_timeout: Annotated[float, typer.Option(help="Seconds for the evaluation script.")] = 1800.0,
    seed: SeedOption = 0,
    limit: LimitOption = None,
    usd_limit: UsdLimitOption = None,
    value_usd: ValueUsdOption = None,
    price_of_second: PriceOfSecondOption = None,
    power_w: PowerOption = None,
    outcomes: OutcomesOption = False,
    jobs: JobsOption = 1,
    out: OutOption = None,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """GitHub issues: mini-swe-agent with a routed model, patches graded by swebench's scripts and parsers.

    With Docker the official harness grades; without, our sandbox does, and says "local, not official". Predictions are
    written in the official format. Needs `steproute[swebench]`.
    """
    os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
    options = Options(
        policies=names(policy),
        framework=framework,
        backend=backend,
        seed=seed,
        limit=limit,
        models=names(models),
        base_url=base_url,
        cassettes=cassettes,
        price_of_second=price_of_second,
        value_usd=value_usd,
        usd_limit=usd_limit,
        power_w=power_w,
        outcomes=outcomes,
        jobs=jobs,
        out=out,
        resume=resume,
        data=data,
        split=split,
        instances=tuple(names(instances)),
        runtime=runtime,
        repos=repos,
        tools=tuple(Path(item) for item in names(tools)),
        max_steps=max_steps,
        command_timeout_s=command_timeout,
        test_timeout_s=test_timeout,
        temperature=temperature,
        max_tokens=max_tokens,
    )
    pool = candidates(options.models, backend, power_w, base_url)

    def play(progress: ProgressReport) -> Result:
        result = run(Swebench(options), pool, progress)
        write_predictions(result.path)
        return result

    execute(play, f"SWE-bench, {{tasks}} instances, {backend}, seed {seed}", as_json)
