"""Every benchmark's `--help` works without its package and shows a complete live command."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import entry_points

import pytest
from typer.main import get_command
from typer.testing import CliRunner

COMMANDS = {
    "humaneval": ("--backend", "--models", "--policy", "--limit"),
    "humanevalplus": ("--data", "--backend", "--models", "--policy", "--limit", "--out"),
    "mbpp": ("--data", "--backend", "--models", "--policy", "--limit", "--out"),
    "math500": ("--data", "--backend", "--models", "--policy", "--limit", "--out"),
    "asqa": ("--data", "--judge", "--backend", "--models", "--policy", "--limit", "--out"),
    "tau2": ("--backend", "--models", "--user-model", "--policy", "--limit", "--out"),
    "swebench": ("--data", "--backend", "--models", "--policy", "--limit", "--out"),
    "twinrouterbench": ("--checkout", "--policy", "--limit", "--out"),
    "routerarena": ("--data", "--models", "--policy", "--name", "--out"),
    "llmrouterbench": ("--results", "--models", "--policy", "--out"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_a_complete_command(name: str) -> None:
    cli = import_module(f"steproute.benchmarks.{name}.cli")
    done = CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "300"}, catch_exceptions=False)
    assert done.exit_code == 0
    assert f"steproute run {name}" in " ".join(done.output.split())
    options = {option for parameter in get_command(cli.app).params for option in parameter.opts}
    shown = set(re.findall(r"--[a-z][a-z-]+", cli.LIVE))
    assert set(COMMANDS[name]) <= shown <= options  # nothing in the example that the command does not have


def test_they_are_found_by_name() -> None:
    points = {point.name: point.value for point in entry_points(group="steproute.run")}
    for name in COMMANDS:
        if name in points:  # an installation from before the command was added does not know it
            assert points[name] == f"steproute.benchmarks.{name}.cli:app"
