"""The candidate models of a run, from the command line or from a file with prices."""

from __future__ import annotations

from collections.abc import Sequence

from steproute.config import load_config
from steproute.errors import ConfigError
from steproute.models import Model

_FREE = ("ollama", "local")
"""Backends whose models run on the user's own machine."""


def candidates(names: Sequence[str], backend: str, power_w: float | None = None) -> list[Model]:
    """The pool of a run.

    Args:
        names: one `name` or `name=deployment` for each model, smallest first; or a single path that ends in `.yaml`,
            whose `models` are taken with their prices, sizes and profiles.
        backend: decides whether a model named here is free (it runs on the user's machine) or of unknown price.
        power_w: board power in watts while a call runs, given by the user; makes joules of seconds.

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
        price = "free" if backend in _FREE else "unknown"
        pairs = [name.partition("=") for name in names]
        models = [Model(name, price=price, deployment=deployment) for name, _, deployment in pairs]
    if power_w is None:
        return models
    return [
        model.model_copy(update={"profile": model.profile.model_copy(update={"power_w": power_w})}) for model in models
    ]
