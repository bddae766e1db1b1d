"""`steproute run math500`."""

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
from steproute.benchmarks.math500.run import Math500, Options
from steproute.benchmarks.pool import candidates
from steproute.benchmarks.runner import run

app = typer.Typer()

LIVE = (
    "OPENAI_API_KEY=… steproute run math500 --data HuggingFaceH4/MATH-500 --backend litellm "
    "--models small=openai/gpt-4.1-nano,large=openai/gpt-4.1 --policy pacer,fixed:* "
    "--value-usd 10 --limit 20 --jobs 4 --out runs/math500"
)


@app.command(epilog=f"Live models: {LIVE}")
def math500(
    data: Annotated[
        str | None, typer.Option(help="File of MATH-500; or OWNER/NAME on the hub; default: a sample of ours.")
    ] = None,
    split: Annotated[str, typer.Option(help="Of a data set on the hub.")] = "test",
    attempts: Annotated[int, typer.Option(help="Calls per problem at most; two that agree end it sooner.")] = 3,
    framework: Annotated[str, typer.Option(help="plain: a solver and its reviewer.")] = "plain",
    policy: PolicyOption = "pacer,fixed:*",
    backend: BackendOption = "litellm",
    models: ModelsOption = "",
    base_url: BaseUrlOption = None,
    temperature: Annotated[float, typer.Option(help="Of the models.")] = 0.0,
    max_tokens: Annotated[int, typer.Option(help="Completion limit of one call.")] = 2048,
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
    """MATH-500: answers extracted and compared by math-verify.

    The reference answer grades the end and is never shown: progress is whether attempts agree. Needs `steproute[math]`.
    """
    options = Options(
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
        data=data,
        split=split,
        attempts=attempts,
    )
    pool = candidates(options.models, backend, power_w, base_url)
    title = f"MATH-500 {'sample' if data is None else data}, {{tasks}} tasks, {backend}, seed {seed}"
    execute(lambda progress: run(Math500(options), pool, progress), title, as_json)
