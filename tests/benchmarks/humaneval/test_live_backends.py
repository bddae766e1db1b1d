"""`--backend ollama` and `--backend litellm` over real HTTP: protocol-faithful servers on loopback that answer from the recordings."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers.ollama_server import OllamaServer
from servers.openai_server import OpenAIServer

from steproute.benchmarks.humaneval import HumanEval
from steproute.benchmarks.humaneval.run import Options

CASSETTES = sorted((Path(__file__).parents[3] / "cassettes" / "humaneval").glob("*.yaml"))
NAMES = ["smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
POLICIES = ["progrouter", "fixed:qwen2.5-coder-0.5b"]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    out = tmp_path_factory.mktemp("replayed") / "run"
    # the live order is the recording order shuffled by the seed; the first two problems are recorded
    return HumanEval().run(Options(POLICIES, "plain", cassettes=CASSETTES[0].parent, limit=2, out=out)).summary


def same(live: list[dict], replayed: list[dict]) -> None:
    for ours, theirs in zip(live, replayed, strict=True):
        assert ours["pass_rate"] == theirs["pass_rate"]
        assert ours["calls_per_task"] == theirs["calls_per_task"]
        assert ours["tokens"] == theirs["tokens"]
        assert 0 < ours["seconds"] < theirs["seconds"]  # a live call costs its own time, not the recorded one
        assert ours["step_regret"] is None  # live models: nobody knows what the others would have said


def test_ollama(replayed: list[dict], tmp_path: Path) -> None:
    pytest.importorskip("ollama")
    with OllamaServer(upstream=CASSETTES, models=NAMES, cold_load_s=0) as server:
        options = Options(POLICIES, "ag2", "ollama", limit=2, base_url=server.url, out=tmp_path / "run")
        live = HumanEval().run(options).summary
        assert {request.path for request in server.requests} == {"/api/chat"}
    same(live, replayed)


def test_litellm(replayed: list[dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("litellm")
    monkeypatch.setenv("OPENAI_API_KEY", "none-needed")
    models = [f"{name}=openai/{name}" for name in NAMES]
    with OpenAIServer(upstream=CASSETTES) as server:
        options = Options(
            POLICIES, "ag2", "litellm", limit=2, base_url=server.base_url, models=models, out=tmp_path / "run"
        )
        live = HumanEval().run(options).summary
        assert {request.body["model"] for request in server.requests} <= set(NAMES)
    same(live, replayed)
