"""What a reply cost: tokens as the provider counts them, else estimated; the model that says it answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage

from steproute.ledger import Outcome
from steproute.plugins.langgraph.prompt import CHARACTERS_PER_TOKEN, Prompt, shown
from steproute.redact import redact

SECONDS = "steproute_seconds"
"""Key of `response_metadata` under which a chat model may say how long its server took."""
ESTIMATED = "steproute_estimated"
"""Key under which it may say that its token counts are not the provider's."""
_NAME_KEYS = ("model_name", "model", "model_id")


def outcome_of(message: BaseMessage, prompt: Prompt | None, seconds: float) -> Outcome:
    """Read usage and time from a reply.

    Args:
        message: the reply.
        prompt: what was asked, to estimate from where the provider reports no usage.
        seconds: wall-clock duration; a server's own account in the reply's metadata goes before it.
    """
    meta = message.response_metadata
    told = meta.get(SECONDS)
    seconds = float(told) if isinstance(told, (int, float)) else seconds
    usage = _usage(message)
    if usage is None:
        return Outcome(
            seconds=seconds,
            prompt_tokens=prompt.tokens if prompt is not None else 0,
            completion_tokens=estimated_tokens(message),
            tokens_estimated=True,
        )
    if usage.get("total_cost") == 0:  # LangChain's own cache answered: no provider was asked
        return Outcome(seconds=seconds, usd=0.0)
    details = usage.get("input_token_details")
    details = details if isinstance(details, Mapping) else {}
    counts = (
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        details.get("cache_read"),
        details.get("cache_creation"),
    )
    asked, said, cached, written = [
        int(count) if isinstance(count, (int, float)) and count > 0 else 0 for count in counts
    ]
    cached = min(cached, asked)
    return Outcome(
        seconds=seconds,
        prompt_tokens=asked,
        completion_tokens=said,
        cached_tokens=cached,
        written_tokens=min(written, asked - cached),
        tokens_estimated=bool(meta.get(ESTIMATED)),
    )


def estimated_tokens(message: BaseMessage) -> int:
    """Completion tokens of a reply without usage, at 4 characters a token; at least one."""
    characters = len(shown(message)) if isinstance(message.content, list) else len(message.content)
    if isinstance(message, AIMessage):
        characters += sum(len(f"{call['name']}{call['args']}") for call in message.tool_calls)
    return max(characters // CHARACTERS_PER_TOKEN, 1)


def reported_model(message: BaseMessage) -> str:
    """The model the provider says answered; empty when it does not say."""
    for key in _NAME_KEYS:
        name = message.response_metadata.get(key)
        if isinstance(name, str) and name:
            return name
    return ""


def known_names(client: Any) -> Sequence[str]:
    """Names a chat model's provider may know it by."""
    bound = client
    while hasattr(bound, "bound"):
        bound = bound.bound
    found = [getattr(bound, key, None) for key in (*_NAME_KEYS, "deployment_name", "azure_deployment")]
    return [name for name in found if isinstance(name, str) and name]


def same_model(reported: str, known: str) -> bool:
    """Whether a reported name is that of a model: the same, a dated snapshot of it, or with a provider before it."""
    reported, known = reported.lower(), known.lower()
    return (
        reported == known
        or reported.startswith(f"{known}-20")
        or reported.rpartition("/")[2] == known.rpartition("/")[2]
    )


def describe(error: BaseException) -> str:
    """One short line about an error, without keys."""
    text = " ".join(redact(str(error)).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__


def _usage(message: BaseMessage) -> Mapping[str, Any] | None:
    usage = getattr(message, "usage_metadata", None)
    if usage:
        return cast("Mapping[str, Any]", usage)
    raw = message.response_metadata.get("token_usage") or message.response_metadata.get("usage")
    if not isinstance(raw, Mapping):
        return None
    prompt = raw.get("prompt_tokens", raw.get("input_tokens"))
    completion = raw.get("completion_tokens", raw.get("output_tokens"))
    if prompt is None and completion is None:
        return None
    details = raw.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else raw.get("cache_read_input_tokens")
    return {
        "input_tokens": prompt,
        "output_tokens": completion,
        "input_token_details": {"cache_read": cached or 0},
    }
