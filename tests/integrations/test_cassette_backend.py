import json
from pathlib import Path

import pytest
from servers import OllamaServer, OpenAIServer, Reply

from steproute.backend import Backend, BackendError, ChatRequest, Timings, ToolCall, Usage
from steproute.errors import ConfigError
from steproute.integrations.cassette import CassetteBackend
from steproute.integrations.litellm import LiteLLMBackend
from steproute.integrations.ollama import OllamaBackend
from steproute.testing import CassetteMismatch, routed_cassette
from steproute.testing.exchange import load_cassette

SAMPLE = Path(__file__).parents[1] / "data" / "cassettes" / "HumanEval_13.yaml"
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def ask(model="small", text="hi", **fields):
    return ChatRequest(model, [{"role": "user", "content": text}], **fields)


@pytest.fixture
def recorded(tmp_path):
    """A folder with what each kind of server answered, streams included."""
    import httpx

    body = {"messages": [{"role": "user", "content": "hi"}]}
    script = {
        "small": Reply("a b c"),
        "small-stream": Reply("a b c"),
        "large": Reply("", tool_calls=[{"name": "add", "arguments": {"x": 1}}]),
    }
    with (
        OpenAIServer(lambda body: script[body["model"]]) as server,
        routed_cassette(tmp_path / "openai.yaml", "record"),
    ):
        stream = {"stream": True, "stream_options": {"include_usage": True}}
        httpx.post(f"{server.base_url}/chat/completions", json=body | {"model": "small"})
        httpx.post(f"{server.base_url}/chat/completions", json=body | stream | {"model": "small-stream"})
        httpx.post(f"{server.base_url}/chat/completions", json=body | {"tools": [TOOL], "model": "large"})
        server.queue(Reply(status=429, headers={"retry-after": "7"}, error="slow down"))
        httpx.post(f"{server.base_url}/chat/completions", json=body | {"model": "busy"})
        httpx.post(f"{server.base_url}/embeddings", json={"model": "e", "input": "x"})
    names = ("o", "o-stream", "o-generate")
    with OllamaServer(models=names, cold_load_s=1.0) as server, routed_cassette(tmp_path / "ollama.yaml", "record"):
        httpx.post(f"{server.url}/api/chat", json=body | {"model": "o", "stream": False})
        httpx.post(f"{server.url}/api/chat", json=body | {"model": "o-stream"})
        httpx.post(f"{server.url}/api/generate", json={"model": "o-generate", "prompt": "hi"})
    return tmp_path


async def test_every_kind_of_answer_is_read(recorded):
    backend = CassetteBackend(recorded)
    assert isinstance(backend, Backend)
    plain = backend.complete(ask("small"))
    assert (plain.content, plain.usage, plain.timings) == ("a b c", Usage(11, 17), Timings(0.0, 0.1, 0.5))
    assert plain.seconds == pytest.approx(0.6)
    streamed = await backend.acomplete(ask("small-stream"))
    assert (streamed.content, streamed.usage, streamed.timings) == ("a b c", Usage(11, 17), None)
    assert backend.complete(ask("large", tools=[TOOL])).tool_calls == (ToolCall("call_0", "add", '{"x": 1}'),)
    for model in ("o", "o-stream", "o-generate"):
        answer = backend.complete(ask(model))
        assert (answer.content, answer.timings, answer.usage) == ("ok", Timings(1.0, 0.1, 0.5), Usage(11, 17))


def test_a_recorded_error_is_an_error(recorded):
    with pytest.raises(BackendError, match="slow down") as caught:
        CassetteBackend(recorded).complete(ask("busy"))
    assert (caught.value.status, caught.value.retryable, caught.value.retry_after_s) == (429, True, 7.0)


def test_an_unrecorded_request_names_task_step_and_model(recorded):
    backend = CassetteBackend(recorded)
    with pytest.raises(CassetteMismatch) as caught:
        backend.complete(ask("medium", extra={"task": "HumanEval/51", "step": 2}))
    message = str(caught.value)
    assert message.startswith(
        "task 'HumanEval/51', step 2, model 'medium': this request was never recorded (2 cassettes"
    )
    assert "the same messages are recorded for: busy, large, o, o-generate, o-stream, small, small-stream" in message
    with pytest.raises(CassetteMismatch, match=r"^model 'small': .*\n.*\n.*\nmessage 1 \(user\) differs:\n[^$]*\+ho"):
        backend.complete(ask("small", "ho"))


def test_the_nearest_recording_is_looked_for_in_the_tasks_own_file():
    request = json.loads(load_cassette(SAMPLE)[0].request_body)
    changed = [*request["messages"][:-1], {"role": "user", "content": request["messages"][-1]["content"] + " Please."}]
    with pytest.raises(CassetteMismatch) as caught:
        CassetteBackend(SAMPLE.parent).complete(ChatRequest(request["model"], changed, extra={"task": "HumanEval/13"}))
    assert caught.value.nearest is not None
    assert caught.value.nearest.source == "HumanEval_13.yaml #1"
    assert "Please." in str(caught.value)


def test_tools_and_model_count_and_sampling_does_not(recorded):
    backend = CassetteBackend(recorded)
    assert backend.complete(ask("small", temperature=1.0, seed=4, max_tokens=1)).content == "a b c"
    with pytest.raises(CassetteMismatch, match=r"tools: recorded \[\], asked \[add\]"):
        backend.complete(ask("small", tools=[TOOL]))


def test_files_of_tasks(tmp_path):
    for name in ("HumanEval_1", "HumanEval_2"):
        (tmp_path / f"{name}.yaml").write_text(SAMPLE.read_text())
    assert [file.stem for file in CassetteBackend(tmp_path).files] == ["HumanEval_1", "HumanEval_2"]
    assert [file.stem for file in CassetteBackend(tmp_path, tasks=["HumanEval/2"]).files] == ["HumanEval_2"]
    with pytest.raises(ConfigError, match=r"tasks: 'HumanEval/3' has no recording; looked for .*HumanEval_3\.yaml"):
        CassetteBackend(tmp_path, tasks=["HumanEval/3"])
    with pytest.raises(ConfigError, match="no file or folder"):
        CassetteBackend(tmp_path / "gone")


def test_an_answer_of_another_api_is_a_backend_error(tmp_path):
    text = SAMPLE.read_text().split("- request:")
    broken = text[0] + "- request:" + text[1].replace('"choices"', '"output"')
    (tmp_path / "a.yaml").write_text(broken)
    request = json.loads(load_cassette(tmp_path / "a.yaml")[0].request_body)
    with pytest.raises(BackendError, match=r"a\.yaml #1: not an answer this backend reads"):
        CassetteBackend(tmp_path).complete(ChatRequest(request["model"], request["messages"]))


@pytest.mark.parametrize("kind", ["ollama", "litellm"])
def test_live_backends_get_the_recorded_answers_from_a_server_that_replays_them(kind):
    request = json.loads(load_cassette(SAMPLE)[0].request_body)
    model, messages = request["model"], request["messages"]
    want = CassetteBackend(SAMPLE).complete(ChatRequest(model, messages))
    if kind == "ollama":
        with OllamaServer(upstream=[SAMPLE], models=[model], cold_load_s=0.0) as server:
            got = OllamaBackend(server.url).complete(ChatRequest(model, messages))
    else:
        with OpenAIServer(upstream=[SAMPLE]) as server:
            deployment = {"model": f"openai/{model}", "api_base": server.base_url, "api_key": "none"}
            backend = LiteLLMBackend({model: deployment})
            got = backend.complete(ChatRequest(model, messages))
            with pytest.raises(BackendError, match="not recorded for model"):
                backend.complete(ChatRequest(model, [{"role": "user", "content": "something else"}]))
    assert (got.content, got.usage, got.finish_reason) == (want.content, want.usage, want.finish_reason)
    assert got.timings is not None
    assert want.timings is not None
    assert got.timings.decode_s == pytest.approx(want.timings.decode_s)
