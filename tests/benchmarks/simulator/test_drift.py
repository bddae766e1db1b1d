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


def test_the_bar_by_hand() -> None:
    assert drift.old_level(500) == slice(300, 500)
    assert drift.old_level(200) == slice(100, 200)
    runs = np.full((2, 400), 0.2)
    runs[1, 350:] = 0.4  # tasks 151 to 200 after the change
    mean, half = drift.beyond_bar(runs, 200)
    assert mean == pytest.approx((0.2 + 0.4) / 2 - 0.22)
    assert half == pytest.approx(12.71 * 0.1, rel=1e-3)  # Student's t of one degree of freedom, standard error .1


def test_regret_is_exact_and_seeded() -> None:
    one, two = (drift.run("stationary", 3, 60, 20, "fall") for _ in range(2))
    assert (one.regret == two.regret).all()
    assert (one.regret >= 0).all()
    assert one.regret[:20].mean() > one.regret[40:60].mean()  # it learns
    assert one.alarms == 0


def test_scenarios() -> None:
    chances = {name: given[0] for name, given in drift.CHANCES.items()}
    drift.fall(chances, 0, 100)
    assert chances["best"] == pytest.approx(0.45 * 0.88)
    drift.rise(chances, 0, 100)
    assert chances["small"] == pytest.approx(0.9)
    again = {name: given[0] for name, given in drift.CHANCES.items()}
    drift.back(again, 50, 100)
    assert again["best"] == 0.88
    for scenario in drift.SCENARIOS:
        found = drift.run("shiryaev-roberts", 1, 40, 20, scenario).regret
        assert found.shape == (60,)
        assert (found >= 0).all()


def test_who_is_told_of_a_fall_turns_away_at_once() -> None:
    told, plain = (drift.run(name, 2, 150, 25, "fall").regret for name in ("told", "stationary"))
    assert (told[:150] == plain[:150]).all()
    assert told[150:].mean() < plain[150:].mean() / 2


@pytest.mark.parametrize("host", credit.HOSTS)
def test_every_host_and_rule_plays(host: str) -> None:
    for rule in credit.RULES:
        solved, calls = credit.outcomes(host, rule, 0, 6)
        assert 0 <= solved <= 1
        assert 2 < calls <= 14


def test_a_model_that_gets_worse_makes_its_tasks_worth_less() -> None:
    calm, worse = (degraded.run(degraded.BEST_BEFORE, 1, 20, 20, drifts).value for drifts in (False, True))
    assert (calm[:20] == worse[:20]).all()
    assert calm[20:].mean() > worse[20:].mean() + 0.1


def test_wrong_names_are_refused() -> None:
    import typer

    for module, option in ((drift, "--only"), (drift, "--scenario"), (degraded, "--only"), (credit, "--host")):
        app = typer.Typer()
        app.command()(module.main)
        done = CliRunner().invoke(app, [option, "nobody"])
        assert done.exit_code == 2
