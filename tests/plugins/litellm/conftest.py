from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from servers.litellm_upstream import LiteLLMUpstream

pytest.importorskip("litellm")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import litellm

from steproute import Budget, Model, Price, Router
from steproute.plugins.litellm import StepRouting

SMALL = Model("small", price=Price(input=1, output=2), size_b=1)
LARGE = Model("large", price=Price(input=10, output=20), size_b=100)
HELLO = [{"role": "user", "content": "hello"}]
ONE_CALL = {"small": (11 * 1 + 17 * 2) / 1e6, "large": (11 * 10 + 17 * 20) / 1e6}
"""USD of a call with the fake server's usual usage of 11 and 17 tokens."""


class HeardRouting(StepRouting):
    """Counts what it has heard, so that a test can wait for an outcome."""

    def __init__(self, router: Router, **options: Any):
        super().__init__(router, **options)
        self._heard = 0
        self._change = threading.Condition()

    def _note(self) -> None:
        with self._change:
            self._heard += 1
            self._change.notify_all()

    def wait(self, events: int) -> None:
        with self._change:
            assert self._change.wait_for(lambda: self._heard >= events, timeout=20), f"heard {self._heard} of {events}"

    async def heard(self, events: int) -> None:
        """Wait until so many outcomes have been taken in, since the beginning."""
        await asyncio.to_thread(self.wait, events)

    async def async_log_success_event(self, *given: Any, **named: Any) -> None:
        await super().async_log_success_event(*given, **named)
        self._note()

    async def async_log_failure_event(self, *given: Any, **named: Any) -> None:
        await super().async_log_failure_event(*given, **named)
        self._note()

    def log_success_event(self, *given: Any, **named: Any) -> None:
        super().log_success_event(*given, **named)
        self._note()


@pytest.fixture
def server() -> Iterator[LiteLLMUpstream]:
    with LiteLLMUpstream() as running:
        yield running


@pytest.fixture
def deployment(server: LiteLLMUpstream) -> Callable[..., dict[str, Any]]:
    def make(group: str, name: str, info: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        given = {"model": f"openai/{name}", "api_base": server.base_url, "api_key": "none", **params}
        return {"model_name": group, "litellm_params": given, "model_info": {"id": name, **(info or {})}}

    return make


@pytest.fixture
def llm_router(deployment: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """A LiteLLM router with the group `chat` of `small` and `large`, unless told otherwise."""

    def make(*deployments: dict[str, Any], **options: Any) -> Any:
        listed = list(deployments) or [deployment("chat", "small"), deployment("chat", "large")]
        return litellm.Router(model_list=listed, **{"num_retries": 2, "retry_after": 0, **options})

    return make


@pytest.fixture
def routing() -> Iterator[Callable[..., HeardRouting]]:
    """Register the plugin with LiteLLM, for one test."""
    before = list(litellm.callbacks)
    litellm.suppress_debug_info = True

    def make(
        policy: Any = "cheapest", budget: Budget | None = None, models: Any = (SMALL, LARGE), **options: Any
    ) -> HeardRouting:
        own = {name: options.pop(name) for name in ("count_tokens", "ask_usage") if name in options}
        made = HeardRouting(Router(list(models), budget, policy, **{"seed": 0, "on_error": "raise", **options}), **own)
        litellm.callbacks[:] = [made]
        return made

    yield make
    litellm.callbacks[:] = before
    for name in ("success_callback", "failure_callback", "_async_success_callback", "_async_failure_callback"):
        getattr(litellm, name).clear()
    litellm.input_callback.clear()


def about(task: str, **more: Any) -> dict[str, Any]:
    """Metadata of a call."""
    return {"metadata": {"steproute": {"task": task, **more}}}


def models_called(server: LiteLLMUpstream) -> list[str]:
    return [received.body["model"] for received in server.calls]
