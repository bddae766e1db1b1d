"""The harness's locked price table as models of ours."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steproute.errors import ConfigError, unknown_name
from steproute.models import Model, Price

TABLE = Path("data/dynamic/model_pricing.json")
"""Where a checkout of the harness keeps it."""
_PRICES = ("input_per_m", "output_per_m", "cache_read_per_m", "cache_write_per_m")


def price_table(path: str | Path = "") -> dict[str, Any]:
    """Prices by model id, from a file or from the harness's own checkout.

    Raises:
        ConfigError: there is no table, or it is not one; names the entry.
    """
    place = Path(path) if path else _checkout() / TABLE
    try:
        table = json.loads(place.read_text(encoding="utf-8"))["pricing"]
        for name, entry in table.items():
            for field in _PRICES:
                if not isinstance(entry[field], (int, float)) or entry[field] < 0:
                    raise ConfigError(f"pricing: {name}.{field}: seen {entry[field]!r}; allowed: 0 or more USD")
    except OSError as error:
        raise ConfigError(f"pricing: {place}: {error.strerror}") from None
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ConfigError(f"pricing: {place} is no price table ({type(error).__name__}: {error})") from None
    return dict(table)


def pool_of(names: Sequence[str], table: dict[str, Any]) -> list[Model]:
    """The harness's pool, cheapest output first, so that policies that look at the order climb in price.

    A prompt token that is not read from the cache costs the dearer of the input and the cache-write price: in a growing
    conversation nearly all of them are written.

    Raises:
        ConfigError: a model has no price; the harness would refuse the run as well.
    """
    for name in names:
        if name not in table:
            raise ConfigError(unknown_name("pricing", name, table))
    models = []
    for name in sorted(names, key=lambda item: table[item]["output_per_m"]):
        entry = table[name]
        price = Price(
            input=max(entry["input_per_m"], entry["cache_write_per_m"]),
            output=entry["output_per_m"],
            cached_input=entry["cache_read_per_m"],
        )
        models.append(Model(name, price=price, family=name.partition("/")[0]))
    dearest = max(model.price.output for model in models if model.price != "unknown") or 1.0
    # without sizes, the price list is the only public hint of strength: .3 for free to .7 for the dearest
    return [model.model_copy(update={"quality": 0.3 + 0.4 * _output(model) / dearest}) for model in models]


def _output(model: Model) -> float:
    return 0.0 if model.price == "unknown" else model.price.output


def _checkout() -> Path:
    spec = importlib.util.find_spec("swerouter")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            "pricing: give pricing=PATH, or run inside a checkout of TwinRouterBench (no module swerouter)"
        )
    return Path(next(iter(spec.submodule_search_locations))).parent
