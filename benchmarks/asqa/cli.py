"""`steproute run asqa`."""

from __future__ import annotations

from typing import Annotated

import typer

from steproute.benchmarks.asqa.run import Asqa, Options, quality
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
from steproute.benchmarks.pool import candidates
from steproute.benchmarks.runner import run

app = typer.Typer()

LIVE = (
    "OPENAI_API_KEY=… steproute run asqa --data asqa_eval_gtr_top100.json --judge llm --judge-model openai/gpt-4.1 --backend litellm "
    "--models small=openai/gpt-4.1-nano,large=openai/gpt-4.1 --policy pacer,fixed:* "
    "--value-usd 10 --limit 20 --jobs 4 --out runs/asqa"
)


@app.command(epilog=f"Live models: {LIVE}")
def asqa(
    data: Annotated[
        str | None,
        typer.Option(help="File of ALCE's ASQA with passages; or OWNER/NAME on the hub; default: a sample of ours."),
    ] = None,
    split: Annotated[str, typer.Option(help="Of a data set on the hub.")] = "test",
    passages: Annotated[int, typer.Option(help="Passages per question, best first.")] = 5,
    judge: Annotated[
        str, typer.Option(help="Entailment: lexical (shared words, for tests), nli (a local model) or llm.")
    ] = "lexical",
    judge_model: Annotated[
        str | None, typer.Option(help="nli: a cross-encoder, name or folder; llm: a LiteLLM model.")
    ] = None,
    judge_base_url: Annotated[str | None, typer.Option(help="Server of the judge llm.")] = None,
    attempts: Annotated[int, typer.Option(help="Calls per question at most.")] = 3,
    framework: Annotated[str, typer.Option(help="plain: a writer and an editor.")] = "plain",
    policy: PolicyOption = "pacer,fixed:*",
    backend: BackendOption = "litellm",
    models: ModelsOption = "",
    base_url: BaseUrlOption = None,
    temperature: Annotated[float, typer.Option(help="Of the models.")] = 0.0,
    max_tokens: Annotated[int, typer.Option(help="Completion limit of one call.")] = 600,
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
    """ASQA as ALCE runs it: long answers to ambiguous questions, every sentence citing retrieved passages.

    Reports the share of short answers found, citation recall and citation precision; the reward is the share found.
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
        passages=passages,
        judge=judge,
        judge_model=judge_model,
        judge_base_url=judge_base_url,
        attempts=attempts,
    )
    pool = candidates(options.models, backend, power_w, base_url)
    title = f"ASQA {'sample' if data is None else data}, {{tasks}} tasks, {backend}, seed {seed}"
    result = execute(lambda progress: run(Asqa(options), pool, progress), title, as_json)
    if not as_json:
        for name, means in quality(result.path).items():
            typer.echo(f"{name}: " + ", ".join(f"{figure} {100 * mean:.1f} %" for figure, mean in means.items()))
