"""The group chat of the main job on classic AG2, over real HTTP. Run where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("autogen", reason="classic AG2 is not installed")

from autogen import LLMConfig
from servers import OpenAIServer, Reply

from steproute import Model, Router
from steproute.benchmarks.humaneval import team
from steproute.benchmarks.humaneval.ag2_classic_chat import run_classic_chat, run_classic_chat_async
from steproute.plugins.ag2 import attach

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore")]

PROMPT = "def double(x):\n    '''\n    >>> double(2)\n    4\n    '''\n"
FAILED = team.VisibleReport("def double(x): return x", "", 0, [team.Failure("double(2)", "4", "2")])


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda body: Reply(content=f"{body['model']} says {len(body['messages'])}")) as running:
        yield running


def arguments(server: OpenAIServer, reports: list[str | None], max_attempts: int = 3) -> tuple[Any, ...]:
    small, large = (
        LLMConfig({"model": model, "base_url": server.base_url, "api_key": "none", "max_retries": 0}, cache_seed=None)
        for model in ("small", "large")
    )
    problem = team.problem_message(PROMPT)
    return problem, team.CODER, team.FIXER, small, large, lambda reply: reports.pop(0), max_attempts


def test_the_wire_carries_exactly_the_teams_messages(server: OpenAIServer) -> None:
    assert run_classic_chat(*arguments(server, [team.report_message(FAILED), None])) == ["small says 2", "large says 3"]
    first, second = (received.body for received in server.calls)
    assert first["messages"] == team.first_messages(PROMPT)
    assert second["messages"] == team.next_messages(PROMPT, FAILED)
    assert (first["model"], second["model"]) == ("small", "large")


def test_the_fixer_sees_only_the_last_report_and_the_last_reply_is_tested(server: OpenAIServer) -> None:
    reports: list[str | None] = ["report one", "report two", "report three", "not reached"]
    run_classic_chat(*arguments(server, reports))
    assert [received.body["messages"][-1]["content"] for received in server.calls[1:]] == ["report one", "report two"]
    assert reports == ["not reached"]


def test_an_empty_reply_is_a_reply(server: OpenAIServer) -> None:
    server.queue(Reply(content=""))
    assert run_classic_chat(*arguments(server, ["nothing came", None])) == ["", "large says 3"]


def test_a_failed_call_is_raised(server: OpenAIServer) -> None:
    server.queue(Reply(status=400, error="no such model"))
    with pytest.raises(Exception, match="no such model"):
        run_classic_chat(*arguments(server, []))


async def test_routed_and_asynchronous(server: OpenAIServer) -> None:
    router = Router([Model("a", price="free"), Model("b", price="free")], policy="fixed:b")
    found = await run_classic_chat_async(
        *arguments(server, ["again", None]), setup=lambda agents, chat: attach(router, chat, task="t")
    )
    assert found == ["b says 2", "b says 3"]
    ledger = router.ledger("t")
    assert ledger is not None
    assert [step.role for step in ledger.steps] == ["coder", "fixer"]
