"""`steproute run mbpp`."""

from __future__ import annotations

from typing import Annotated

import typer

from steproute.benchmarks.command import (
    BackendOption,
    BaseUrlOption,
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
from steproute.benchmarks.functions.run import FunctionOptions, Functions
from steproute.benchmarks.mbpp.problems import load_problems
from steproute.benchmarks.pool import candidates
from steproute.benchmarks.runner import run

app = typer.Typer()

LIVE = (
    "OPENAI_API_KEY=… steproute run mbpp --data google-research-datasets/mbpp --backend litellm "
    "--models small=openai/gpt-4.1-nano,large=openai/gpt-4.1 --policy pacer,fixed:* "
    "--value-usd 10 --limit 20 --jobs 4 --out runs/mbpp"
)


@app.command(epilog=f"Live models: {LIVE}")
def mbpp(
    data: Annotated[
        str | None,
        typer.Option(
            help="File of MBPP, its sanitised part or MBPP+; or OWNER/NAME on the hub; default: a sample of ours."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Of a data set on the hub.")] = "test",
    shown: Annotated[int, typer.Option(help="Assertions the agents see (MBPP+: those of its prompt).")] = 1,
    attempts: Annotated[int, typer.Option(help="Calls per problem at most.")] = 3,
    cpu_seconds: Annotated[int, typer.Option(help="CPU time of one grading.")] = 30,
    framework: Annotated[str, typer.Option(help="plain: a coder and a fixer.")] = "plain",
    policy: PolicyOption = "pacer,fixed:*",
    backend: BackendOption = "litellm",
    models: ModelsOption = "",
    base_url: BaseUrlOption = None,
    temperature: Annotated[float, typer.Option(help="Of the models.")] = 0.0,
    max_tokens: Annotated[int, typer.Option(help="Completion limit of one call.")] = 1024,
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
    """MBPP and MBPP+: short functions described in a sentence, graded in the sandbox.

    The usual protocol of MBPP shows all three assertions: --shown 3. By default two stay hidden.
    """
    options = FunctionOptions(
        policies=names(policy),
        framework=framework,
        backend=backend,
        seed=seed,
        limit=limit,
        models=names(models),
        base_url=base_url,
        price_of_second=price_of_second,
        value_usd=value_usd,
        usd_limit=usd_limit,
        power_w=power_w,
        outcomes=outcomes,
        jobs=jobs,
        out=out,
        resume=resume,
        temperature=temperature,
        max_tokens=max_tokens,
        attempts=attempts,
        cpu_seconds=cpu_seconds,
    )
    pool = candidates(options.models, backend, power_w, base_url)
    title = f"MBPP {'sample' if data is None else data}, {{tasks}} tasks, {backend}, seed {seed}"
    execute(
        lambda progress: run(Functions("mbpp", options, lambda: load_problems(data, shown, split)), pool, progress),
        title,
        as_json,
    )
