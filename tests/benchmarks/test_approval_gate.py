"""Live paid calls of a benchmark stay off until an approval file names the models and a spending cap."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from servers.base import Reply
from servers.openai_server import OpenAIServer

from steproute.approval import ApprovalError, SpendingCap
from steproute.benchmarks.options import RunOptions
from steproute.benchmarks.protocol import Benchmark
from steproute.benchmarks.runner import run
from steproute.benchmarks.seat import Played, Seat
from steproute.models import Model, Price

POOL = [
    Model("small", price=Price(input=1, output=1), deployment="openai/tiny"),
    Model("large", price=Price(input=10, output=10), deployment="openai/big"),
]


class Questions(Benchmark):
    """Ten questions; what answers is right. Its framework swallows every error of a call, as some do."""

    name = "questions"
    frameworks = ("plain",)

    def __init__(self, options: RunOptions):
        self.options = options

    def tasks(self) -> list[str]:
        return [f"q{number}" for number in range(10)]

    def play(self, seat: Seat) -> Played:
        seat.describe("?", "generic")
        try:
            seat.call("solver", [{"role": "user", "content": "?" * 100}], max_tokens=10)
        except Exception:  # noqa: BLE001 — as such a framework does
            return seat.played(False)
        return seat.played(True)


def options(tmp_path: Path, **more: object) -> RunOptions:
    given = {"policies": ["fixed:small"], "framework": "plain", "backend": "litellm", "out": tmp_path / "run"}
    return RunOptions(**{**given, **more})


@pytest.fixture
def approval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("litellm")
    monkeypatch.setenv("OPENAI_API_KEY", "none-needed")
    path = tmp_path / "approval.yaml"
    monkeypatch.setenv("STEPROUTE_APPROVAL", str(path))
    return path


def test_off_without_a_file(tmp_path: Path, approval: Path) -> None:
    with OpenAIServer(lambda body: Reply("yes")) as server:
        with pytest.raises(ApprovalError, match=r"approval\.yaml: missing: live paid calls are off"):
            run(Questions(options(tmp_path, base_url=server.base_url)), POOL)
        assert server.calls == []
    assert not (tmp_path / "run").exists()


def test_a_model_it_does_not_name(tmp_path: Path, approval: Path) -> None:
    approval.write_text("models: [small]\nusd: 5\n", encoding="utf-8")
    with pytest.raises(ApprovalError, match=r"'large' \(openai/big\) is not approved; named: small"):
        run(Questions(options(tmp_path)), POOL)


def test_the_run_stops_at_the_cap_and_goes_on_when_it_is_raised(tmp_path: Path, approval: Path) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    approval.write_text("models: [small, large]\nusd: 0.0008\n", encoding="utf-8")
    with OpenAIServer(lambda body: Reply("yes", **usage)) as server:
        with pytest.raises(ApprovalError, match=r"spending cap of \$0\.0008 reached"):
            run(Questions(options(tmp_path, base_url=server.base_url)), POOL)
        asked = len(server.calls)
        done = [json.loads(line) for line in (tmp_path / "run" / "tasks.jsonl").read_text().splitlines()]
        assert 1 <= asked < 10
        assert [row["passed"] for row in done] == [True] * asked  # the refused one is not among them
        spent = SpendingCap(tmp_path / "approval.spent.db", 1).spent
        assert spent == pytest.approx(asked * 110e-6)
        assert spent <= 0.0008
        approval.write_text("models: [small, large]\nusd: 5\n", encoding="utf-8")
        result = run(Questions(options(tmp_path, base_url=server.base_url, resume=True)), POOL)
        assert len(server.calls) == 10
    assert result.summary[0]["pass_rate"] == 1


def test_a_free_model_on_this_machine_needs_none(tmp_path: Path, approval: Path) -> None:
    pool = [model.model_copy(update={"price": Price(input=0, output=0)}) for model in POOL]
    with OpenAIServer(lambda body: Reply("yes")) as server:
        result = run(Questions(options(tmp_path, base_url=server.base_url, limit=1)), pool)
    assert result.summary[0]["pass_rate"] == 1
