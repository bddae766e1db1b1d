from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from steproute import Budget, Limit
from steproute.benchmarks.simulator import targets
from steproute.benchmarks.simulator.targets import CASES, front, held, main


def test_a_target_that_binds_is_held_on_few_tasks():
    free, _ = held(Budget(energy_j=Limit(target=1e9)), 0, 60)
    assert free[0].owed == 0
    unbound = free[0].ratio * 1e9
    bound, played = held(Budget(energy_j=Limit(target=0.92 * unbound)), 0, 300)
    assert bound[0].ratio <= 1.02
    assert len(played.success) == 300


@pytest.mark.parametrize("case", [name for name in CASES if name != "too tight"])
def test_ratios_and_queues_belong_together(case):
    """What was spent beyond a target is in the queue, or was wiped out by tasks that left it unused."""
    tasks = 25
    found, _ = held(CASES[case], 1, tasks)
    for item in found:
        if CASES[case].limits()[item.resource].per == "task":
            assert item.owed >= tasks * (item.ratio - 1) - 1e-6
    assert {item.resource for item in found} == set(CASES[case].limits())


def test_the_command(monkeypatch):
    monkeypatch.setattr(targets, "WORTHS", (0.25, 4.0))
    monkeypatch.setattr(targets, "front", lambda seeds, tasks, warmup: front(seeds, 30, 10))
    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, ["--tasks", "20", "--sweep", "1", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert [item["case"] for item in found["cases"]] == list(CASES)
    assert [item["V"] for item in found["front"]] == [0.25, 4.0]
    assert "spent/target" in CliRunner().invoke(app, ["--tasks", "20", "--sweep", "0"]).output
