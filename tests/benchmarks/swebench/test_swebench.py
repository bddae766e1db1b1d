"""swebench and mini-swe-agent themselves, offline: a toy repository, scripted models, the official parsers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
pytest.importorskip("swebench", reason="needs swebench: make test-swebench")
pytest.importorskip("minisweagent", reason="needs mini-swe-agent: make test-swebench")
if shutil.which("bwrap") is None:
    pytest.skip("needs bubblewrap", allow_module_level=True)

from servers.base import Reply
from servers.openai_server import OpenAIServer
from swebench.harness.utils import get_predictions_from_file
from typer.testing import CliRunner

from steproute.backend import ChatRequest, ChatResponse, Usage
from steproute.benchmarks.runner import run
from steproute.benchmarks.swebench import grade
from steproute.benchmarks.swebench.cli import app
from steproute.benchmarks.swebench.evidence import evidence_of
from steproute.benchmarks.swebench.grade import OFFICIAL, Grade
from steproute.benchmarks.swebench.run import Options, Swebench, write_predictions
from steproute.errors import ConfigError
from steproute.integrations.scripted import ScriptedBackend
from steproute.models import Model, Price
from steproute.testing import routed_cassette

POOL = [
    Model("small", price=Price(input=1, output=2), size_b=1),
    Model("large", price=Price(input=10, output=20), size_b=70),
]
FIX = "sed -i 's#/ 2#// 2#' stats.py"
WRONG = "sed -i 's#/ 2#* 2#' stats.py"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff"


def bash(command: str) -> str:
    return f"THOUGHT: next.\n\n```mswea_bash_command\n{command}\n```"


def plan(*commands: str) -> Callable[[ChatRequest], ChatResponse]:
    """An agent that runs these commands, whichever model it is."""

    def agent(request: ChatRequest) -> ChatResponse:
        turn = sum(message["role"] == "assistant" for message in request.messages)
        return ChatResponse(bash(commands[turn]), usage=Usage(1000, 50), seconds=2.0)

    return agent


def options(toy: Any, tmp_path: Path, **more: Any) -> Options:
    base = {"policies": ["fixed:large"], "data": str(toy.data), "repos": toy.repos, "runtime": "local"}
    return Options(**{**base, "out": tmp_path / "run", **more})


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_fix_is_resolved(toy: Any, tmp_path: Path) -> None:
    backend = ScriptedBackend(
        plan("cat stats.py", FIX, "python -c 'import stats; print(stats.middle([3,1,2]))'", SUBMIT)
    )
    result = run(Swebench(options(toy, tmp_path)), POOL, backend=backend)
    (task,) = lines(result.path / "tasks.jsonl")
    assert (task["passed"], task["graded"], task["ended"]) == (True, "local, not official", "Submitted")
    assert (task["fixed"], task["patch_from"]) == (1.0, "submission")
    assert task["usd"] == pytest.approx(4 * (1000 * 10 + 50 * 20) / 1e6)
    looked, fixed, tried, _ = lines(result.path / "steps.jsonl")
    assert {item["source"]: item["score"] for item in looked["evidence"]} == {"command": 1, "patch": 0}
    assert {item["source"]: item["score"] for item in fixed["evidence"]} == {"command": 1, "patch": 1, "syntax": 1}
    assert looked["g_after"] < fixed["g_after"]
    assert tried["decision"]["progress"]["regime"] == "partial"
    assert "// 2" in task["prediction"]["model_patch"]
    assert (result.path / "trajectories" / "fixed_large" / "own__stats-1.json").is_file()


def test_predictions_are_in_the_official_format(toy: Any, tmp_path: Path) -> None:
    result = run(Swebench(options(toy, tmp_path)), POOL, backend=ScriptedBackend(plan(FIX, SUBMIT)))
    (path,) = write_predictions(result.path)
    (made,) = get_predictions_from_file(str(path), "unused", "test")
    assert (made["instance_id"], made["model_name_or_path"]) == ("own__stats-1", "steproute-fixed_large")
    assert made["model_patch"].startswith("diff --git a/stats.py b/stats.py")


@pytest.mark.parametrize("commands", [(WRONG, SUBMIT), (SUBMIT,), ("echo '(' > stats.py", SUBMIT)])
def test_a_wrong_patch_is_not(toy: Any, tmp_path: Path, commands: tuple[str, ...]) -> None:
    result = run(Swebench(options(toy, tmp_path)), POOL, backend=ScriptedBackend(plan(*commands)))
    (task,) = lines(result.path / "tasks.jsonl")
    assert (task["passed"], task["reward"], task.get("error")) == (False, 0.0, None)


def test_a_patch_that_breaks_another_test_is_not(toy: Any, tmp_path: Path) -> None:
    broken = "printf 'class M:\\n    def __call__(self, x): return 2\\nmiddle = 7\\n' > stats.py"
    result = run(Swebench(options(toy, tmp_path)), POOL, backend=ScriptedBackend(plan(broken, SUBMIT)))
    assert result.summary[0]["pass_rate"] == 0


def test_a_cheap_models_failure_leads_to_the_stronger_one(toy: Any, tmp_path: Path) -> None:
    def agent(request: ChatRequest) -> ChatResponse:
        said = [message["content"] for message in request.messages if message["role"] == "assistant"]
        if request.model == "small":
            command = f"cat no_such_file_{len(said)}.py"
        else:
            command = SUBMIT if any(FIX in text for text in said) else FIX
        return ChatResponse(bash(command), usage=Usage(1000, 50), seconds=2.0)

    result = run(Swebench(options(toy, tmp_path, policies=["cascade"])), POOL, backend=ScriptedBackend(agent))
    (task,) = lines(result.path / "tasks.jsonl")
    assert task["passed"]
    assert task["models"][0] == "small"
    assert task["models"][-2:] == ["large", "large"]
    first = lines(result.path / "steps.jsonl")[0]
    assert first["evidence"][0] == {"source": "command", "score": 0.0, "count": 1, "detail": "return code 1"}


def test_secrets_history_and_network_are_not_there(toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    (tmp_path / "outside.txt").write_text("not for the agent")
    probe = (
        f"env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; git log --oneline --all; cat {tmp_path}/outside.txt; "
        "python -c 'import socket; socket.create_connection((\"127.0.0.1\", 80), 1)'"
    )
    backend = ScriptedBackend(plan(probe, SUBMIT))
    run(Swebench(options(toy, tmp_path)), POOL, backend=backend)
    seen = "\n".join(str(message["content"]) for message in backend.requests[-1].messages)
    assert "HOME=/tmp" in seen
    assert "very-secret" not in seen
    assert "OPENAI_API_KEY" not in seen
    assert "the fix, which" not in seen
    assert "not for the agent" not in seen
    assert "ConnectionRefusedError" in seen or "unreachable" in seen


def test_a_reply_without_a_command_is_told_so_and_counts(toy: Any, tmp_path: Path) -> None:
    replies = iter(["I would rather talk.", bash(FIX), bash(SUBMIT)])
    backend = ScriptedBackend(lambda request: ChatResponse(next(replies), usage=Usage(10, 10)))
    result = run(Swebench(options(toy, tmp_path)), POOL, backend=backend)
    first = lines(result.path / "steps.jsonl")[0]
    assert first["evidence"][0]["detail"] == "not exactly one command"
    assert "found 0 actions" in backend.requests[1].messages[-1]["content"]
    assert result.summary[0]["pass_rate"] == 1


def test_a_change_that_does_not_parse_is_seen(toy: Any, tmp_path: Path) -> None:
    result = run(
        Swebench(options(toy, tmp_path)), POOL, backend=ScriptedBackend(plan("echo '(' > stats.py", FIX, SUBMIT))
    )
    first = lines(result.path / "steps.jsonl")[0]
    assert first["evidence"][-1]["source"] == "syntax"
    assert first["evidence"][-1]["score"] == 0
    assert "was never closed" in first["evidence"][-1]["detail"]


def test_a_command_that_hangs_is_stopped(toy: Any, tmp_path: Path) -> None:
    backend = ScriptedBackend(plan("sleep 600 & sleep 600", FIX, SUBMIT))
    result = run(Swebench(options(toy, tmp_path, command_timeout_s=1.0)), POOL, backend=backend)
    assert "longer than 1 s" in backend.requests[1].messages[-1]["content"]
    assert result.summary[0]["pass_rate"] == 1


def test_the_live_command_against_a_server(toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none-needed")

    def serve(body: dict) -> Reply:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        return Reply(bash((FIX, SUBMIT)[turn]))

    pool = tmp_path / "pool.yaml"
    pool.write_text(
        "models: [{name: small, price: free, deployment: openai/tiny}, {name: large, price: free, deployment: openai/big}]"
    )
    with OpenAIServer(serve) as server:
        command = [
            *("--data", str(toy.data), "--repos", str(toy.repos), "--runtime", "local", "--policy", "fixed:small"),
            *("--models", str(pool), "--base-url", server.base_url),
            *("--out", str(tmp_path / "run"), "--json"),
        ]
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        models = {received.body["model"] for received in server.calls}
    assert done.exit_code == 0, done.output
    assert models == {"tiny"}
    assert lines(tmp_path / "run" / "tasks.jsonl")[0]["passed"]
    assert (tmp_path / "run" / "predictions-fixed_small.jsonl").is_file()


def test_recorded_models_are_replayed_without_a_server(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none-needed")
    (tmp_path / "cassettes").mkdir()
    commands = ("cat stats.py", FIX, SUBMIT)

    def serve(body: dict) -> Reply:
        return Reply(bash(commands[sum(message["role"] == "assistant" for message in body["messages"])]))

    pool = [Model("small", price="free", deployment="openai/tiny"), Model("large", price="free")]
    with OpenAIServer(serve) as server:
        live = {"backend": "litellm", "base_url": server.base_url, "policies": ["fixed:small"]}
        with routed_cassette(tmp_path / "cassettes" / "own__stats-1.yaml", mode="record"):
            first = run(Swebench(options(toy, tmp_path, **live)), pool)
    pool[0] = pool[0].model_copy(update={"deployment": "tiny"})  # as the server knew it
    replay = {"backend": "cassette", "cassettes": tmp_path / "cassettes", "policies": ["fixed:small"]}
    again = run(Swebench(options(toy, tmp_path, **replay, out=tmp_path / "again")), pool)
    rows = [lines(result.path / "tasks.jsonl")[0] for result in (first, again)]
    assert [row["passed"] for row in rows] == [True, True]
    assert rows[0]["prediction"] == rows[1]["prediction"]
    assert rows[0]["tokens"] == rows[1]["tokens"]
    assert not again.errors


def test_the_docker_runtime_hands_on_nothing_and_asks_the_official_harness(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a daemon: a `docker` that runs commands in a folder; what it was asked for is looked at."""
    asked, place, program = tmp_path / "asked.txt", tmp_path / "container", tmp_path / "docker"
    shutil.copytree(toy.repos / "own__stats", place)
    program.write_text(
        f"""#!/bin/bash
echo "$@" >> {asked}
case "$1" in
  run) echo c0ffee ;;
  exec) while [ "$1" != bash ]; do shift; done; cd {place} && exec env -i PATH="$PATH" "$@" ;;
esac
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    graded: list[dict] = []

    def harness(instance: Any, made: Any, run_id: str, timeout_s: float) -> Grade:
        graded.append(made)
        return Grade(True, OFFICIAL, True, {})

    monkeypatch.setattr(grade, "grade_in_docker", harness)
    backend = ScriptedBackend(plan("echo '# changed' >> stats.py", SUBMIT))
    result = run(Swebench(options(toy, tmp_path, runtime="auto")), POOL, backend=backend)
    (task,) = lines(result.path / "tasks.jsonl")
    assert (task["graded"], task["passed"]) == ("official", True)
    assert "# changed" in graded[0]["model_patch"]
    first = lines(result.path / "steps.jsonl")[0]
    assert {item["source"]: item["score"] for item in first["evidence"]} == {"command": 1, "patch": 1, "syntax": 1}
    calls = asked.read_text()
    assert "-w /testbed --rm none sleep" in calls
    assert "-e PAGER=cat" in calls
    assert "secret" not in calls


def test_an_agents_own_test_runs_are_read() -> None:
    def tests(text: str) -> list[tuple[float, int]]:
        found = evidence_of({"output": text, "returncode": 1})
        return [(item.score, item.count) for item in found if item.source == "own_tests"]

    assert tests("=== 1 failed, 3 passed in 0.12s ===") == [(0.75, 4)]
    assert tests("Ran 4 tests in 0.001s\n\nFAILED (failures=1, errors=1)") == [(0.5, 4)]
    assert tests("it passed\n") == []


def test_wrong_settings_say_which_are_right(toy: Any, tmp_path: Path) -> None:
    def message(**more: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            run(Swebench(options(toy, tmp_path, **more)), POOL, backend=ScriptedBackend("x"))
        return str(caught.value)

    assert "did you mean 'own__stats-1'" in message(instances=("own__stats-2",))
    assert "did you mean 'local'" in message(runtime="locl")
    assert "data: no file" in message(data=str(tmp_path / "none.json"))
    toy.data.write_text(json.dumps([{"instance_id": "a", "repo": "b"}]))
    assert "a lacks base_commit, problem_statement, image" in message()
