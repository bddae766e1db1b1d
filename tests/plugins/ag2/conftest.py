from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from servers import OpenAIServer, Reply

from steproute import Budget, Model, Price, Router

MODELS = (
    Model("small", price=Price(input=1, output=2), deployment="small-1b", size_b=1),
    Model("large", price=Price(input=10, output=20), deployment="large-70b", size_b=70),
)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(lambda body: Reply(content=f"{body['model']} speaking")) as running:
        yield running


@pytest.fixture
def make_router() -> Callable[..., Router]:
    """A router over `small` and `large` whose own faults are test failures."""

    def make(policy: Any = "fixed:small", budget: Budget | None = None, **more: Any) -> Router:
        return Router(MODELS, budget=budget, policy=policy, **{"seed": 0, "on_error": "raise", **more})

    return make
