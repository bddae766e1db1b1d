"""LangGraph and LangChain: a node, a chat model and a middleware that route every step."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steproute.plugins.langgraph.chat_model import RoutedChatModel
    from steproute.plugins.langgraph.middleware import RoutingMiddleware
    from steproute.plugins.langgraph.node import finish_node, latest_decision, router_node
    from steproute.plugins.langgraph.schema import with_records

_PLACES = {
    "RoutedChatModel": "chat_model",
    "RoutingMiddleware": "middleware",
    "finish_node": "node",
    "latest_decision": "node",
    "router_node": "node",
    "with_records": "schema",
}

__all__ = [
    "RoutedChatModel",
    "RoutingMiddleware",
    "finish_node",
    "latest_decision",
    "router_node",
    "with_records",
]


def __getattr__(name: str) -> Any:
    """Each part needs a different package; only that of the part asked for is imported."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
