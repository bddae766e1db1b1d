"""`steproute replay coderouterbench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from steproute.benchmarks.coderouterbench.table import load_table
from steproute.benchmarks.outcomes.command import (
    DECISION_WEIGHT,
    POLICIES,
    ContextRegexOption,
    JsonOption,
    ModeOption,
    PlotOption,
    PolicyOption,
    PriorOption,
    ProbingOption,
    SeedBaseOption,
    SeedsOption,
    UsdWeightOption,
    VerifierOption,
    replay_table,
)

app = typer.Typer()


@app.command()
def coderouterbench(
    data: Annotated[Path, typer.Option(help="Folder with the results CSV (and models.json, *tasks*.jsonl).")],
    policy: PolicyOption = POLICIES,
    seeds: SeedsOption = 20,
    seed_base: SeedBaseOption = 0,
    mode: ModeOption = "cold",
    prior: PriorOption = None,
    probing: ProbingOption = 0.2,
    context_regex: ContextRegexOption = None,
    verifier: VerifierOption = None,
    usd_weight: UsdWeightOption = DECISION_WEIGHT,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay the tasks in fresh orders; a policy learns only from what it called (bandit feedback).

    Reward is score − 0.1·usd. Regret is against the best single model of each task; every call of a cascade is paid.
    """
    replay_table(
        load_table(data),
        data.name,
        policy,
        seeds=seeds,
        seed_base=seed_base,
        mode=mode,
        prior=prior,
        probing=probing,
        context_regex=context_regex,
        verifier=verifier,
        usd_weight=usd_weight,
        plot=plot,
        as_json=as_json,
    )
