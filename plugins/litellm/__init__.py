"""LiteLLM: a logger that narrows deployments to the model steproute chooses, and a strategy for synchronous callers.

LiteLLM takes seconds to import, so each part is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import TYPE_CHECKING, Any

from steproute.plugins.litellm.context import labels

if importlib.util.find_spec("litellm") is None:
    raise ImportError("steproute.plugins.litellm needs LiteLLM; install it with: pip install 'steproute[litellm]'")

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import fetches a price list from the network

if TYPE_CHECKING:
    from steproute.plugins.litellm.routing import StepRouting
    from steproute.plugins.litellm.strategy import StepRoutingStrategy

    proxy: StepRouting

_PLACES = {"StepRouting": "routing", "StepRoutingStrategy": "strategy", "proxy": "shared"}

__all__ = ["StepRouting", "StepRoutingStrategy", "labels", "proxy"]


def __getattr__(name: str) -> Any:
    """`proxy` is the one instance of this process, made from `STEPROUTE_CONFIG` when LiteLLM's proxy asks for it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
