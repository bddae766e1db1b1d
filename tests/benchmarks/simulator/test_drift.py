"""The drift and credit studies: recovery by hand, and that small runs go through."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from steproute.benchmarks.simulator import credit, degraded, drift


def test_recovery_by_hand() -> None:
    curve = np.concatenate([np.full(100, 0.1), np.full(30, 0.5), np.full(120, 0.1)])
    # a window of 50 from task s on holds 30 - s bad ones: .1 + .4·(30 - s)/50 ≤ .15 from s = 23.75 on
    assert drift.recovery(curve, 100, 0.1, 0.05) == 24.0
    assert drift.recovery(curve, 100, 0.1, -0.01) == float("inf")
    runs = np.tile(curve, (4, 1))
    assert drift.interval(runs, 100, 0.5, 0.0, draws=50) == (24.0, 24.0, 24.0)
    assert drift.interval(runs, 100, 0.1, 0.5, draws=50) == (24.0, 24.0, 24.0)


def test_regret_is_exact_and_seeded() -> None:
    one, two = (drift.regrets({}, 3, 60, 20, True) for _ in range(2))
    assert (one == two).all()
    assert (one >= 0).all()
    assert one[:20].mean() > one[40:60].mean()  # it learns


@pytest.mark.parametrize("host", credit.HOSTS)
def test_every_host_and_rule_plays(host: str) -> None:
    for rule in credit.RULES:
        solved, calls = credit.outcomes(host, rule, 0, 6)
        assert 0 <= solved <= 1
        assert 2 < calls <= 14


def test_a_model_that_gets_worse_makes_its_tasks_worth_less() -> None:
    calm, worse = (degraded.values(degraded.BEST_BEFORE, 1, 20, 20, drifts) for drifts in (False, True))
    assert (calm[:20] == worse[:20]).all()
    assert calm[20:].mean() > worse[20:].mean() + 0.1


def test_wrong_names_are_refused() -> None:
    import typer

    for module, option in ((drift, "--only"), (credit, "--host")):
        app = typer.Typer()
        app.command()(module.main)
        done = CliRunner().invoke(app, [option, "nobody"])
        assert done.exit_code == 2
