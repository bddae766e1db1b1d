from __future__ import annotations

import threading

import pytest

from steproute import Model, Outcome, Profile, Router
from steproute.backend import BackendError
from steproute.errors import ConfigError
from steproute.integrations.loaded import LoadedWatch

COLD = Profile(latency_s=1, load_s=9)


def seconds(router: Router, step: str, name: str) -> float:
    return router.decide("t", step=step).score_of(name).cost["seconds"]


def test_the_router_hears_what_is_loaded():
    router = Router(
        [Model(name, price="free", profile=COLD) for name in ("a", "b")], policy="fixed:a", on_error="raise"
    )
    loaded = ["b"]
    watch = LoadedWatch(lambda: loaded, router.told_loaded)
    assert (seconds(router, "0", "a"), seconds(router, "0x", "b")) == (10, 10)
    router.finish("t")
    watch.ask_now()
    assert (seconds(router, "1", "a"), seconds(router, "1x", "b")) == (10, 1)
    router.finish("t")
    loaded.clear()
    watch.ask_now()
    decision = router.decide("t", step="2")
    assert decision.score_of("b").cost["seconds"] == 10
    router.observe(decision, Outcome(completion_tokens=1, seconds=10))
    assert seconds(router, "3", decision.model.name) == 1


def test_a_server_that_does_not_answer_is_counted_and_nothing_changes(caplog):
    heard: list[list[str]] = []

    def ask() -> list[str]:
        raise BackendError("(any)", "connect", "refused")

    watch = LoadedWatch(ask, lambda names: heard.append(list(names)))
    watch.ask_now()
    watch.ask_now()
    assert (watch.failed, heard) == (2, [])
    assert caplog.text.count("is not known") == 1


def test_the_thread_asks_at_once_and_ends():
    heard = threading.Event()
    with LoadedWatch(lambda: ["a"], lambda names: heard.set(), interval_s=60) as watch:
        assert heard.wait(20)
    watch._thread.join(20)
    assert not watch._thread.is_alive()
    with pytest.raises(ConfigError, match="interval_s: seen 0"):
        LoadedWatch(list, list, interval_s=0)


def test_ollama_unloads(ollama_server):
    pytest.importorskip("ollama")
    from steproute.backend import ChatRequest
    from steproute.integrations.ollama import OllamaBackend

    backend = OllamaBackend(ollama_server.url, {"tiny": "small"})
    backend.complete(ChatRequest("tiny", [{"role": "user", "content": "hi"}]))
    assert backend.is_loaded("tiny")
    backend.unload("tiny")
    assert not backend.is_loaded("tiny")
