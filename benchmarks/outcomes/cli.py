"""`steproute replay plain`, `routellm`, `routerarena` and `swebench`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from steproute.benchmarks.coderouterbench.table import OutcomeTable
from steproute.benchmarks.outcomes.cells import usd_per_call
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
from steproute.benchmarks.outcomes.readers import read_plain, read_routellm, read_routerarena, read_swebench

Reader = Callable[[Path, Mapping[str, float]], OutcomeTable]


def _command(name: str, read: Reader, what: str) -> typer.Typer:
    """The command that replays tables of one format."""
    app = typer.Typer()

    @app.command(name=name, help=f"{what}\n\nReward is score − 0.1·usd; a policy learns only from what it called.")
    def replay(
        data: Annotated[Path, typer.Option(help="The table's file or folder, as it is published.")],
        usd: Annotated[
            str, typer.Option(help="USD of one call, MODEL=USD comma-separated, where the table has no costs.")
        ] = "",
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
        replay_table(
            read(data, usd_per_call(usd)),
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

    return app


plain = _command(
    "plain",
    read_plain,
    "Replay a CSV or JSON Lines file: one row per task and model (task_id, model, score, cost_usd, dimension), or one per "
    "task with a column of scores per model (and NAME_usd).",
)
routellm = _command(
    "routellm", read_routellm, "Replay RouteLLM's MMLU files (a folder of mmlu_*.csv) or its gsm8k_responses.csv."
)
routerarena = _command(
    "routerarena", read_routerarena, "Replay RouterArena's cached_results: a folder with a .jsonl file per model."
)
swebench = _command(
    "swebench",
    read_swebench,
    "Replay SWE-bench results per instance: a folder with a submission's folder or a harness report per model.",
)
