"""The candidate models of a run, from the command line or from a file with prices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from steproute.config import load_config
from steproute.errors import ConfigError
from steproute.models import Model, Price

_FREE = ("ollama", "local")
"""Backends whose models run on the user's own machine."""


def candidates(
    names: Sequence[str], backend: str, power_w: float | None = None, base_url: str | None = None
) -> list[Model]:
    """The pool of a run.

    Args:
        names: one `name` or `name=deployment` for each model, smallest first; or a single path that ends in `.yaml`,
            whose `models` are taken with their prices, sizes and profiles.
        backend: models of `ollama` and `local` are free, since they run on the user's machine; those of `litellm` cost what
            LiteLLM's own list says, and are of unknown price where it does not have them.
        power_w: board power in watts while a call runs, given by the user; makes joules of seconds.
        base_url: a server of the user's own, to which the list does not apply.

    Raises:
        ConfigError: no model is named, or the file cannot be used.
    """
    if not names:
        raise ConfigError(
            "models: none given; e.g. --models small=openai/gpt-5-nano,large=openai/gpt-5, or a YAML file with prices"
        )
    if len(names) == 1 and names[0].endswith((".yaml", ".yml")):
        models = list(load_config(names[0])["models"])
    else:
        pairs = [name.partition("=") for name in names]
        models = []
        for name, _, deployment in pairs:
            price: Price | Literal["free", "unknown"] = "free" if backend in _FREE else "unknown"
            if backend == "litellm" and base_url is None:
                price = listed_price(deployment or name)
            models.append(Model(name, price=price, deployment=deployment))
    if power_w is None:
        return models
    return [
        model.model_copy(update={"profile": model.profile.model_copy(update={"power_w": power_w})}) for model in models
    ]


def listed_price(deployment: str) -> Price | Literal["unknown"]:
    """The price in LiteLLM's list as it ships with the installed version; nothing is fetched.

    Args:
        deployment: LiteLLM's name, `provider/model`.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else importing LiteLLM asks the network
    try:
        from litellm import model_cost
    except ImportError:
        return "unknown"  # the backend will say what is missing
    entry = model_cost.get(deployment) or model_cost.get(deployment.partition("/")[2]) or {}
    paid, made = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    if paid is None or made is None:
        return "unknown"
    read = entry.get("cache_read_input_token_cost")
    millions = [None if amount is None else round(amount * 1e6, 9) for amount in (paid, made, read)]
    return Price(input=millions[0] or 0.0, output=millions[1] or 0.0, cached_input=millions[2])
