"""`steproute run llmrouterbench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from steproute.benchmarks.command import SeedOption, ValueUsdOption, names
from steproute.benchmarks.llmrouterbench.results import load_results, route, write_results
from steproute.benchmarks.pool import candidates
from steproute.budget import Budget, Limit
from steproute.models import Model
from steproute.router import Router

app = typer.Typer()

LIVE = (
    "steproute run llmrouterbench --results LLMRouterBench/results/bench --models models.yaml --policy pacer,fixed:gpt-5 "
    "--value-usd 1 --out LLMRouterBench/results/bench"
)


@app.command(epilog=f"Example: {LIVE}")
def llmrouterbench(
    results: Annotated[Path, typer.Option(help="The benchmark's results/bench.")],
    out: Annotated[Path, typer.Option(help="Folder for the router's result files; may be the same.")],
    models: Annotated[
        str,
        typer.Option(help="The benchmark's model names, comma-separated, or a YAML file with prices; default: all."),
    ] = "",
    policy: Annotated[str, typer.Option(help="Policies, comma-separated.")] = "pacer",
    value_usd: ValueUsdOption = None,
    seed: SeedOption = 0,
) -> None:
    """Route LLMRouterBench's recorded answers and write each policy's run as one more model's result files.

    No model is called: scores and costs are the recorded ones of the models chosen, learnt as bandit feedback.
    """
    listed = names(models)
    by_file = len(listed) == 1 and listed[0].endswith((".yaml", ".yml"))
    priced = candidates(listed, "litellm") if by_file else None
    wanted = [model.name for model in priced] if priced is not None else listed
    found = load_results(results, wanted)
    pool = priced or [Model(name, price="unknown") for name in dict.fromkeys(item.model for item in found)]
    budget = Budget(usd=Limit(value=value_usd)) if value_usd is not None else Budget()
    for name in names(policy):
        routed = route(found, Router(pool, budget, name, seed=seed, idle_timeout=float("inf")), seed)
        files = write_results(out, f"steproute-{name}".replace(":", "-").replace("/", "-"), routed)
        records = [record for item in routed for record in item.records.values()]
        score = sum(float(record.get("score") or 0) for record in records) / len(records)
        usd = sum(float(record.get("cost") or 0) for record in records)
        typer.echo(f"{name}: mean score {score:.4f}, {usd:.4f} USD, {len(records)} prompts, {len(files)} files")
