import pytest

from steproute.backend import Backend, BackendError, ChatRequest, ChatResponse, Usage
from steproute.integrations.scripted import ScriptedBackend


def ask(model="m", text="12345678"):
    return ChatRequest(model, [{"role": "user", "content": text}])


async def test_a_queue_a_function_and_one_per_model():
    queue = ScriptedBackend(["a", ChatResponse("b", usage=Usage(5, 6))], seconds=1.5)
    assert isinstance(queue, Backend)
    first = queue.complete(ask())
    assert (first.content, first.seconds, first.usage, first.model_reported) == (
        "a",
        1.5,
        Usage(2, 1, estimated=True),
        "m",
    )
    assert (await queue.acomplete(ask())).usage == Usage(5, 6)
    assert [request.model for request in queue.requests] == ["m", "m"]
    with pytest.raises(BackendError, match="no reply left"):
        queue.complete(ask())

    assert ScriptedBackend(lambda request: request.model.upper()).complete(ask("x")).content == "X"

    several = ScriptedBackend({"small": ["s"], "large": lambda request: "l"})
    assert [several.complete(ask(model)).content for model in ("large", "small")] == ["l", "s"]
    with pytest.raises(BackendError, match="it has: large, small"):
        several.complete(ask("medium"))


def test_exceptions_are_raised():
    down = BackendError("m", "connect", "refused", retryable=True)
    backend = ScriptedBackend([down, "ok"])
    with pytest.raises(BackendError, match="refused"):
        backend.complete(ask())
    assert backend.complete(ask()).content == "ok"
