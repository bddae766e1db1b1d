"""What a deployment costs and how long a prompt it takes, by LiteLLM's configuration and price list.

LiteLLM's own cost of a call is not used where tokens are priced: it takes an explicit price of zero for none, knows no
model behind a bare `openai/` prefix, and calls everything of Ollama free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from steproute.models import Price

_MILLION = 1_000_000
_HOSTED_OLLAMA = "ollama.com"


def price_of(deployment: Mapping[str, Any]) -> Price | Literal["unknown"]:
    """Prices given with the deployment, else those of LiteLLM's list; a local Ollama without any is free."""
    params, info = _parts(deployment)
    for place in (params, info, *_listed(deployment)):
        found = _price(place)
        if found is not None:
            return found
    if _provider(params) in ("ollama", "ollama_chat") and _HOSTED_OLLAMA not in str(params.get("api_base") or ""):
        return Price(input=0, output=0)
    return "unknown"


def longest_prompt(deployment: Mapping[str, Any]) -> int | None:
    """`max_input_tokens` of the deployment, else of LiteLLM's list."""
    params, info = _parts(deployment)
    for place in (info, params, *_listed(deployment)):
        limit = place.get("max_input_tokens")
        if isinstance(limit, int) and limit > 0:
            return limit
    return None


def can(deployment: Mapping[str, Any], ability: str) -> bool | None:
    """Whether a model supports something (`vision`, `function_calling`, `response_schema`); None = nobody says."""
    _, info = _parts(deployment)
    for place in (info, *_listed(deployment)):
        said = place.get(f"supports_{ability}")
        if isinstance(said, bool):
            return said
    return None


def _price(place: Mapping[str, Any]) -> Price | None:
    given = [_number(place.get(f"{side}_cost_per_token")) for side in ("input", "output")]
    if given[0] is None and given[1] is None:
        return None
    cached, written = (_number(place.get(f"cache_{name}_input_token_cost")) for name in ("read", "creation"))
    return Price(
        input=(given[0] or 0) * _MILLION,
        output=(given[1] or 0) * _MILLION,
        cached_input=None if cached is None else cached * _MILLION,
        cache_write=None if written is None else written * _MILLION,
    )


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < 1 else None


def _parts(deployment: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    params, info = deployment.get("litellm_params"), deployment.get("model_info")
    return (params if isinstance(params, Mapping) else {}), (info if isinstance(info, Mapping) else {})


def _provider(params: Mapping[str, Any]) -> str:
    return str(params.get("custom_llm_provider") or str(params.get("model") or "").partition("/")[0])


def _listed(deployment: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Entries of LiteLLM's price list: of the base model, else the model with its provider, else without."""
    import litellm

    params, info = _parts(deployment)
    model = str(params.get("model") or "")
    for name in (info.get("base_model"), params.get("base_model"), model, model.partition("/")[2]):
        entry = litellm.model_cost.get(name) if name else None
        # LiteLLM's router puts every deployment into that list by its id, with a price of 0 where it knows none
        if isinstance(entry, dict) and "id" not in entry and entry.get("litellm_provider"):
            yield entry
