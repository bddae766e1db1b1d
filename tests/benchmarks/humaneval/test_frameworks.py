"""The same team under every framework: same decisions, same bill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steproute.benchmarks.humaneval import HumanEval
from steproute.benchmarks.humaneval.frameworks import FRAMEWORKS
from steproute.benchmarks.humaneval.run import Options

CASSETTES = Path(__file__).parents[3] / "cassettes" / "humaneval"
POLICIES = ["progrouter", "fixed:*", "random", "naive-ratio", "oracle"]
COSTS = ("usd", "seconds", "prompt_tokens", "completion_tokens", "error")
KEPT = ("policy", "task", "step", "role", "model", "visible", "hidden", "q", "regret", "g_after")


def steps(framework: str, out: Path) -> list[dict]:
    HumanEval().run(Options(POLICIES, framework, cassettes=CASSETTES, limit=4, out=out))
    return [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    return steps("plain", tmp_path_factory.mktemp("plain") / "run")


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "plain"])
def test_decisions_and_costs_do_not_depend_on_the_framework(framework: str, plain: list[dict], tmp_path: Path) -> None:
    pytest.importorskip({"ag2": "ag2"}.get(framework, framework))
    routed = steps(framework, tmp_path / "run")
    assert [[row.get(name) for name in KEPT] for row in routed] == [[row.get(name) for name in KEPT] for row in plain]
    for ours, theirs in zip(routed, plain, strict=True):
        for name in () if ours["outcome"] is None else COSTS:
            assert ours["outcome"][name] == theirs["outcome"][name]
        scores = [{c["model"]: c["score"] for c in row["decision"]["candidates"]} for row in (ours, theirs)]
        assert scores[0] == pytest.approx(scores[1])
