"""What the commands `steproute replay TABLE` share: their options, the replay itself and the tables they print."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from steproute.benchmarks.coderouterbench.named import NO_PROMPTS, Named, named_policies
from steproute.benchmarks.coderouterbench.plot import write_plot
from steproute.benchmarks.coderouterbench.replay import Replay, ReplaySettings, replay
from steproute.benchmarks.coderouterbench.table import OutcomeTable, load_prior
from steproute.benchmarks.statistics import ONE_SEED, mean_interval
from steproute.errors import ConfigError, unknown_name

MODES = ("cold", "prior", "probing")
FIGURES = ("avg_perf", "cum_reg", "usd", "perf_per_usd", "calls_per_task")
DECISION_WEIGHT = 2.0
"""What a dollar is worth to a policy unless said: more than the published reward's 0.1, under which $34 for a table's
worth of calls costs as much as three tasks. Chosen on the orders of seeds 1000–1039; the reward reported stays the
published one."""
POLICIES = "pacer,epsilon-greedy,linucb,thompson,dimension-best,fixed:*,random,oracle"

PolicyOption = Annotated[
    str,
    typer.Option(
        help="Policies, comma-separated; `fixed:*` = one per model, `my.yaml` = a file with `name` and settings."
    ),
]
SeedsOption = Annotated[int, typer.Option(min=1, help="How many orders of the tasks.")]
SeedBaseOption = Annotated[int, typer.Option(min=0, help="First seed.")]
ModeOption = Annotated[str, typer.Option(help="cold, prior or probing.")]
PriorOption = Annotated[Path | None, typer.Option(help="JSON with published means, for --mode prior.")]
ProbingOption = Annotated[float, typer.Option(help="Share shown with all scores first, for --mode probing.")]
ContextRegexOption = Annotated[str | None, typer.Option(help="Finds the source group in a task id.")]
VerifierOption = Annotated[str | None, typer.Option(help="exact, or the share of flipped verdicts.")]
UsdWeightOption = Annotated[
    float, typer.Option(help="Worth of a dollar to the policy, in units of score; the reward reported keeps 0.1.")
]
PlotOption = Annotated[Path | None, typer.Option(help="SVG file for regret over time.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]


def replay_table(
    table: OutcomeTable,
    title: str,
    policy: str,
    *,
    seeds: int,
    seed_base: int,
    mode: str,
    prior: Path | None,
    probing: float,
    context_regex: str | None,
    verifier: str | None,
    usd_weight: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Replay the policies on a table and print what came of it; the arguments are the options of the same names.

    Raises:
        ConfigError: an option cannot be used; names it, what was seen and what is allowed.
    """
    if mode not in MODES:
        raise ConfigError(unknown_name("mode", mode, MODES))
    if (prior is None) == (mode == "prior"):
        raise ConfigError("prior: --mode prior and --prior FILE go together")
    if plot is not None and not plot.parent.is_dir():
        raise ConfigError(f"plot: no folder {plot.parent}")
    settings = ReplaySettings(
        mode=cast(Literal["cold", "prior", "probing"], mode),
        usd_weight=usd_weight,
        context_regex=context_regex,
        prior={} if prior is None else load_prior(prior, table.models, set(table.dimensions)),
        probing=probing,
        verifier=_flip_rate(verifier),
    )
    rows, curves = _run(table, named_policies(policy, table), range(seed_base, seed_base + seeds), settings)
    if plot is not None:
        write_plot(plot, curves, f"{len(table.tasks)} tasks, {mode}, {seeds} orders")
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    console = Console()
    console.width = max(console.width, 140)
    heading = f"{title}: {len(table.tasks)} tasks, {len(table.models)} models, {mode}, seeds {seed_base}–{seed_base + seeds - 1}"
    console.print(_table(rows, heading))
    one = ONE_SEED if seeds == 1 else "mean ± sd over orders \\[half the 95 % interval of the mean]"
    console.print(one, style="dim")
    for row in rows:
        if row.get("note", NO_PROMPTS) != NO_PROMPTS:
            console.print(f"{row['policy']}: {row['note']}", style="dim", highlight=False)
    if any("evidence" in row for row in rows):
        console.print(_verdicts(rows))
    if plot is not None:
        console.print(f"plot  {plot}", highlight=False)


def _run(
    table: OutcomeTable, policies: Sequence[Named], seeds: Sequence[int], settings: ReplaySettings
) -> tuple[list[dict[str, Any]], dict[str, list[Replay]]]:
    rows: list[dict[str, Any]] = []
    curves: dict[str, list[Replay]] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        line = bar.add_task("", total=len(policies) * len(seeds))
        for number, named in enumerate(policies):
            bar.update(line, description=named.label, completed=number * len(seeds))
            row: dict[str, Any] = {"policy": named.label, "mode": settings.mode}
            if named.note:
                row["note"] = named.note
            if named.note == NO_PROMPTS:
                rows.append({**row, **dict.fromkeys(FIGURES)})
                continue
            runs = replay(table, named.spec, seeds, settings, lambda _: bar.advance(line))
            curves[named.label] = runs
            row |= {figure: _interval(float(getattr(run, figure)) for run in runs) for figure in FIGURES}
            if all(run.evidence for run in runs):
                row["evidence"] = _evidence(runs)
            rows.append(row)
    return rows, curves


def _interval(values: Iterable[float]) -> dict[str, Any]:
    mean, spread, half = mean_interval(list(values))
    return {"mean": mean, "sd": spread, "ci95": [mean - half, mean + half]}


def _evidence(runs: Sequence[Replay]) -> dict[str, Any]:
    """Brier and ECE of the verdicts before (a pass = 1) and after (weighed and calibrated), on held-out tasks."""
    reports = [run.evidence for run in runs if run.evidence is not None]
    return {
        "verdicts": _interval(report.tasks for report in reports),
        "brier_before": _interval(report.face_value.brier for report in reports),
        "brier_after": _interval(report.calibrated.brier for report in reports),
        "ece_before": _interval(report.face_value.ece for report in reports),
        "ece_after": _interval(report.calibrated.ece for report in reports),
    }


def _flip_rate(verifier: str | None) -> float | None:
    if verifier is None or verifier == "exact":
        return None if verifier is None else 0.0
    try:
        return float(verifier)
    except ValueError:
        raise ConfigError(f"verifier: seen {verifier!r}; allowed: exact, or a flip rate in [0, 0.5)") from None


def _table(rows: Sequence[dict[str, Any]], title: str) -> Table:
    out = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
    for name in ("policy", "AvgPerf", "CumReg", "USD", "Perf/$", "calls"):
        out.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    for row in rows:
        if row.get("note") == NO_PROMPTS:
            out.add_row(row["policy"], NO_PROMPTS)
            continue
        cells = []
        for figure, digits in zip(FIGURES, (2, 1, 2, 2, 2), strict=True):
            got = row[figure]
            half = (got["ci95"][1] - got["ci95"][0]) / 2
            cells.append(f"{got['mean']:.{digits}f} ±{got['sd']:.{digits}f} [{half:.{digits}f}]")
        out.add_row(row["policy"], *cells)
    return out


def _verdicts(rows: Sequence[dict[str, Any]]) -> Table:
    out = Table(
        title="what the verifier's verdicts say, on held-out tasks (0 = perfect): taken for the truth → as learnt",
        box=SIMPLE_HEAD,
        pad_edge=False,
        title_justify="left",
    )
    for name in ("policy", "verdicts", "Brier", "ECE"):
        out.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    for row in rows:
        if "evidence" in row:
            found = {name: value["mean"] for name, value in row["evidence"].items()}
            out.add_row(
                row["policy"],
                f"{found['verdicts']:.0f}",
                *(f"{found[f'{name}_before']:.3f} → {found[f'{name}_after']:.3f}" for name in ("brier", "ece")),
            )
    return out
