"""The LangGraph example as its users start it, and the Python blocks of its page, against a fake server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain_openai")

from servers import OpenAIServer, Reply

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "langgraph.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_supervisor_runs_offline() -> None:
    replies = iter(["def reverse(s): return s", "It does nothing.", "def reverse(s): return s[::-1]", "APPROVED"])
    with OpenAIServer(lambda body: Reply(content=next(replies))) as server:
        command = [
            sys.executable,
            str(ROOT / "examples" / "langgraph_supervisor.py"),
            server.base_url,
            "small-model",
            "large-model",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "coder: def reverse(s): return s[::-1]" in done.stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    assert [line.split()[2] for line in lines] == ["coder", "reviewer", "coder", "reviewer"]
    assert all("28 tokens" in line for line in lines)
    assert {call.body["model"] for call in server.calls} <= {"small-model", "large-model"}


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_blocks_of_the_page_run(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block runs after those before it, with the two chat models the page speaks of."""
    from langchain_openai import ChatOpenAI

    if "create_agent" in "".join(BLOCKS[: number + 1]):
        pytest.importorskip("langchain.agents")
    with OpenAIServer() as server:
        small, large = (ChatOpenAI(model=name, base_url=server.base_url, api_key="none") for name in ("small", "large"))
        space: dict[str, object] = {"small": small, "large": large}
        for block in BLOCKS[: number + 1]:
            exec(compile(block, "docs/langgraph.md", "exec"), space)
    assert len(BLOCKS) >= 4
