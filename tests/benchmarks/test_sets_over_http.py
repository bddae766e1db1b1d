"""`steproute run mbpp`, `math500`, `asqa` and `humanevalplus` from the command line, over HTTP on loopback."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from servers.base import Reply
from servers.ollama_server import OllamaServer
from servers.openai_server import OpenAIServer
from typer.testing import CliRunner

from steproute.models import Model

MBPP = "```python\ndef odd_square_sum(xs):\n    return sum(x * x for x in xs if x % 2)\n```"
PLUS = {
    "task_id": "HumanEval/0",
    "prompt": 'def odd_square_sum(xs):\n    """ Sum of the squares of the odd ones.\n    >>> odd_square_sum([1, 2])\n    1\n    """\n',
    "entry_point": "odd_square_sum",
    "canonical_solution": "    return sum(x * x for x in xs if x % 2)\n",
    "base_input": [[[1, 2, 3]]],
    "plus_input": [[[-1]]],
    "atol": 0,
}
ASQA = "The Lumen bridge was opened to walkers in 1931 [1]. Trains crossed the Lumen bridge in spring 1934 [2]."


def judged(body: dict[str, Any]) -> Reply:
    """A judge that holds the passage about the bridge alone for support."""
    text = str(body["messages"][-1]["content"])
    return Reply("Yes." if "Title: Lumen bridge" in text.partition("Sentence:")[0] else "No.")


def play(name: str, reply: str, tmp_path: Path, *more: str) -> tuple[dict[str, Any], str]:
    """The one task's row, and what was printed."""
    pytest.importorskip("ollama")
    app = import_module(f"steproute.benchmarks.{name}.cli").app
    with OllamaServer(lambda body: Reply(reply), cold_load_s=0) as server:
        asked = ["--backend", "ollama", "--base-url", server.url, "--models", "small,large", "--policy", "fixed:large"]
        command = [*asked, "--limit", "1", "--out", str(tmp_path / "run"), *more]
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        assert {request.body["model"] for request in server.requests} == {"large"}
    assert done.exit_code == 0
    (row,) = map(json.loads, (tmp_path / "run" / "tasks.jsonl").read_text().splitlines())
    return row, done.output


def test_mbpp(tmp_path: Path) -> None:
    row, shown = play("mbpp", MBPP, tmp_path)
    assert (row["passed"], row["verdict"]) == (True, "passed")
    assert "MBPP sample, 1 tasks" in shown
    assert (tmp_path / "run" / "report.html").is_file()


def test_humanevalplus(tmp_path: Path) -> None:
    (tmp_path / "plus.jsonl").write_text(json.dumps(PLUS) + "\n")
    row, _ = play("humanevalplus", MBPP, tmp_path, "--data", str(tmp_path / "plus.jsonl"))
    assert (row["passed"], row["detail"]) == (True, "2 inputs")


def test_math500(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    row, _ = play("math500", "Adding 4 gives 15, so $x = \\boxed{\\frac{15}{3}}$.", tmp_path)
    assert (row["passed"], row["calls"], row["about"]["domain"]) == (True, 2, "math")


def test_asqa(tmp_path: Path) -> None:
    row, shown = play("asqa", ASQA, tmp_path)
    assert (row["passed"], row["citation_recall"], row["citation_precision"]) == (True, 1.0, 1.0)
    assert "fixed:large: short answers found 100.0 %, citation recall 100.0 %, citation precision 100.0 %" in shown


def test_a_model_as_judge_of_asqa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("litellm")
    monkeypatch.setenv("OPENAI_API_KEY", "none-needed")
    monkeypatch.setattr("steproute.benchmarks.asqa.judges.candidates", lambda *_, **__: [Model("judge", price="free")])
    with OpenAIServer(judged) as server:
        asked = ["--judge", "llm", "--judge-model", "openai/judge", "--judge-base-url", server.base_url]
        row, _ = play("asqa", ASQA, tmp_path, *asked, "--attempts", "1")
        assert {request.body["model"] for request in server.requests} == {"judge"}
    assert (row["passed"], row["citation_recall"], row["citation_precision"]) == (True, 0.5, 0.5)
