"""`steproute run tau2`."""

from __future__ import annotations

from pathlib import Path
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
from steproute.benchmarks.pool import candidates
from steproute.benchmarks.runner import run
from steproute.benchmarks.tau2.run import Options, Tau2

app = typer.Typer()

LIVE = (
    "OPENAI_API_KEY=… steproute run tau2 --domain airline --backend litellm --models "
    'small=openai/gpt-4.1-mini,large=openai/gpt-4.1 --user-model openai/gpt-4.1 --policy "pacer,fixed:*" '
    "--value-usd 0.5 --limit 10 --jobs 4 --out runs/tau2-airline"
)


@app.command(epilog=f"Live models: {LIVE}")
def tau2(
    policy: PolicyOption = "pacer,fixed:*",
    domain: Annotated[str, typer.Option(help="mock, airline, retail, telecom, …")] = "airline",
    split: Annotated[str | None, typer.Option(help="Task split of the domain.")] = None,
    tasks: Annotated[str, typer.Option(help="Task ids, comma-separated; default: all.")] = "",
    checkout: Annotated[
        Path | None, typer.Option(help="A clone of tau2-bench; default: the installed package.")
    ] = None,
    user: Annotated[str, typer.Option(help="Customer, by its name in tau2's registry.")] = "user_simulator",
    user_model: Annotated[str, typer.Option(help="LiteLLM model that plays the customer.")] = "openai/gpt-4.1",
    user_base_url: Annotated[str | None, typer.Option(help="Server of the customer's model.")] = None,
    framework: Annotated[str, typer.Option(help="tau2: its own orchestrator and agent.")] = "tau2",
    backend: BackendOption = "litellm",
    models: ModelsOption = "",
    base_url: BaseUrlOption = None,
    temperature: Annotated[float, typer.Option(help="Of the agent's models.")] = 0.0,
    max_tokens: Annotated[int | None, typer.Option(help="Completion limit of one call.")] = None,
    max_steps: Annotated[int, typer.Option(help="Steps of a conversation.")] = 100,
    progress: Annotated[
        str, typer.Option(help="outlook: chance of success, fitted on recorded airline runs; tools: what steps moved.")
    ] = "outlook",
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
    """Customer service by tau2-bench's real package: its tasks, tools, user simulator and evaluator.

    The agent is tau2's own, with its model chosen anew for every message. Needs `steproute[tau2]` or --checkout.
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
        domain=domain,
        split=split,
        tasks=tuple(names(tasks)),
        checkout=checkout,
        user=user,
        user_model=user_model,
        user_base_url=user_base_url,
        temperature=temperature,
        max_tokens=max_tokens,
        max_steps=max_steps,
        progress=progress,
    )
    pool = candidates(options.models, backend, power_w, base_url)
    title = f"tau2 {domain}, {{tasks}} tasks, {backend}, seed {seed}"
    execute(lambda progress: run(Tau2(options), pool, progress), title, as_json)
