"""Reads the messages, tools and responses of ag2 ≥ 1.0. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from ag2.events import (
    BaseEvent,
    BinaryInput,
    BinaryType,
    DataInput,
    Input,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextInput,
    ToolErrorEvent,
    ToolResultsEvent,
    UrlInput,
    Usage,
)

from steproute.ledger import Outcome
from steproute.models import Needs
from steproute.plugins.ag2.calls import CHARACTERS_PER_TOKEN, Call, describe

IMAGE_TOKENS = 1000
"""What an image counts for before its price is known."""


def describe_call(
    role: str,
    prompt: Iterable[str],
    messages: Sequence[BaseEvent],
    tools: Sequence[Any],
    response_schema: Any,
    max_tokens: int | None,
    timeout_s: float | None,
) -> Call:
    """What the router needs to know about a call.

    Args:
        role: worker it is made for.
        prompt: the system prompt.
        messages: history and the message to answer.
        tools: schemas of the tools the call carries.
        response_schema: schema of the reply, or None.
        max_tokens: limit of the completion, or None.
        timeout_s: limit of its duration, or None.
    """
    characters, images, last = sum(map(len, prompt)), 0, ""
    for message in messages:
        text = text_of(message)
        characters += len(text)
        images += sum(map(_is_image, _parts(message)))
        if isinstance(message, ModelRequest) and text:
            last = text
    characters += sum(len(_json(tool)) for tool in tools)
    schema = getattr(response_schema, "json_schema", None)
    characters += len(_json(schema)) if schema else 0
    tokens = characters // CHARACTERS_PER_TOKEN + images * IMAGE_TOKENS
    needs = Needs(
        tools=bool(tools), vision=images > 0, structured=bool(schema), context_tokens=tokens + (max_tokens or 0)
    )
    return Call(role, tokens, needs, last, max_tokens, timeout_s)


def text_of(event: BaseEvent) -> str:
    """What a message says, tool calls and results included."""
    if isinstance(event, ModelMessage):
        return event.content
    if isinstance(event, ModelResponse):
        calls = "".join(call.name + call.arguments for call in event.tool_calls.calls)
        return (event.content or "") + calls
    return "\n".join(_text(part) for part in _parts(event))


def _parts(event: BaseEvent) -> Iterator[Input]:
    if isinstance(event, ModelRequest):
        yield from event.parts
    elif isinstance(event, ToolResultsEvent):
        for result in event.results:
            yield from result.result.parts


def _text(part: Input) -> str:
    if isinstance(part, TextInput):
        return part.content
    return _json(part.data) if isinstance(part, DataInput) else ""


def _is_image(part: Input) -> bool:
    return isinstance(part, (BinaryInput, UrlInput)) and part.kind is BinaryType.IMAGE


def _json(value: Any) -> str:
    return json.dumps(asdict(value) if is_dataclass(value) and not isinstance(value, type) else value, default=str)


def tool_results(messages: Sequence[BaseEvent]) -> Iterator[tuple[str, str]]:
    """Call id and error (empty when it worked) of the tools that ran since the last reply."""
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            return
        if isinstance(message, ToolResultsEvent):
            for result in message.results:
                yield result.parent_id, describe(result.error) if isinstance(result, ToolErrorEvent) else ""


def tool_calls(response: ModelResponse) -> list[tuple[str, str, str]]:
    """Call id, tool name and arguments of each tool the reply asks for."""
    return [(call.id, call.name, call.arguments) for call in response.tool_calls.calls]


def outcome_of(response: ModelResponse, call: Call, seconds: float) -> Outcome:
    """Usage and time of a call that returned; a response that knows its own `seconds` is believed."""
    prompt, completion, cached, written = _tokens(response.usage, response.provider)
    missing = not prompt and not completion
    if missing:
        prompt, completion = call.prompt_tokens, len(text_of(response)) // CHARACTERS_PER_TOKEN
    own: float | None = getattr(response, "seconds", None)
    return Outcome(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=cached,
        written_tokens=written,
        tokens_estimated=missing,
        seconds=seconds if own is None else own,
    )


def _tokens(usage: Usage, provider: str | None) -> tuple[int, int, int, int]:
    prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
    cached, thinking = usage.cache_read_input_tokens or 0, usage.thinking_tokens or 0
    written = usage.cache_creation_input_tokens or 0
    if provider in ("anthropic", "bedrock"):  # they count the cached part of the prompt apart
        prompt += cached + written
    elif usage.total_tokens and thinking and usage.total_tokens == prompt + completion + thinking:
        completion += thinking  # Gemini counts thoughts apart
    cached = min(cached, prompt)
    return int(prompt), int(completion), int(cached), int(min(written, prompt - cached))
