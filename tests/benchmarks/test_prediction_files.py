"""RouterArena's and LLMRouterBench's files, in their formats (their repositories are on no package index)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steproute.benchmarks.llmrouterbench import load_results, route, write_results
from steproute.benchmarks.llmrouterbench.cli import app as llmrouterbench
from steproute.benchmarks.routerarena import load_prompts, predictions, write_submission
from steproute.benchmarks.routerarena.cli import app as routerarena
from steproute.errors import ConfigError
from steproute.models import Model, Price
from steproute.router import Router

POOL = [Model("gpt-4o-mini", price=Price(input=0.15, output=0.6)), Model("gpt-4o", price=Price(input=2.5, output=10))]

# --- RouterArena ---------------------------------------------------------------------------------------------


@pytest.fixture
def arena(tmp_path: Path) -> Path:
    path = tmp_path / "router_data_10.json"
    rows = [{"global index": f"MMLU_{i}", "prompt": "raw", "prompt_formatted": f"Question {i}?"} for i in range(5)]
    path.write_text(json.dumps([*rows, {"global index": "MMLU_9", "prompt": "only raw"}, {"prompt": "no index"}]))
    return path


def test_a_submission_has_the_fields_routerarena_checks(arena: Path, tmp_path: Path) -> None:
    prompts = load_prompts(arena)
    made = predictions(prompts, Router(POOL, policy="random", seed=1))
    where, config = write_submission(tmp_path / "arena", "mine", made, [model.name for model in POOL])
    rows = json.loads(where.read_text())
    assert where.relative_to(tmp_path / "arena").as_posix() == "router_inference/predictions/mine.json"
    assert [(row["global index"], row["prompt"]) for row in rows] == prompts
    assert prompts[0] == ("MMLU_0", "Question 0?")
    assert prompts[-1] == ("MMLU_9", "only raw")
    for row in rows:
        assert set(row) == {"global index", "prompt", "prediction", "generated_result", "cost", "accuracy"}
        assert row["prediction"] in {"gpt-4o-mini", "gpt-4o"}
        assert row["generated_result"] is row["cost"] is row["accuracy"] is None
    params = json.loads(config.read_text())["pipeline_params"]
    assert params == {"router_name": "mine", "router_cls_name": "StepRoute", "models": ["gpt-4o-mini", "gpt-4o"]}


def test_the_routerarena_command(arena: Path, tmp_path: Path) -> None:
    words = ["--data", str(arena), "--models", "gpt-4o-mini,gpt-4o", "--out", str(tmp_path), "--policy", "fixed:gpt-4o"]
    done = CliRunner().invoke(routerarena, words, catch_exceptions=False)
    assert "100.0%  gpt-4o" in done.output
    again = CliRunner().invoke(routerarena, [*words[:-1], "fixed:gpt-4o-mini"])
    assert isinstance(again.exception, ConfigError)
    assert "is there already" in str(again.exception)


def test_a_file_that_is_no_data_set_says_so(tmp_path: Path) -> None:
    for text, message in (("{}", "allowed: a list"), ("[{}]", "no entry has"), ("[", "is no JSON")):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_prompts(tmp_path / "x.json")


# --- LLMRouterBench ------------------------------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """Two data sets: the small model is right on `easy`, the large one on both; an old file and a demo are in the way."""
    folder = tmp_path / "results" / "bench"

    def write(dataset: str, model: str, score: float, stamp: str = "20260101_000000", **more: object) -> None:
        path = folder / dataset / "test" / model / f"{stamp}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        records = [
            {
                "index": i,
                "origin_query": f"q{i}",
                "prompt": f"Q: {dataset} {i}",
                "prediction": "4",
                "ground_truth": "4",
                "score": score,
                "prompt_tokens": 15,
                "completion_tokens": 5,
                "cost": 0.001 if model == "gpt-4o-mini" else 0.02,
                "raw_output": "It is 4.",
            }
            for i in range(1, 41)
        ]
        whole = {"dataset_name": dataset, "split": "test", "model_name": model, "records": records, **more}
        path.write_text(json.dumps(whole))

    for dataset in ("easy", "hard"):
        write(dataset, "gpt-4o", 1.0)
        write(dataset, "gpt-4o-mini", float(dataset == "easy"))
    write("easy", "gpt-4o-mini", 0.0, "20250101_000000")
    write("easy", "someone-else", 0.5)
    write("easy", "gpt-4o", 0.0, "20270101_000000", demo=True)
    return folder


def test_the_latest_real_results_are_read(bench: Path) -> None:
    found = load_results(bench, ["gpt-4o-mini", "gpt-4o"])
    assert [(item.dataset, item.model) for item in found] == [
        ("easy", "gpt-4o"),
        ("easy", "gpt-4o-mini"),
        ("hard", "gpt-4o"),
        ("hard", "gpt-4o-mini"),
    ]
    assert [item.records[1]["score"] for item in found] == [1, 1, 1, 0]


def test_a_routers_run_is_one_more_model(bench: Path, tmp_path: Path) -> None:
    found = load_results(bench, ["gpt-4o-mini", "gpt-4o"])
    routed = route(found, Router(POOL, policy="random", seed=3), seed=3)
    paths = write_results(bench, "steproute-random", routed, "20261130_120000")
    assert [path.relative_to(bench).as_posix() for path in paths] == [
        "easy/test/steproute-random/20261130_120000.json",
        "hard/test/steproute-random/20261130_120000.json",
    ]
    hard = json.loads(paths[1].read_text())
    picks = [record["routed_model"] for record in hard["records"]]
    assert hard["performance"] == picks.count("gpt-4o") / 40
    assert hard["cost"] == pytest.approx(0.02 * picks.count("gpt-4o") + 0.001 * picks.count("gpt-4o-mini"))
    assert [record["index"] for record in hard["records"]] == list(range(1, 41))
    assert {item.model for item in load_results(bench)} >= {"steproute-random"}  # reads as any other model
    with pytest.raises(ConfigError, match="is there already"):
        write_results(bench, "steproute-random", routed, "20261130_120000")


def test_a_learning_policy_finds_the_model_of_each_data_set(bench: Path) -> None:
    found = load_results(bench, ["gpt-4o-mini", "gpt-4o"])
    routed = {item.dataset: item for item in route(found, Router(POOL, policy="epsilon-greedy", seed=0), seed=0)}
    hard = [record["score"] for record in routed["hard"].records.values()]
    assert sum(hard) >= 28  # by chance 20


def test_the_llmrouterbench_command(bench: Path, tmp_path: Path) -> None:
    words = ["--results", str(bench), "--out", str(tmp_path / "mine"), "--models", "gpt-4o-mini,gpt-4o"]
    done = CliRunner().invoke(llmrouterbench, [*words, "--policy", "fixed:gpt-4o"], catch_exceptions=False)
    assert "fixed:gpt-4o: mean score 1.0000, 1.6000 USD, 80 prompts, 2 files" in done.output
    with pytest.raises(ConfigError, match="holds no result file"):
        load_results(tmp_path / "nothing")
