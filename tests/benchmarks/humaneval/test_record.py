"""Recording a team's whole tree over real HTTP, stopping, resuming, and running on what was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from servers.base import Reply
from servers.openai_server import OpenAIServer
from servers.scripted_team import BAD, GOOD
from typer.testing import CliRunner

from steproute.benchmarks.humaneval import HumanEval
from steproute.benchmarks.humaneval.problems import Problem
from steproute.benchmarks.humaneval.record import app
from steproute.benchmarks.humaneval.run import Options
from steproute.errors import ConfigError

pytest.importorskip("litellm")


def say(body: dict) -> Reply:
    return Reply(content=GOOD if body["model"] == "big" else BAD)


def test_record_resume_and_run(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-" + "a1" * 20
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    file = tmp_path / "own.jsonl"
    row = {"task_id": problem.id, **{name: getattr(problem, name) for name in ("prompt", "entry_point", "test")}}
    file.write_text(json.dumps({**row, "canonical_solution": problem.canonical_solution}) + "\n")
    recordings = tmp_path / "recordings"
    with OpenAIServer(say) as server:
        line = ["--models", "small=little,large=big", "--base-url", server.base_url]
        line += ["--problems", str(file), "--out", str(recordings)]
        first = CliRunner().invoke(app, line)
        assert first.exit_code == 0, first.output
        # root: 2; after large's pass: a review by each; after small's failure: 2, with the same two states below again,
        # whose requests differ from none seen before
        assert "Own/0: 6 calls, 6 new" in first.output
        asked = len(server.requests)
        again = CliRunner().invoke(app, line)
        assert "Own/0: 6 calls, 0 new" in again.output
        assert len(server.requests) == asked
    (cassette,) = recordings.glob("*.yaml")
    assert cassette.name == "Own_0.yaml"
    assert secret not in cassette.read_text()
    options = Options(
        ["fixed:*", "oracle"],
        "plain",
        cassettes=recordings,
        problems=file,
        models=["small=little", "large=big"],
        out=tmp_path / "run",
    )
    rows = {row["policy"]: row for row in HumanEval().run(options).summary}
    assert rows["fixed:small"]["pass_rate"] == 0
    assert rows["fixed:small"]["calls_per_task"] == 3
    assert rows["fixed:large"]["pass_rate"] == 1
    assert rows["oracle"]["calls_per_task"] == 1


def test_a_server_elsewhere_has_to_be_approved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPROUTE_APPROVAL", str(tmp_path / "approval.yaml"))
    line = ["--models", "small=little,large=big", "--base-url", "https://api.vendor.example/v1", "--out", str(tmp_path)]
    with pytest.raises(ConfigError, match="missing: live paid calls are off"):
        CliRunner().invoke(app, line, catch_exceptions=False)
