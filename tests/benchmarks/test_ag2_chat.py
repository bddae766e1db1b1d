"""The group chat of the main job, over real HTTP: what goes out on the wire, how it ends, what it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("ag2.network")

from ag2.config import OpenAIConfig
from servers import OpenAIServer, Reply

from steproute.benchmarks.humaneval import team
from steproute.benchmarks.humaneval.ag2_chat import run_chat

PROMPT = "def double(x):\n    '''\n    >>> double(2)\n    4\n    '''\n"
FAILED = team.VisibleReport("def double(x): return x", "", 0, [team.Failure("double(2)", "4", "2")])


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda body: Reply(content=f"{body['model']} says {len(body['messages'])}")) as running:
        yield running


def config(server: OpenAIServer, model: str) -> OpenAIConfig:
    return OpenAIConfig(model=model, base_url=server.base_url, api_key="none", temperature=0, max_retries=0)


async def chat(server: OpenAIServer, reports: list[str | None], max_attempts: int = 3, **more: object) -> list[str]:
    return await run_chat(
        team.problem_message(PROMPT),
        team.CODER,
        team.FIXER,
        config(server, "small"),
        config(server, "large"),
        lambda reply: reports.pop(0),
        max_attempts,
        **more,  # type: ignore[arg-type]
    )


async def test_the_wire_carries_exactly_the_teams_messages(server: OpenAIServer) -> None:
    report = team.report_message(FAILED)
    assert await chat(server, [report, None]) == ["small says 2", "large says 3"]
    first, second = (received.body for received in server.calls)
    assert first["messages"] == team.first_messages(PROMPT)
    assert second["messages"] == team.next_messages(PROMPT, FAILED)
    for body in (first, second):
        assert not body.keys() & {"tools", "tool_choice", "response_format"}
        assert all(message.keys() == {"role", "content"} for message in body["messages"])
    assert (first["model"], second["model"]) == ("small", "large")


async def test_the_fixer_sees_only_the_last_report(server: OpenAIServer) -> None:
    await chat(server, ["report one", "report two", "report three"])
    assert [received.body["messages"][-1]["content"] for received in server.calls[1:]] == ["report one", "report two"]
    assert [len(received.body["messages"]) for received in server.calls] == [2, 3, 3]


async def test_max_attempts_ends_the_chat_after_testing_the_last_reply(server: OpenAIServer) -> None:
    reports: list[str | None] = ["again", "again", "not reached"]
    assert len(await chat(server, reports, max_attempts=2)) == 2
    assert reports == ["not reached"]


async def test_an_empty_reply_is_a_reply(server: OpenAIServer) -> None:
    server.queue(Reply(content=""))
    assert await chat(server, ["nothing came", None]) == ["", "large says 3"]


async def test_a_failed_call_is_raised_and_everything_closed(server: OpenAIServer) -> None:
    before = asyncio.all_tasks()
    server.queue(Reply(status=400, error="no such model"))
    with pytest.raises(Exception, match="no such model"):
        await chat(server, [])
    assert asyncio.all_tasks() == before


async def test_a_failing_tester_is_raised(server: OpenAIServer) -> None:
    def broken(reply: str) -> str:
        raise ZeroDivisionError("the sandbox is gone")

    with pytest.raises(ZeroDivisionError, match="sandbox is gone"):
        await run_chat("p", "c", "f", config(server, "small"), config(server, "large"), broken, 3)


async def test_many_chats_leave_no_task_behind(server: OpenAIServer) -> None:
    before = asyncio.all_tasks()
    for _ in range(5):
        await chat(server, ["again", None])
    await asyncio.gather(*(chat(server, ["again", None]) for _ in range(4)))
    assert len(server.calls) == 18
    assert asyncio.all_tasks() == before


async def test_setup_gets_the_agents_and_the_hub(server: OpenAIServer) -> None:
    seen: list[object] = []
    await chat(
        server, [None], setup=lambda agents, hub: seen.append([agents[0].name, agents[1].name, type(hub).__name__])
    )
    assert seen == [["coder", "fixer", "Hub"]]


async def test_at_least_one_attempt(server: OpenAIServer) -> None:
    with pytest.raises(ValueError, match="max_attempts: seen 0; allowed: 1 or more"):
        await chat(server, [], max_attempts=0)
