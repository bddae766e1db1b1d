"""What a call cost and said, read from what LiteLLM hands to its loggers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from steproute.ledger import Outcome
from steproute.plugins.litellm.conversations import fingerprint
from steproute.redact import redact

SECONDS = "steproute_seconds"
"""Key of a response's hidden parameters under which a provider may say how long its server took."""
_OUTPUT_KEPT = 20_000
_UNPRICED_BY_TOKENS = ("image", "speech", "transcription", "video", "ocr", "search", "rerank", "moderation")
"""Kinds of call whose price is not that of tokens: LiteLLM's own cost counts."""


def outcome_of(
    event: Mapping[str, Any], response: Any, start: Any, end: Any, use_cost: bool, *, call_id: str, model: str
) -> Outcome:
    """Read a call that returned.

    Args:
        event: LiteLLM's `kwargs` of the log event.
        response: what came back; of a stream the whole put together.
        start: when the call began.
        end: when it ended.
        use_cost: True = take LiteLLM's own cost where it knows one, since the pool has no price.
        call_id: what it is billed under.
        model: its name in the pool.
    """
    seconds = _get(_hidden(response), SECONDS)
    took = float(seconds) if isinstance(seconds, (int, float)) else seconds_between(start, end)
    if event.get("cache_hit"):  # LiteLLM's own cache answered: no provider was asked
        return Outcome(call_id=call_id, model=model, seconds=took, usd=0.0)
    usage = _fields(_get(response, "usage") or event.get("standard_logging_object"))
    said, written = usage.get("prompt_tokens"), _count(usage.get("cache_creation_input_tokens"))
    if said is not None:
        prompt, details = _count(said), usage.get("prompt_tokens_details")
        cached = _count(_get(details, "cached_tokens"))
        written = _count(_get(details, "cache_creation_tokens")) or written
    else:
        prompt, details = _count(usage.get("input_tokens")), usage.get("input_tokens_details")
        read = usage.get("cache_read_input_tokens")
        cached = _count(_get(details, "cached_tokens") if read is None else read)
        if read is not None:  # Anthropic counts the cached ones apart
            prompt += cached + written
    completion = usage.get("completion_tokens")
    completion = _count(usage.get("output_tokens") if completion is None else completion)
    cost, usd = event.get("response_cost"), None
    if isinstance(cost, (int, float)) and 0 <= cost < math.inf and ((use_cost and cost > 0) or not _by_tokens(event)):
        usd = float(cost)
    return Outcome(
        call_id=call_id,
        model=model,
        seconds=took,
        prompt_tokens=prompt,
        cached_tokens=min(cached, prompt),
        written_tokens=min(written, max(prompt - cached, 0)),
        completion_tokens=completion,
        tokens_estimated=_estimated(event, response, prompt, completion, details is not None),
        usd=usd,
    )


def failure_of(event: Mapping[str, Any], start: Any, end: Any) -> Outcome:
    """Read a call that failed."""
    error = event.get("exception")
    text = " ".join(redact(str(error)).split())[:300]
    return Outcome(seconds=seconds_between(start, end), error=f"{type(error).__name__}: {text}")


def blameless(event: Mapping[str, Any]) -> bool:
    """Whether a failure says nothing about the model: the request itself was refused."""
    return getattr(event.get("exception"), "status_code", None) in (400, 413, 422)


def seconds_between(start: Any, end: Any) -> float:
    """Duration in seconds; 0 where it is not known."""
    if isinstance(start, datetime) and isinstance(end, datetime):
        return max((end - start).total_seconds(), 0.0)
    if isinstance(start, (int, float)) and isinstance(end, (int, float)):
        return max(float(end - start), 0.0)
    return 0.0


def text_of(response: Any) -> str:
    """What was answered: a chat completion's content, a response's or an Anthropic message's text parts."""
    for choice in _get(response, "choices") or ():
        message = _get(choice, "message")
        return str(_get(message, "content") or _get(choice, "text") or "")[:_OUTPUT_KEPT]
    parts: list[str] = []
    for item in _get(response, "output") or _get(response, "content") or ():
        content = _get(item, "content")
        for part in content if isinstance(content, Sequence) and not isinstance(content, str) else (item,):
            text = _get(part, "text")
            if isinstance(text, str):
                parts.append(text)
    return "".join(parts)[:_OUTPUT_KEPT]


def tool_calls_of(response: Any) -> Iterator[tuple[str, str, str]]:
    """(id, name, arguments) of each tool the reply asks for."""
    choices = _get(response, "choices")
    for choice in choices or ():
        for call in _get(_get(choice, "message"), "tool_calls") or ():
            function = _get(call, "function")
            yield str(_get(call, "id") or ""), str(_get(function, "name") or ""), str(_get(function, "arguments") or "")
    if choices:
        return
    for item in _get(response, "output") or _get(response, "content") or ():
        if _get(item, "type") in ("function_call", "tool_use"):
            arguments = _get(item, "arguments") or _get(item, "input")
            yield (
                str(_get(item, "call_id") or _get(item, "id") or ""),
                str(_get(item, "name") or ""),
                str(arguments or ""),
            )


def id_of(response: Any) -> str:
    """The provider's id of a response."""
    found = _get(response, "id")
    return found if isinstance(found, str) else ""


def reply_digest(response: Any) -> bytes:
    """Fingerprint that the reply has once a client sends it back as a message."""
    calls = [
        {"function": {"name": name, "arguments": arguments}}
        for choice in (_get(response, "choices") or ())[:1]
        for _, name, arguments in tool_calls_of({"choices": [choice]})
    ]
    return fingerprint({"role": "assistant", "content": text_of(response), "tool_calls": calls})


def _by_tokens(event: Mapping[str, Any]) -> bool:
    """Whether a call is of a kind whose price is that of its tokens."""
    kind = str(event.get("call_type"))
    return kind == "acompletion" or not any(other in kind for other in _UNPRICED_BY_TOKENS)


def _estimated(event: Mapping[str, Any], response: Any, prompt: int, completion: int, detailed: bool) -> bool:
    """Whether LiteLLM counted the tokens itself, as it does for a stream whose server reported none and does not tell.

    A server that reports usage usually adds details; where there are none, LiteLLM's count is made again and compared.
    """
    if not event.get("stream"):
        return prompt == 0 and completion == 0
    if detailed:
        return False
    import litellm

    model, messages = str(event.get("model") or ""), event.get("messages")
    try:
        own = litellm.token_counter(model=model, text=text_of(response), count_response_tokens=True)
        if own != completion:
            return False
        return not messages or litellm.token_counter(model=model, messages=messages) == prompt
    except OSError:  # some tokenizers are fetched from the network
        return True


# What pydantic keeps beside the declared fields is slow to ask for by name, and slower where there is no such name.


def _hidden(response: Any) -> Any:
    private = getattr(response, "__pydantic_private__", None) or {}
    return private.get("_hidden_params") or getattr(response, "_hidden_params", None)


def _fields(value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    return {**getattr(value, "__dict__", {}), **(getattr(value, "__pydantic_extra__", None) or {})}


def _get(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name)
    beside = getattr(value, "__pydantic_extra__", None)
    return beside[name] if beside and name in beside else getattr(value, name, None)


def _count(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) and value > 0 else 0
