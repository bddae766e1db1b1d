"""`python -m steproute.benchmarks.simulator`: the predictor's accuracy and ProgRouter against its ablations."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

from steproute.benchmarks.simulator.compare import Job, compare, summary
from steproute.benchmarks.simulator.variants import VARIANTS
from steproute.benchmarks.statistics import ONE_SEED
from steproute.errors import ConfigError, unknown_name


def main(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 20,
    seed_base: Annotated[int, typer.Option(min=0, help="The first seed; 1000-1002 were used for calibration.")] = 0,
    tasks: Annotated[int, typer.Option(min=30, help="Tasks per run.")] = 240,
    warmup: Annotated[int, typer.Option(min=1, help="Tasks that count as cold start.")] = 100,
    only: Annotated[
        str, typer.Option(help="Comma-separated variants, or parts of their names; `mae` = accuracy.")
    ] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Play the simulated workload and print means with 95 % intervals over seeds."""
    if warmup >= tasks:
        raise typer.BadParameter(f"warmup: seen {warmup}; allowed: less than tasks ({tasks})")
    try:
        names = chosen(only)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    todo = [Job(seed, name, tasks, warmup) for seed in range(seed_base, seed_base + seeds) for name in names]
    found = summary(compare(todo, jobs))
    if as_json:
        json.dump(
            {"seeds": seeds, "seed_base": seed_base, "tasks": tasks, "warmup": warmup, **found}, sys.stdout, indent=1
        )
        sys.stdout.write("\n")
    else:
        show(found)
        if seeds == 1:
            Console().print(ONE_SEED, style="dim", highlight=False)


def chosen(only: str) -> list[str]:
    """Names of variants; the empty name stands for the accuracy.

    Raises:
        ConfigError: a part matches nothing.
    """
    known = ["", *VARIANTS]
    if not only:
        return known
    names: list[str] = []
    for part in (item.strip() for item in only.split(",")):
        matching = [""] if part == "mae" else [name for name in VARIANTS if part and part in name]
        if not matching:
            raise ConfigError(unknown_name("only", part, ["mae", *VARIANTS]))
        names += [name for name in matching if name not in names]
    return names


def show(found: dict[str, Any]) -> None:
    """Print the tables."""
    console = Console(width=max(Console().width, 140))
    if found["mae"]:
        table = Table("path", "MAE of the gain", title="Predictor")
        for path, value in found["mae"].items():
            table.add_row(path, _number(value, 4))
        console.print(table)
    if found["routing"]:
        title = f"After warm-up; feasible = at most {found['target_j']:g} J per task on average"
        heads = ("method", "quality %", "J", "feasible", "s", "calls", "small %", "cold: quality %", "J")
        table = Table(*(Column(head, no_wrap=True) for head in heads), title=title, box=SIMPLE, pad_edge=False)
        for row in found["routing"]:
            table.add_row(
                row["variant"],
                _number(row["quality"], 1, 100),
                _number(row["energy_j"], 0),
                f"{'yes' if row['feasible'] else 'no'}, {100 * row['feasible_seeds']:.0f} %",
                _number(row["seconds"], 1),
                _number(row["calls"], 2),
                _number(row["small_share"], 0, 100),
                _number(row["cold_quality"], 1, 100),
                _number(row["cold_energy_j"], 0),
            )
        console.print(table)
    if found["orderings"]:
        table = Table("claim of the paper", "difference", "here", title="Orderings, paired by seed")
        for claim in found["orderings"]:
            over = " (that one is over the budget)" if claim.get("over_budget") else ""
            table.add_row(claim["claim"], _number(claim["difference"], 4), claim["verdict"] + over)
        console.print(table)


def _number(value: dict[str, float], digits: int, scale: float = 1.0) -> str:
    return f"{scale * value['mean']:.{digits}f} ± {scale * value['ci95']:.{digits}f}"


if __name__ == "__main__":
    typer.run(main)
