"""What the documents show is run: the examples as their users start them, and every Python block of README.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_pytest_example_replays_offline() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-rA",
            "-p",
            "no:cacheprovider",
            str(ROOT / "examples" / "pytest_cassette.py"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "PASSED" in done.stdout, done.stdout + done.stderr


def test_readme_configuration_is_accepted(tmp_path: Path) -> None:
    from steproute import Router

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (settings,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "steproute.yaml"
    file.write_text(settings)
    router = Router.from_config(file)
    assert router.pool.names == ["small", "large"]
    assert router.budget.limits()["usd"].hard


def test_readme_has_the_one_line() -> None:
    assert any("attach(router, group_chat)" in block for block in BLOCKS)


def test_readme_blocks_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("ag2")
    agents = pytest.importorskip("langchain.agents")
    from ag2 import Agent
    from ag2.config import OpenAIConfig
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel

    from steproute import Budget, Evidence, Model, Outcome

    monkeypatch.chdir(tmp_path)  # the store's file
    space: dict[str, object] = {
        "group_chat": Agent("coder", config=OpenAIConfig("small", api_key="none")),
        "ChatOllama": lambda model: GenericFakeChatModel(messages=iter(())),
        "ChatOpenAI": lambda model: GenericFakeChatModel(messages=iter(())),
        "create_agent": agents.create_agent,
        "tools": [],
        "call": lambda model, prompt: f"{model} answers",
        "prompt": "write a function",
        "models": [Model("small", price="free"), Model("large", price="free")],
        "budget": Budget(),
        "Evidence": Evidence,
        "Outcome": Outcome,
    }
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), space)
    space["router"].close()  # type: ignore[attr-defined]
    assert "expected cost" in capsys.readouterr().out  # what `decision.why()` prints
