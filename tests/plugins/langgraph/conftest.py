from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langgraph_doubles import LARGE, SMALL
from servers import OpenAIServer, Reply

from steproute import Budget, Router

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else LiteLLM asks the network for prices


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda body: Reply(content=f"{body['model']} speaking")) as running:
        yield running


@pytest.fixture
def chat(server: OpenAIServer) -> Callable[..., Any]:
    """A real OpenAI client of the fake server."""
    openai = pytest.importorskip("langchain_openai")

    def make(model: str, **more: Any) -> Any:
        options = {"base_url": server.base_url, "api_key": "none", "max_retries": 0, **more}
        return openai.ChatOpenAI(model=model, **options)

    return make


@pytest.fixture
def clients(chat: Callable[..., Any]) -> dict[str, Any]:
    return {"small": chat("small"), "large": chat("large")}


@pytest.fixture
def make_router() -> Callable[..., Router]:
    """A router over `small` and `large` whose own faults are test failures."""

    def make(
        policy: Any = "fixed:small", budget: Budget | None = None, models: Any = (SMALL, LARGE), **more: Any
    ) -> Router:
        return Router(models, budget=budget, policy=policy, **{"seed": 0, "on_error": "raise", **more})

    return make
