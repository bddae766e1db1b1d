"""The main job on the real recordings, with the network off."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from steproute.benchmarks.humaneval import HumanEval
from steproute.benchmarks.humaneval.models import RECORDED, candidates
from steproute.benchmarks.humaneval.run import Options, expand
from steproute.benchmarks.summary import summarise
from steproute.errors import ConfigError

CASSETTES = Path(__file__).parents[3] / "cassettes" / "humaneval"
POLICIES = ["progrouter", "fixed:*", "random", "naive-ratio", "oracle"]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory):
    out = tmp_path_factory.mktemp("run") / "run"
    return HumanEval().run(Options(POLICIES, framework="plain", cassettes=CASSETTES, limit=5, out=out))


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_policy_meets_the_same_problems(result) -> None:
    rows = lines(result.path / "tasks.jsonl")
    by_policy: dict[str, list[str]] = {}
    for row in rows:
        by_policy.setdefault(row["policy"], []).append(row["task"])
    assert list(by_policy) == expand(POLICIES, RECORDED)
    assert len({tuple(tasks) for tasks in by_policy.values()}) == 1
    assert len(set(by_policy["random"])) == 5


def test_the_oracle_is_a_bound_and_has_no_regret(result) -> None:
    rows = {row["policy"]: row for row in result.summary}
    oracle = rows.pop("oracle")
    assert oracle["step_regret"] == 0
    assert all(row["value"] <= oracle["value"] + 1e-9 for row in rows.values())
    assert all(row["step_regret"] >= 0 for row in rows.values())
    # what the oracle gets is what backward induction promised before its first call
    for step in lines(result.path / "steps.jsonl"):
        if step["policy"] == "oracle":
            chosen = "stop" if step["decision"]["stop"] else step["model"]
            assert step["q"][chosen] == max(step["q"].values())


def test_fixed_policies_call_one_model(result) -> None:
    for row in result.summary:
        if row["policy"].startswith("fixed:"):
            assert row["share"][row["policy"].removeprefix("fixed:")] == 1


def test_seconds_and_tokens_are_the_recorded_ones(result) -> None:
    steps = [s for s in lines(result.path / "steps.jsonl") if s["policy"] == "fixed:qwen2.5-coder-1.5b"]
    tasks = [t for t in lines(result.path / "tasks.jsonl") if t["policy"] == "fixed:qwen2.5-coder-1.5b"]
    assert sum(s["outcome"]["seconds"] for s in steps) == pytest.approx(sum(t["seconds"] for t in tasks))
    assert all(s["outcome"]["seconds"] > 0 and s["outcome"]["completion_tokens"] > 0 for s in steps)
    assert all(s["outcome"]["usd"] == 0 for s in steps)  # local models are free, which is not unknown
    assert all(s["outcome"]["energy_j"] is None for s in steps)  # no meter, no power figure: no joules


def test_a_power_figure_gives_joules_and_says_whose_they_are(tmp_path: Path) -> None:
    options = Options(["fixed:*"], "plain", cassettes=CASSETTES, limit=2, out=tmp_path / "run", power_w=30)
    for row in HumanEval().run(options).summary:
        assert row["energy_j"] == pytest.approx(30 * row["seconds"])
        assert row["energy_source"] == "seconds x 30 W given by the user"


def test_the_same_seed_gives_the_same_run(result, tmp_path: Path) -> None:
    again = HumanEval().run(Options(POLICIES, "plain", cassettes=CASSETTES, limit=5, out=tmp_path / "run"))
    assert again.summary == result.summary


def test_a_run_is_never_overwritten(result) -> None:
    with pytest.raises(ConfigError, match="already holds a run"):
        HumanEval().run(Options(["random"], "plain", cassettes=CASSETTES, limit=1, out=result.path))


def test_an_interrupted_run_goes_on_and_tasks_run_side_by_side(tmp_path: Path) -> None:
    chosen = Options(["fixed:*", "oracle"], "plain", cassettes=CASSETTES, limit=3, out=tmp_path / "run")
    whole = HumanEval().run(chosen)
    rows = (tmp_path / "run" / "tasks.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "tasks.jsonl").write_text("".join(rows[:5]))  # killed after the fifth task
    resumed = HumanEval().run(replace(chosen, resume=True))
    together = HumanEval().run(replace(chosen, out=tmp_path / "together", jobs=3))
    for again in (resumed, together):
        assert [row["policy"] for row in again.summary] == [row["policy"] for row in whole.summary]
        for got, expected in zip(again.summary, whole.summary, strict=True):
            assert got["pass_rate"] == expected["pass_rate"]
            assert got["seconds"] == pytest.approx(expected["seconds"])
            assert got["share"] == expected["share"]
    assert sorted(lines(tmp_path / "run" / "tasks.jsonl"), key=str) == sorted(map(json.loads, rows), key=str)


def test_config_says_how_to_repeat_the_run(result) -> None:
    config = json.loads((result.path / "config.json").read_text())
    assert config["seed"] == 0
    assert config["framework"] == "plain"
    assert len(config["tasks"]) == 5
    assert {"python", "steproute", "pydantic"} <= set(config["versions"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policies": ["progruter"]}, "did you mean 'progrouter'"),
        ({"policies": ["fixed:huge"]}, "unknown name 'huge'"),
        ({"framework": "ag3"}, "did you mean 'ag2'"),
        ({"backend": "casette"}, "did you mean 'cassette'"),
        ({"models": ["smollm2-135m"]}, "needs at least two"),
        ({"policies": []}, "policy: none given"),
        ({"limit": -3}, "limit: seen -3; allowed: a whole number of 1 or more"),
        ({"limit": 0}, "limit: seen 0; allowed: a whole number of 1 or more"),
        ({"seed": -1}, "seed: seen -1; allowed: a whole number of 0 or more"),
        ({"price_of_second": 0.0}, "price_of_second: seen 0; allowed: a finite number above 0"),
        ({"price_of_second": math.nan}, "price_of_second: seen nan"),
        ({"power_w": -5.0}, "power_w: seen -5; allowed: a finite number above 0"),
    ],
)
def test_a_wrong_setting_names_the_right_one(change: dict, message: str, tmp_path: Path) -> None:
    settings = {"policies": ["random"], "framework": "plain", "cassettes": CASSETTES, "limit": 1, **change}
    with pytest.raises(ConfigError, match=message):
        HumanEval().run(Options(**settings, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "problems: cannot read .*own.jsonl: No such file"),
        ('\n{"task_id":', "own.jsonl line 2: no JSON"),
        ("[1]", r"own.jsonl line 1: seen \[1\]; allowed: a JSON object with task_id"),
        ('{"task_id": "Own/0"}', "own.jsonl line 1: field 'prompt' is missing"),
        ('{"task_id": 7}', "own.jsonl line 1: field 'task_id': seen 7; allowed: text"),
    ],
)
def test_a_problem_file_that_cannot_be_used_says_where(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        HumanEval().run(Options(["random"], "plain", problems=path, cassettes=CASSETTES, out=tmp_path / "run"))


def test_no_recordings_says_how_to_get_some(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="steproute record humaneval"):
        HumanEval().run(Options(["random"], "plain", cassettes=tmp_path, out=tmp_path / "run"))


def test_a_request_that_was_never_recorded_names_problem_and_model(tmp_path: Path) -> None:
    options = Options(["random"], "plain", cassettes=CASSETTES, limit=1, models=["tiny", "huge"], out=tmp_path / "run")
    with pytest.raises(Exception, match=r"HumanEval/\d+.*tiny") as caught:
        HumanEval().run(options)
    assert type(caught.value).__name__ == "CassetteMismatch"


def test_summary_by_hand() -> None:
    row = {"tokens": 10, "usd": 0.0, "energy_j": None, "visible_ok": True}
    rows = [
        {**row, "policy": "p", "passed": True, "models": ["a"], "seconds": 2.0, "regret": 0.2, "choices": 1},
        {**row, "policy": "p", "passed": False, "models": ["a", "b", "b"], "seconds": 6.0, "regret": 0.4, "choices": 3},
    ]
    pool = candidates(["a", "b"])
    (got,) = summarise(rows, pool, 0.01, None)
    assert got["pass_rate"] == 0.5
    assert got["seconds"] == 4
    assert got["calls_per_task"] == 2
    assert got["share"] == {"a": 0.5, "b": 0.5}
    assert got["step_regret"] == pytest.approx((0.2 + 3 * 0.4) / 4)
    assert got["visible_pass_hidden_fail"] == 0.5
    assert got["value"] == pytest.approx(0.5 - 0.04)
    assert got["pass_rate_ci95"] == pytest.approx([0.0945, 0.9055], abs=1e-4)  # Wilson, 1 of 2
