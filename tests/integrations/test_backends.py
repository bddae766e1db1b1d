"""The Ollama and LiteLLM backends against servers that speak the real protocols."""

import asyncio
import sys

import pytest
from servers import Hang, OllamaServer, OpenAIServer, Reply

from steproute.backend import Backend, BackendError, ChatRequest, Timings, Usage
from steproute.errors import ConfigError
from steproute.integrations.attempts import Retry
from steproute.integrations.ollama import LoadedModel, OllamaBackend

KEY = "sk-mine-0123456789abcdef"
TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "d", "parameters": {"type": "object", "properties": {}}},
}


def ask(model="small", **changes):
    return ChatRequest(model, [{"role": "user", "content": "hi"}], temperature=0.0, max_tokens=9, **changes)


def patient(waits):
    async def asleep(seconds):
        waits.append(seconds)

    return Retry(sleep=waits.append, asleep=asleep, chance=lambda: 0.0)


def make(kind, server, waits=None, **options):
    retry = patient([] if waits is None else waits)
    if kind == "ollama":
        return OllamaBackend(server.url if server else "http://127.0.0.1:9", retry=retry, **options)
    litellm = pytest.importorskip("steproute.integrations.litellm")
    base = server.base_url if server else "http://127.0.0.1:9/v1"
    deployments = {name: {"model": f"openai/{name}", "api_base": base, "api_key": KEY} for name in ("small", "large")}
    return litellm.LiteLLMBackend(deployments, retry=retry, **options)


async def call(backend, run, request):
    """`complete` or `acomplete`, as named."""
    answer = getattr(backend, run)(request)
    return await answer if asyncio.iscoroutine(answer) else answer


@pytest.fixture(params=["ollama", "litellm"])
def kind(request):
    return request.param


@pytest.fixture
def server(kind):
    with OllamaServer(cold_load_s=0.0) if kind == "ollama" else OpenAIServer() as running:
        yield running


def test_complete(kind, server):
    backend = make(kind, server)
    assert isinstance(backend, Backend)
    server.queue(Reply(content="fine", prompt_tokens=21, completion_tokens=4, prefill_s=0.2, decode_s=0.6))
    answer = backend.complete(ask(stop=["x"], seed=7, extra={"task": "t1", "step": 0}))
    assert (answer.content, answer.finish_reason, answer.attempts) == ("fine", "stop", 1)
    assert answer.usage == Usage(21, 4)
    assert answer.timings == Timings(0.0, 0.2, 0.6)
    assert answer.model_reported == "small"
    assert answer.seconds > 0
    (sent,) = (received.body for received in server.calls)
    options = sent["options"] if kind == "ollama" else sent
    assert (sent["model"], sent["messages"]) == ("small", [{"role": "user", "content": "hi"}])
    assert (options["temperature"], options["stop"], options["seed"]) == (0.0, ["x"], 7)
    assert options["num_predict" if kind == "ollama" else "max_tokens"] == 9
    assert "task" not in sent


async def test_acomplete_and_another_loop(kind, server):
    backend = make(kind, server)
    assert (await backend.acomplete(ask())).content == "ok"
    assert await asyncio.to_thread(lambda: asyncio.run(backend.acomplete(ask("large"))).model_reported) == "large"


async def test_tools_and_schema_reach_the_model_and_tool_calls_come_back(kind, server):
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {}}}}
    for run in ("complete", "acomplete"):
        server.queue(Reply(content="", tool_calls=[{"name": "add", "arguments": {"x": 1}}]))
        answer = await call(make(kind, server), run, ask(tools=[TOOL], response_format=schema))
        (wanted,) = answer.tool_calls
        assert (wanted.name, wanted.arguments, answer.finish_reason) == ("add", '{"x": 1}', "tool_calls")
        assert wanted.id
    sent = server.calls[-1].body
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["add"]
    wanted = sent["format"] if kind == "ollama" else sent["response_format"]["json_schema"]["schema"]
    assert wanted == {"type": "object", "properties": {}}


async def test_busy_and_broken_servers_are_asked_again(kind, server):
    for run in ("complete", "acomplete"):
        waits = []
        server.queue(Reply(status=429, headers={"Retry-After": "3"}), Reply(status=500), Reply(content="at last"))
        answer = await call(make(kind, server, waits), run, ask())
        assert (answer.content, answer.attempts, waits) == ("at last", 3, [3.0, 1.0])


@pytest.mark.parametrize("status", [400, 401, 404])
def test_refusals_are_not_asked_again_and_hold_no_key(kind, server, status):
    server.queue(Reply(status=status, error=f"no: {KEY}"))
    with pytest.raises(BackendError) as caught:
        make(kind, server).complete(ask())
    error = caught.value
    assert (error.model, error.phase, error.status, error.retryable) == ("small", "request", status, False)
    assert KEY not in str(error)
    assert "no: REDACTED" in str(error)
    assert len(server.calls) == 1


async def test_a_server_that_is_down(kind):
    for run in ("complete", "acomplete"):
        waits = []
        with pytest.raises(BackendError) as caught:
            await call(make(kind, None, waits), run, ask())
        assert (caught.value.phase, caught.value.status, len(waits)) == ("connect", None, 2)


@pytest.mark.parametrize("raw", [b"<html>proxy</html>", b"[]", b""])
def test_an_unreadable_answer(kind, server, raw):
    server.queue(*[Reply(raw=raw)] * 3)
    with pytest.raises(BackendError) as caught:
        make(kind, server).complete(ask())
    assert caught.value.phase == "response"


async def test_a_server_that_hangs_times_out(kind, server):
    for run in ("complete", "acomplete"):
        server.queue(Hang())
        with pytest.raises(BackendError) as caught:
            await call(make(kind, server), run, ask(timeout=0.2))
        assert (caught.value.phase, caught.value.retryable) == ("timeout", True)
    assert len(server.calls) <= 2  # not asked again; on a busy machine the time may be up before the server has read


async def test_cancelling_a_call_does_not_wait_for_the_server(kind, server):
    server.queue(Hang())
    task = asyncio.create_task(make(kind, server).acomplete(ask()))
    await asyncio.to_thread(server.hung.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(server.calls) == 1


def test_an_unknown_ollama_model(ollama_server):
    with pytest.raises(BackendError, match=r"request failed \(HTTP 404\): model 'nope' not found"):
        make("ollama", ollama_server).complete(ask("nope"))


def test_ollama_load_time_loaded_models_and_names(ollama_server):
    backend = make("ollama", ollama_server, models={"tiny": "small"}, keep_alive="5m")
    assert backend.ps() == ()
    assert not backend.is_loaded("tiny")
    assert backend.complete(ask("tiny")).timings == Timings(2.0, 0.1, 0.5)
    assert backend.ps() == (LoadedModel("small", 1000, 0),)
    assert backend.is_loaded("tiny")
    assert backend.complete(ask("tiny")).timings == Timings(0.0, 0.1, 0.5)
    assert ollama_server.calls[0].body["keep_alive"] == "5m"
    with pytest.raises(BackendError, match="connect failed"):
        make("ollama", None).ps()


def test_a_litellm_deployment_needs_a_model():
    litellm = pytest.importorskip("steproute.integrations.litellm")
    with pytest.raises(ConfigError, match=r"deployments\.small\.model: missing"):
        litellm.LiteLLMBackend({"small": {"api_base": "x"}})


@pytest.mark.parametrize(
    ("module", "backend", "extra"),
    [
        ("ollama", "OllamaBackend", "ollama"),
        ("litellm", "LiteLLMBackend", "litellm"),
        ("xllamacpp", "LocalBackend", "local"),
    ],
)
def test_a_missing_extra_is_named(module, backend, extra, monkeypatch):
    import importlib
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == module else real(name, *rest))
    monkeypatch.setitem(sys.modules, module, None)
    build = getattr(importlib.import_module(f"steproute.integrations.{extra}"), backend)
    with pytest.raises(ImportError, match=rf'pip install "steproute\[{extra}\]"'):
        build({})


def test_importing_the_backends_imports_no_client():
    import subprocess

    names = "ollama litellm local cassette scripted"
    code = (
        f"import sys; [__import__(f'steproute.integrations.{{n}}') for n in {names.split()}];"
        "print([m for m in ('ollama', 'litellm', 'xllamacpp', 'vcr', 'httpx', 'openai') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
