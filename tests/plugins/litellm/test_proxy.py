"""LiteLLM's real proxy on loopback: three deployments on a fake upstream, driven by the OpenAI client."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import httpx
import pytest
from servers import OllamaServer, Reply
from servers.litellm_proxy import LiteLLMProxy
from servers.litellm_upstream import LiteLLMUpstream

from .conftest import HELLO, ONE_CALL

needed = ("fastapi", "uvicorn", "orjson", "apscheduler", "openai")
missing = [name for name in needed if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"LiteLLM's proxy needs {', '.join(missing)}")

OLD = tuple(int(part) for part in version("litellm").split(".")[:2]) < (1, 81)


class Gate:
    """Lets calls of the model `dear` wait until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._arrived = threading.Semaphore(0)

    def script(self, body: dict[str, Any]) -> Reply:
        if body.get("model") != "dear":
            return Reply()
        self._arrived.release()
        assert self._open.wait(60)
        return Reply(prompt_tokens=0, completion_tokens=250)

    def wait(self, calls: int) -> None:
        for _ in range(calls):
            assert self._arrived.acquire(timeout=60)

    def open(self) -> None:
        self._open.set()


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def upstream(gate: Gate) -> Iterator[LiteLLMUpstream]:
    with LiteLLMUpstream(gate.script) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(upstream: LiteLLMUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiteLLMProxy]:
    def deployment(group: str, name: str) -> dict[str, Any]:
        params = {"model": f"openai/{name}", "api_base": upstream.base_url, "api_key": "none"}
        return {
            "model_name": group,
            "litellm_params": params,
            "model_info": {"id": f"{group}-{name}", "steproute": name},
        }

    with OllamaServer(models=["qwen3"]) as ollama:
        local = {"model": f"ollama_chat/{ollama.models[0]}", "api_base": ollama.url}
        deployments = [
            *(deployment("chat", name) for name in ("small", "medium", "large")),
            deployment("mixed", "gratis"),
            deployment("mixed", "small"),
            deployment("costly", "dear"),
            deployment("embed", "small"),
            deployment("beyond", "beyond"),
            {"model_name": "local", "litellm_params": local, "model_info": {"id": "local"}},
        ]
        steproute = {
            "models": [
                {"name": "small", "price": {"input": 1, "output": 2}, "size_b": 1},
                {"name": "medium", "price": {"input": 3, "output": 6}, "size_b": 10},
                {"name": "large", "price": {"input": 10, "output": 20}, "size_b": 100},
                {"name": "gratis", "price": 0, "size_b": 1},
                {"name": "beyond", "price": {"input": 0, "output": 900}, "max_output": 9000},
                {"name": "dear", "price": {"input": 0, "output": 200}, "size_b": 500, "max_output": 1000},
            ],
            "budget": {"usd": 1.0},
            "policy": "cheapest",
            "seed": 0,
        }
        settings = {"router_settings": {"num_retries": 2, "retry_after": 0}}
        with LiteLLMProxy(tmp_path_factory.mktemp("proxy"), deployments, steproute, settings) as running:
            yield running


@pytest.fixture
def client(proxy: LiteLLMProxy) -> Iterator[Any]:
    import openai

    with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=proxy.key, max_retries=0) as made:
        yield made


def ask(client: Any, group: str = "chat", **more: Any) -> tuple[dict[str, str], Any]:
    """One chat completion: its `x-steproute-` headers without that prefix, and the answer."""
    raw = client.chat.completions.with_raw_response.create(**{"model": group, "messages": HELLO, **more})
    return said(raw.headers), raw.parse()


def said(headers: Any) -> dict[str, str]:
    prefix = "x-steproute-"
    return {name[len(prefix) :]: value for name, value in headers.items() if name.startswith(prefix)}


def task(name: str, **more: str) -> dict[str, Any]:
    return {"extra_headers": {"x-steproute-task": name, **more}}


def spent(client: Any, name: str, expected: float) -> float:
    """USD of a task, read off the headers of free calls until its last outcome has come in."""
    usd = 0.0
    for _ in range(200):
        headers, _ = ask(client, "mixed", **task(name))
        assert headers["model"] == "gratis"
        usd = float(headers["task-spent-usd"])
        if usd >= expected - 1e-12:
            break
    return usd


def test_the_answer_says_which_model_and_why(client, upstream):
    headers, answer = ask(client, **task("said", **{"x-steproute-role": "coder"}))
    assert answer.choices[0].message.content == "ok"
    assert upstream.calls[-1].body["model"] == "small"
    assert (headers["model"], headers["task"], headers["attempt"]) == ("small", "said", "1")
    assert headers["reason"] == "lowest expected cost"
    assert 0 <= float(headers["progress"]) <= 1


def test_spending_is_kept_per_task(client):
    for _ in range(3):
        ask(client, **task("a"))
    ask(client, **task("b"))
    assert spent(client, "a", 3 * ONE_CALL["small"]) == pytest.approx(3 * ONE_CALL["small"])
    assert spent(client, "b", ONE_CALL["small"]) == pytest.approx(ONE_CALL["small"])


@pytest.mark.parametrize(
    "named",
    [
        {"extra_body": {"metadata": {"steproute": {"task": "named"}}}},
        {"extra_headers": {"x-litellm-session-id": "named"}},
        {"extra_body": {"metadata": {"session_id": "named"}}},
        {"extra_body": {"litellm_session_id": "named"}},
    ],
)
def test_a_task_may_be_named_in_these_ways(named, client):
    headers, _ = ask(client, **named)
    assert headers["task"] == "named"


def test_a_conversation_is_recognised_by_its_beginning(client):
    opening = [{"role": "user", "content": "what is a monad?"}]
    first, answer = ask(client, messages=opening)
    reply = {"role": "assistant", "content": answer.choices[0].message.content}
    second, _ = ask(client, messages=[*opening, reply, {"role": "user", "content": "shorter"}])
    other, _ = ask(client, messages=[{"role": "user", "content": "what is a functor?"}])
    assert second["task"] == first["task"] != other["task"]


def test_streams_are_paid_by_the_usage_of_their_end(client):
    raw = client.chat.completions.with_raw_response.create(
        model="chat", messages=HELLO, stream=True, **task("streamed")
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in raw.parse() if chunk.choices)
    assert text == "ok"
    if not OLD:  # before 1.81 LiteLLM has no way to add headers to a stream
        assert said(raw.headers)["model"] == "small"
    assert spent(client, "streamed", ONE_CALL["small"]) == pytest.approx(ONE_CALL["small"])


def test_every_kind_of_call_is_paid(client, proxy):
    headers = {"authorization": f"Bearer {proxy.key}", "x-steproute-task": "kinds"}
    client.responses.create(model="chat", input="hello", **task("kinds"))
    answer = httpx.post(
        f"{proxy.url}/v1/messages",
        json={"model": "chat", "messages": HELLO, "max_tokens": 20},
        headers=headers,
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    client.embeddings.create(model="embed", input="a text", **task("kinds"))
    expected = 2 * ONE_CALL["small"] + 11 * 1 / 1e6
    assert spent(client, "kinds", expected) == pytest.approx(expected)


def test_row_5_ten_parallel_calls_of_a_fifth_under_a_limit_of_one(client, gate):
    """Five are let through; the others get HTTP 429 with the limit in the body; settled at $0.05, more are let through."""
    import openai

    def one(_: int) -> Any:
        try:
            return ask(client, "costly", max_tokens=1000, **task("row-5"))[0]
        except openai.APIStatusError as error:
            return error

    with ThreadPoolExecutor(10) as threads:
        calls = [threads.submit(one, number) for number in range(10)]
        gate.wait(5)
        refused = []
        while len(refused) < 5:
            refused = [call.result() for call in calls if call.done()]
        gate.open()
        answers = [call.result() for call in calls]
    served = [item for item in answers if isinstance(item, dict)]
    assert len(served) == 5
    for error in refused:
        assert error.status_code == 429
        assert error.response.headers.get("x-should-retry") == "false"
        told = error.response.json()["error"]
        assert told["message"].startswith(
            "task 'row-5': hard limit usd=1 reached: spent 0, reserved by calls in flight 1"
        )
        assert (told["type"], told["param"]) == ("budget_exceeded", "usd")
    assert spent(client, "row-5", 0.25) == pytest.approx(0.25)
    with ThreadPoolExecutor(3) as threads:
        assert all(isinstance(item, dict) for item in threads.map(one, range(3)))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": HELLO, "stream": True}),
        ("messages", {"messages": HELLO, "max_tokens": 9000}),
        ("responses", {"input": "hello", "max_output_tokens": 9000}),
    ],
)
def test_every_route_answers_a_used_up_budget_with_429(path, body, proxy, upstream):
    headers = {"authorization": f"Bearer {proxy.key}", "x-steproute-task": "used-up"}
    before = len(upstream.calls)
    answer = httpx.post(f"{proxy.url}/v1/{path}", json={"model": "beyond", **body}, headers=headers, timeout=60)
    assert answer.status_code == 429, answer.text
    assert "hard limit usd=1 reached" in answer.text
    assert len(upstream.calls) == before


def test_a_call_no_model_can_serve_says_what_is_missing(client):
    import openai

    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(openai.BadRequestError, match="small: no vision; medium: no vision; large: no vision"):
        ask(client, messages=[{"role": "user", "content": [image]}])


def test_responses_go_on_by_id(client):
    first = client.responses.with_raw_response.create(model="chat", input="hello")
    task_id = said(first.headers)["task"]
    assert spent(client, task_id, ONE_CALL["small"]) == pytest.approx(ONE_CALL["small"])  # its outcome has come in
    second = client.responses.with_raw_response.create(
        model="chat", input="and now?", previous_response_id=first.parse().id
    )
    assert said(second.headers)["task"] == task_id


def test_row_9_an_ollama_model_needs_no_key(client):
    headers, answer = ask(client, "local", **task("row-9"))
    assert answer.choices[0].message.content == "ok"
    if not OLD:  # LiteLLM 1.80 passes headers on for some providers only
        assert headers["model"] == "ollama_chat/qwen3"
    assert spent(client, "row-9", 0.0) == 0.0


def test_row_14_a_price_of_zero_is_free_and_not_unknown(client):
    headers, _ = ask(client, "mixed", **task("row-14"))
    assert headers["model"] == "gratis"
    assert spent(client, "row-14", 0.0) == 0.0


def test_row_15_what_failed_and_what_answered_are_told_apart(client, upstream):
    upstream.queue(Reply(status=500, error="broken"))
    headers, answer = ask(client, **task("row-15"))
    assert answer.choices[0].message.content == "ok"
    assert [call.body["model"] for call in upstream.calls[-2:]] == ["small", "medium"]
    assert (headers["model"], headers["attempt"]) == ("medium", "2")
    expected = (11 * 3 + 17 * 6) / 1e6
    assert spent(client, "row-15", expected) == pytest.approx(expected)
