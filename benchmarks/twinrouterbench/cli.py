"""`steproute run twinrouterbench`: starts the harness of a checkout with our router behind its seam."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from steproute.errors import ConfigError

app = typer.Typer()

LIVE = (
    "OPENROUTER_API_KEY=… OPENROUTER_BASE_URL=https://openrouter.ai/api/v1 steproute run twinrouterbench "
    "--checkout ~/TwinRouterBench --policy pacer --out runs/twin --limit 5"
)
FACTORY = "steproute.benchmarks.twinrouterbench:make_router"


@app.command(epilog=f"Live models: {LIVE}")
def twinrouterbench(
    checkout: Annotated[Path, typer.Option(help="A clone of CommonstackAI/TwinRouterBench, with its requirements.")],
    out: Annotated[Path, typer.Option(help="Folder the harness writes to.")],
    policy: Annotated[str, typer.Option(help="One policy.")] = "pacer",
    value_usd: Annotated[float, typer.Option(help="Worth of a dollar, in resolved instances.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Of every random draw.")] = 0,
    limit: Annotated[int | None, typer.Option(help="Only the first so many instances.")] = None,
    instances: Annotated[str, typer.Option(help="Instance ids, comma-separated.")] = "",
    workers: Annotated[int, typer.Option(help="Instances under way at one time.")] = 2,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the harness's command and stop.")] = False,
) -> None:
    """TwinRouterBench's dynamic track, by its own harness (mini-swe-agent, Docker, its pool, prices and cache rules).

    The harness is not on any package index: clone it. It needs Docker and a key for its gateway.
    """
    if not (checkout / "miniswerouter" / "cli.py").is_file():
        raise ConfigError(f"checkout: {checkout} holds no miniswerouter/cli.py; clone CommonstackAI/TwinRouterBench")
    command = [sys.executable, "-m", "miniswerouter.cli", "run", "--router-import", FACTORY]
    for name, value in (("policy", policy), ("value_usd", f"{value_usd:g}"), ("seed", str(seed))):
        command += ["--router-arg", f"{name}={value}"]
    label = f"steproute-{policy}".replace(":", "-")
    command += [
        "--router-label",
        label,
        "--run-id",
        label,
        "--output-dir",
        str(out.resolve()),
        "--workers",
        str(workers),
    ]
    command += ["--limit", str(limit)] if limit is not None else []
    wanted = [item for part in instances.split(",") if (item := part.strip())]
    command += ["--instances", *wanted] if wanted else []
    if dry_run:
        typer.echo(" ".join(command))
        return
    path = os.pathsep.join([str(checkout.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])])
    raise typer.Exit(subprocess.run(command, cwd=checkout, env={**os.environ, "PYTHONPATH": path}).returncode)
