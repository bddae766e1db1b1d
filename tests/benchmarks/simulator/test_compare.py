from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from steproute.benchmarks.simulator import accuracy
from steproute.benchmarks.simulator.__main__ import chosen, main
from steproute.benchmarks.simulator.compare import FULL, Job, interval, orderings, run, summary
from steproute.benchmarks.simulator.variants import EPSILON, VARIANTS, EpsilonStart
from steproute.errors import ConfigError
from steproute.policies import make_policy

RUN = {"quality": 0.5, "energy_j": 1.0, "seconds": 1.0, "calls": 1.0}


def runs(*qualities: float, energy: float = 1.0) -> list[dict[str, float]]:
    return [{**RUN, "quality": quality, "energy_j": energy} for quality in qualities]


def test_a_seed_is_a_result():
    pytest.importorskip("xgboost", reason="needs the extra trees")
    job = Job(5, FULL, tasks=16, warmup=4)
    assert run(job) == run(job)


def test_intervals_by_hand():
    found = interval([1.0, 2.0, 3.0])
    assert found["mean"] == 2.0
    assert found["sd"] == pytest.approx(1.0)
    assert found["ci95"] == pytest.approx(4.303 / 3**0.5, rel=1e-3)


def test_claims_are_decided_seed_by_seed():
    found = {
        FULL: runs(0.8, 0.9, 0.7),
        "structured only": runs(0.7, 0.8, 0.6),
        "semantic only": runs(0.8, 0.9, 0.9),
        "plain average": runs(0.79, 0.99, 0.5),
        "": [{"structured": 0.3, "average": 0.2, "semantic": 0.1, "meta": 0.1, "constant": 1.0}] * 3,
    }
    verdicts = {claim["claim"]: claim["verdict"] for claim in orderings(found)}
    over = {
        claim["claim"]: claim["over_budget"]
        for claim in orderings({FULL: runs(1.0), "naive ratio": runs(0.5, energy=7001)})
    }
    assert over == {"quality: full > naive ratio": True}
    (alone,) = orderings({FULL: runs(1.0), "naive ratio": runs(0.5)})
    assert (alone["difference"]["mean"], alone["verdict"]) == (0.5, "not decided")
    assert verdicts["quality: full > structured only"] == "holds"
    assert verdicts["quality: full > semantic only"] == "does not hold"
    assert verdicts["quality: full > plain average"] == "not decided"
    assert verdicts["MAE: average < structured"] == "holds"
    assert verdicts["MAE: meta < semantic"] == "does not hold"


def test_feasible_means_on_average():
    rows = summary({FULL: [*runs(0.5, energy=6000), *runs(0.5, energy=7900)], "x": runs(0.5, energy=7100)})["routing"]
    assert [(row["variant"], row["feasible"], row["feasible_seeds"]) for row in rows] == [
        (FULL, True, 0.5),
        ("x", False, 0.0),
    ]


def test_every_variant_differs_from_the_full_one_in_what_it_is_named_for():
    pytest.importorskip("xgboost", reason="needs the extra trees")
    made = {name: variant.router(0) for name, variant in VARIANTS.items()}
    full = made[FULL]
    assert full.estimator.config.path == "meta"
    assert full.policy.epsilon == EPSILON
    assert [made[name].estimator.config.path for name in ("structured only", "semantic only", "plain average")] == [
        "structured",
        "semantic",
        "average",
    ]
    assert not hasattr(made["no predictor"].estimator, "trainer")
    assert not made["no queue penalty"].policy.config.queue_penalty
    assert not made["no budget penalty"].policy.config.budget_penalty
    assert made["naive ratio"].policy.name == "naive-ratio"
    assert made["naive ratio"].estimator.config.path == "meta"


def test_exploration_of_a_policy_that_has_none_of_its_own():
    start = EpsilonStart(make_policy("cheapest"), epsilon=0.5, decay=0.5)
    start.learn(object())
    assert start.epsilon == 0.25


def test_the_accuracy_is_measured_on_other_tasks(monkeypatch):
    pytest.importorskip("xgboost", reason="needs the extra trees")
    seen = {}
    fit = accuracy.DualPath.fit

    def spy(rows, *args, **more):
        seen["tasks"] = {row.task for row in rows}
        return fit(rows, *args, **more)

    monkeypatch.setattr(accuracy.DualPath, "fit", spy)
    found = accuracy.mean_absolute_errors(3, 30)
    assert seen["tasks"] == {f"s3-t{i}" for i in range(18)}
    assert set(found) == {"structured", "semantic", "average", "meta", "constant"}
    assert all(np.isfinite(value) for value in found.values())


def test_names_of_variants():
    assert chosen("mae,fixed alpha-3b") == ["", "fixed alpha-3b"]
    assert chosen("")[:2] == ["", FULL]
    with pytest.raises(ConfigError, match="only: unknown name 'nonsense'"):
        chosen("nonsense")


def test_the_command():
    import typer

    app = typer.Typer()
    app.command()(main)
    arguments = ["--seeds", "2", "--tasks", "30", "--warmup", "10", "--only", "fixed alpha-3b,no predictor"]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert [row["variant"] for row in found["routing"]] == ["fixed alpha-3b", "no predictor"]
    assert set(found["routing"][0]["quality"]) == {"mean", "sd", "ci95"}
    told = CliRunner().invoke(app, arguments).output
    assert "fixed alpha-3b" in told
    assert "One seed" not in told
    assert "One seed gives no interval" in CliRunner().invoke(app, ["--seeds", "1", *arguments[2:]]).output
    assert CliRunner().invoke(app, ["--tasks", "30", "--warmup", "30"]).exit_code == 2
