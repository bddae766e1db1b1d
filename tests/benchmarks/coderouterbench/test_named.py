"""Which policies a replay runs, and that each learns there what it learns in a router."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from steproute.benchmarks.coderouterbench import OutcomeTable, ReplaySettings, replay
from steproute.benchmarks.coderouterbench.cli import app
from steproute.benchmarks.coderouterbench.named import NO_PROMPTS, named_policies
from steproute.benchmarks.coderouterbench.replay import Stream
from steproute.errors import ConfigError
from steproute.policies import policy_names


def table(prompts: bool = True, n: int = 120) -> OutcomeTable:
    """`b` is right, `a` is cheap; the last of three is wrong and dear."""
    tasks = [f"t{i}" for i in range(n)]
    scores = np.tile([0.0, 1.0, 0.0], (n, 1))
    scores[::10] = 0.0
    return OutcomeTable(
        tasks,
        ["a", "b", "c: odd/name"],
        ["d", "e"] * (n // 2),
        scores,
        np.tile([0.001, 0.01, 0.1], (n, 1)),
        {task: f"question {task}" for task in tasks} if prompts else {},
    )


def folder(path: Path, prompts: bool) -> Path:
    path.mkdir()
    rows = [f"t{i},d,{m},{float(m == 'b')},0.01" for i in range(12) for m in "ab"]
    (path / "x.csv").write_text("task_id,dimension,model,score,cost_usd\n" + "\n".join(rows) + "\n")
    (path / "tasks.jsonl").write_text(
        "\n".join(json.dumps({"task_id": f"t{i}", **({"prompt": "p"} if prompts else {})}) for i in range(12))
    )
    return path


OFFLINE = [name for name in policy_names() if name not in ("fixed", "llm")]


@pytest.mark.parametrize("prompts", [True, False])
def test_every_policy_runs_on_any_table_of_the_form(prompts: bool) -> None:
    data = table(prompts)
    named = named_policies(",".join(["fixed:*", *OFFLINE]), data)
    assert len(named) == 3 + len(OFFLINE)
    assert [item.label for item in named if item.note == NO_PROMPTS] == ([] if prompts else ["knn"])
    assert [item.label for item in named if item.note.startswith("memory")] == ([] if prompts else ["acrouter"])
    for item in named:
        if item.note != NO_PROMPTS:
            (got,) = replay(data, item.spec, [1], ReplaySettings())
            assert 0 <= got.avg_perf <= 90.0 + 1e-9
            assert got.calls_per_task == 1


@pytest.mark.parametrize("name", ["progrouter", "task-level", "pacer", "thompson"])
def test_a_policy_that_learns_finds_the_only_model_that_works(name: str) -> None:
    got = [run.avg_perf for run in replay(table(n=400), name, range(5), ReplaySettings())]
    assert np.mean(got) > 75  # always b: 90


def test_the_naive_ratio_goes_by_price() -> None:
    data = table()
    data.scores[:, 0] = 0.2
    (got,) = replay(data, "naive-ratio", [0], ReplaySettings())
    assert got.avg_perf == pytest.approx(20, abs=3)  # a gains a fifth at a tenth of b's price


def test_trees_are_fitted_in_line_so_that_a_seed_is_a_result() -> None:
    pytest.importorskip("xgboost", reason="needs the extra trees")
    stream = Stream(table(), "progrouter:meta", 3, ReplaySettings())
    first = stream.run()
    assert stream.estimator.trainer.fits > 0
    assert stream.estimator.trainer.config.background is False
    assert Stream(table(), "progrouter:meta", 3, ReplaySettings()).run().cum_reg == first.cum_reg


def test_llm_needs_prompts_first_and_then_someone_to_ask(tmp_path: Path) -> None:
    (found,) = named_policies("llm", table(prompts=False))
    assert found.note == NO_PROMPTS
    with pytest.raises(ConfigError, match="policy llm: backend and model"):
        named_policies("random,llm", table())
    line = ["--data", str(folder(tmp_path / "np", prompts=False)), "--policy", "llm,acrouter", "--seeds", "2"]
    rows = json.loads(CliRunner().invoke(app, [*line, "--json"]).stdout)
    assert rows[0]["avg_perf"] is None
    assert rows[0]["note"] == "n/a (no prompts)"
    assert rows[1]["note"] == "memory: n/a (no prompts)"
    assert rows[1]["avg_perf"]["mean"] >= 0
    shown = CliRunner().invoke(app, line).stdout
    assert "acrouter: memory: n/a (no prompts)" in shown


def test_a_policy_with_settings_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "bold.yaml"
    file.write_text("{name: epsilon-greedy, epsilon: 0.0}")
    (found,) = named_policies(str(file), table())
    assert (found.label, found.spec) == ("bold", {"name": "epsilon-greedy", "epsilon": 0.0})
    file.write_text("{name: epsilon-greedy, epsilonn: 0.0}")
    with pytest.raises(ConfigError, match=r"epsilonn.*did you mean 'epsilon'"):
        named_policies(str(file), table())
    file.write_text("- epsilon-greedy")
    with pytest.raises(ConfigError, match="needed: a mapping with `name`"):
        named_policies(str(file), table())
    file.write_text("{name: [")
    with pytest.raises(ConfigError, match="is no YAML or JSON"):
        named_policies(str(file), table())
    file.write_text("{name: epsilon-greedy, epsilon: 0.1, epsilon: 0.9}")
    with pytest.raises(ConfigError, match=r"is no YAML or JSON \('epsilon' is given twice\)"):
        named_policies(str(file), table())
    with pytest.raises(ConfigError, match="cannot be read"):
        named_policies(str(tmp_path / "none.yaml"), table())


@pytest.mark.parametrize("text", ["", ",", " , "])
def test_no_policy_at_all_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="needed: one name or more"):
        named_policies(text, table())


def test_verdicts_are_judged_before_and_after(tmp_path: Path) -> None:
    n = 1500
    rng = np.random.default_rng(0)
    scores = (rng.random((n, 2)) < [0.5, 0.6]).astype(float)
    data = OutcomeTable([f"t{i}" for i in range(n)], ["a", "b"], ["d"] * n, scores, np.full((n, 2), 0.001))
    (exact,) = replay(data, "cascade", [0], ReplaySettings(verifier=0.0))
    (noisy,) = replay(data, "cascade", [0], ReplaySettings(verifier=0.2))
    (single,) = replay(data, "cascade", [0], ReplaySettings())
    assert single.evidence is None
    assert exact.evidence is not None
    assert exact.evidence.face_value.brier == 0.0
    assert exact.evidence.calibrated.brier < 0.01
    assert noisy.evidence is not None
    # a verdict taken for the truth is wrong one time in five; learnt, it costs .8·.2² + .2·.8² = .16
    assert noisy.evidence.face_value.brier == pytest.approx(0.2, abs=0.04)
    assert noisy.evidence.calibrated.brier == pytest.approx(0.16, abs=0.03)
    assert noisy.evidence.calibrated.ece < noisy.evidence.face_value.ece - 0.1


def test_verdicts_are_shown(tmp_path: Path) -> None:
    line = ["--data", str(folder(tmp_path / "v", prompts=False)), "--policy", "cascade,random", "--seeds", "2"]
    rows = json.loads(CliRunner().invoke(app, [*line, "--verifier", "exact", "--json"]).stdout)
    assert set(rows[0]["evidence"]) == {"verdicts", "brier_before", "brier_after", "ece_before", "ece_after"}
    assert rows[0]["evidence"]["brier_before"]["mean"] == 0.0
    assert "evidence" not in rows[1]
    assert "taken for the truth → as learnt" in CliRunner().invoke(app, [*line, "--verifier", "exact"]).stdout
