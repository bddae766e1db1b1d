"""`steproute run routerarena`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from steproute.benchmarks.command import ModelsOption, SeedOption, ValueUsdOption, names
from steproute.benchmarks.pool import candidates
from steproute.benchmarks.routerarena.predictions import load_prompts, predictions, write_submission
from steproute.budget import Budget, Limit
from steproute.router import Router

app = typer.Typer()

LIVE = (
    "steproute run routerarena --data RouterArena/dataset/router_data_10.json --models models.yaml --policy pacer "
    "--name steproute --out RouterArena, then RouterArena's own check, inference and evaluation"
)


@app.command(epilog=f"Example: {LIVE}")
def routerarena(
    data: Annotated[Path, typer.Option(help="router_data_10.json, router_data.json or router_robustness.json.")],
    models: ModelsOption,
    out: Annotated[Path, typer.Option(help="A checkout of RouterArena, or any folder.")],
    name: Annotated[str, typer.Option(help="Of the router, in the files' names.")] = "steproute",
    policy: Annotated[str, typer.Option(help="One policy.")] = "pacer",
    value_usd: ValueUsdOption = None,
    seed: SeedOption = 0,
) -> None:
    """Write RouterArena's prediction and configuration files.

    Names in the pool must be RouterArena's. No model is called here: its own scripts run and grade the predictions.
    """
    pool = candidates(names(models), "litellm")
    budget = Budget(usd=Limit(value=value_usd)) if value_usd is not None else Budget()
    router = Router(pool, budget, policy, seed=seed, idle_timeout=float("inf"))
    made = predictions(load_prompts(data), router)
    for path in write_submission(out, name, made, [model.name for model in pool], "robustness" in data.name):
        typer.echo(path)
    for model, count in Counter(item["prediction"] for item in made).most_common():
        typer.echo(f"{count / len(made):6.1%}  {model}")
