"""Requests and responses as OpenAI-compatible servers and Ollama write them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from steproute.backend import ChatRequest, ChatResponse, Timings, ToolCall, Usage

_CHARACTERS_PER_TOKEN = 4
"""Rule of thumb for English and code, where a server reports no usage."""


def openai_body(request: ChatRequest) -> dict[str, Any]:
    """The JSON body of `POST /v1/chat/completions`; what is not set is not sent."""
    fields = {
        "model": request.model,
        "messages": [dict(message) for message in request.messages],
        "tools": [dict(tool) for tool in request.tools] or None,
        "tool_choice": request.tool_choice if request.tools else None,
        "response_format": request.response_format,
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
        "stop": list(request.stop) or None,
        "seed": request.seed,
    }
    return {name: value for name, value in fields.items() if value is not None} | request.options()


def read_openai(data: Mapping[str, Any], request: ChatRequest | None = None) -> ChatResponse:
    """A chat completion as our response.

    Args:
        data: decoded JSON.
        request: what was asked, to estimate the usage of a server that reports none.

    Raises:
        ValueError: the data has no `choices[0].message`.
    """
    try:
        choice = data["choices"][0]
        message = choice["message"]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"no choices[0].message in {json.dumps(data, default=str)[:200]}") from error
    content = _text(message.get("content"))
    calls = tuple(_tool_call(call, number) for number, call in enumerate(message.get("tool_calls") or ()))
    timings = _llama_timings(data.get("timings"))
    return ChatResponse(
        content=content,
        tool_calls=calls,
        finish_reason=choice.get("finish_reason"),
        usage=_openai_usage(data.get("usage")) or estimated_usage(request, content),
        seconds=timings.total_s if timings else 0.0,
        timings=timings,
        model_reported=str(data.get("model") or ""),
        id=str(data.get("id") or ""),
    )


def merged_openai_stream(text: str) -> dict[str, Any]:
    """The completion that a body of server-sent events adds up to."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    whole: dict[str, Any] = {"choices": [{"index": 0, "message": message, "finish_reason": None}]}
    for chunk in _events(text):
        for name in ("id", "model", "usage", "timings"):
            if chunk.get(name):
                whole[name] = chunk[name]
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta") or {}
            message["content"] += delta.get("content") or ""
            whole["choices"][0]["finish_reason"] = choice.get("finish_reason") or whole["choices"][0]["finish_reason"]
            for part in delta.get("tool_calls") or ():
                call = calls.setdefault(part.get("index", 0), {"id": "", "function": {"name": "", "arguments": ""}})
                function = part.get("function") or {}
                call["id"] = part.get("id") or call["id"]
                call["function"]["name"] += function.get("name") or ""
                call["function"]["arguments"] += function.get("arguments") or ""
    if calls:
        message["tool_calls"] = [calls[number] for number in sorted(calls)]
    return whole


def _events(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            yield json.loads(data)


def ollama_fields(request: ChatRequest) -> dict[str, Any]:
    """Arguments of `ollama.Client.chat`. Ollama has no `tool_choice`: `none` and one named tool narrow the tools."""
    tools = [dict(tool) for tool in request.tools]
    if request.tool_choice == "none":
        tools = []
    elif isinstance(request.tool_choice, Mapping):
        wanted = (request.tool_choice.get("function") or {}).get("name")
        tools = [tool for tool in tools if (tool.get("function") or {}).get("name") == wanted] or tools
    extra = request.options()
    options = {
        "temperature": request.temperature,
        "num_predict": request.max_tokens,
        "stop": list(request.stop) or None,
        "seed": request.seed,
        **dict(extra.pop("options", None) or {}),
    }
    top: dict[str, Any] = {name: extra.pop(name) for name in ("keep_alive", "think", "format") if name in extra}
    fields: dict[str, Any] = {
        "messages": [_to_ollama(message) for message in request.messages],
        "tools": tools or None,
        "format": _ollama_format(request.response_format),
        "options": {name: value for name, value in {**options, **extra}.items() if value is not None},
        **top,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _ollama_format(response_format: Mapping[str, Any] | None) -> Any:
    if not response_format or response_format.get("type") == "text":
        return None
    schema = response_format.get("json_schema")
    return schema.get("schema", "json") if isinstance(schema, Mapping) else "json"


def _to_ollama(message: Mapping[str, Any]) -> dict[str, Any]:
    """An OpenAI message as Ollama takes it: text apart from images, tool arguments as objects."""
    content = message.get("content")
    changed: dict[str, Any] = {"role": message["role"], "content": _text(content)}
    if isinstance(content, Sequence) and not isinstance(content, str):
        urls = [part["image_url"]["url"] for part in content if part.get("type") == "image_url"]
        if urls:
            changed["images"] = [url.partition("base64,")[2] or url for url in urls]
    if message.get("tool_calls"):
        changed["tool_calls"] = [
            {"function": {"name": call["function"]["name"], "arguments": _arguments(call["function"].get("arguments"))}}
            for call in message["tool_calls"]
        ]
    if message.get("role") == "tool" and message.get("name"):
        changed["tool_name"] = message["name"]
    return changed


def _arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments or {}
    try:
        parsed = json.loads(arguments or "{}")
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"arguments": arguments}


def read_ollama(data: Mapping[str, Any], request: ChatRequest | None = None) -> ChatResponse:
    """An answer of Ollama's `/api/chat` or `/api/generate` as our response; durations are nanoseconds there.

    Raises:
        ValueError: the data holds neither a message nor a response.
    """
    message = data.get("message")
    if not isinstance(message, Mapping):
        if not isinstance(data.get("response"), str):
            raise ValueError(f"neither message nor response in {json.dumps(data, default=str)[:200]}")
        message = {"content": data["response"]}
    content = _text(message.get("content"))
    stamp = f"{data.get('created_at')}"
    calls = tuple(_tool_call(call, number, stamp) for number, call in enumerate(message.get("tool_calls") or ()))
    usage = Usage(int(data.get("prompt_eval_count") or 0), int(data.get("eval_count") or 0))
    if data.get("prompt_eval_count") is None or data.get("eval_count") is None:
        usage = estimated_usage(request, content)
    timings = None
    if data.get("eval_duration") is not None or data.get("prompt_eval_duration") is not None:
        load, prefill, decode = (
            float(data.get(name) or 0) / 1e9 for name in ("load_duration", "prompt_eval_duration", "eval_duration")
        )
        timings = Timings(load, prefill, decode)
    return ChatResponse(
        content=content,
        tool_calls=calls,
        finish_reason="tool_calls" if calls else data.get("done_reason"),
        usage=usage,
        seconds=float(data.get("total_duration") or 0) / 1e9,
        timings=timings,
        model_reported=str(data.get("model") or ""),
    )


def merged_ollama_stream(text: str) -> dict[str, Any]:
    """The answer that Ollama's JSON lines add up to: durations are on the last one."""
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    whole = dict(lines[-1]) if lines else {}
    if "response" in whole:
        return {**whole, "response": "".join(line.get("response") or "" for line in lines)}
    messages = [line.get("message") or {} for line in lines]
    content = "".join(message.get("content") or "" for message in messages)
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    return {**whole, "message": {"role": "assistant", "content": content, "tool_calls": calls}}


def estimated_usage(request: ChatRequest | None, content: str) -> Usage:
    """Tokens counted as characters / 4, for a server that reports none."""
    asked = sum(len(_text(message.get("content"))) for message in request.messages) if request else 0
    return Usage(_tokens(asked), _tokens(len(content)), estimated=True)


def _tokens(characters: int) -> int:
    return -(-characters // _CHARACTERS_PER_TOKEN)


def _openai_usage(usage: Any) -> Usage | None:
    if not isinstance(usage, Mapping) or usage.get("prompt_tokens") is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return Usage(int(usage["prompt_tokens"]), int(usage.get("completion_tokens") or 0), int(cached or 0))


def _llama_timings(timings: Any) -> Timings | None:
    """llama.cpp's own account of a call, in milliseconds."""
    if not isinstance(timings, Mapping) or timings.get("predicted_ms") is None:
        return None
    return Timings(0.0, float(timings.get("prompt_ms") or 0) / 1000, float(timings["predicted_ms"]) / 1000)


def _tool_call(call: Mapping[str, Any], number: int, stamp: str = "") -> ToolCall:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    name = str(function.get("name") or "")
    made_up = hashlib.sha256(f"{stamp}|{number}|{name}|{text}".encode()).hexdigest()[:12]
    return ToolCall(str(call.get("id") or f"call_{made_up}"), name, text)


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Iterable):
        return "\n".join(str(part.get("text", "")) for part in content if part.get("type", "text") == "text")
    return str(content)
