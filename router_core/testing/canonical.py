"""What makes two requests to a model server the same: model, roles and contents, tools.

Sampling parameters, metadata, ids and a framework's own fields are left out, and so are host and port: a program
recorded against one server replays against any other. Requests that are not LLM calls are the same when method,
path, query and body are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_CHAT_PATHS = ("/chat/completions", "/responses", "/messages", "/completions", "/api/chat", "/api/generate")
_STREAMS_UNLESS_TOLD = ("/api/chat", "/api/generate")


@dataclass(frozen=True)
class Turn:
    """One message: its role and its content as text (tool calls, tool results and images written out)."""

    role: str
    content: str


@dataclass(frozen=True)
class Asked:
    """A request in canonical form."""

    method: str
    path: str
    model: str = ""
    turns: tuple[Turn, ...] = ()
    tools: tuple[str, ...] = ()
    """Canonical JSON of each tool, sorted."""
    stream: bool = False
    """The answer's format depends on it, so it is part of the match for HTTP."""
    rest: str = ""
    """What else must be equal: query and body of a request that is no LLM call; the conversation it continues."""
    is_chat: bool = False

    @cached_property
    def key(self) -> str:
        """Hash of everything that must be equal for an HTTP replay."""
        return _digest([self.method, self.path, self.stream, self.rest, self.chat_key])

    @cached_property
    def chat_key(self) -> str:
        """Hash of model, messages and tools alone, whatever API they were sent through."""
        return _digest([self.model, [[turn.role, turn.content] for turn in self.turns], list(self.tools)])


def canonical(method: str, uri: str, body: bytes | str | None) -> Asked:
    """The canonical form of an HTTP request.

    Args:
        method: HTTP method.
        uri: absolute URI; scheme, host and port are ignored.
        body: raw body, or None.
    """
    parts = urlsplit(uri)
    path = parts.path.rstrip("/") or "/"
    parsed = _json_or_none(body)
    if method.upper() == "POST" and path.endswith(_CHAT_PATHS) and isinstance(parsed, Mapping):
        return canonical_chat(parsed, path)
    query = canonical_json(sorted(parse_qsl(parts.query, keep_blank_values=True)))
    text = _text(body) if parsed is None else canonical_json(parsed)
    return Asked(method.upper(), path, rest=f"{query} {text}")


def canonical_chat(body: Mapping[str, Any], path: str = "/v1/chat/completions") -> Asked:
    """The canonical form of an LLM call of any of the known APIs.

    Args:
        body: decoded JSON body: OpenAI chat completions, completions or responses, Anthropic messages, Ollama chat or
            generate.
        path: path of the endpoint.
    """
    turns = [Turn(role, _content(body[field])) for field, role in _LEADING if body.get(field)]
    for field in ("messages", "input", "prompt"):
        if field in body:
            turns += _turns(body[field])
    if body.get("images"):
        turns.append(Turn("user", _content(body["images"])))
    tools = tuple(sorted(canonical_json(tool) for tool in body.get("tools") or ()))
    stream = bool(body.get("stream", path.endswith(_STREAMS_UNLESS_TOLD)))
    rest = str(body.get("previous_response_id") or "")
    return Asked("POST", path, str(body.get("model") or ""), tuple(turns), tools, stream, rest, is_chat=True)


_LEADING = (("system", "system"), ("instructions", "system"), ("template", "template"), ("suffix", "suffix"))


def _turns(messages: Any) -> list[Turn]:
    if isinstance(messages, str):
        return [Turn("user", messages)]
    turns = []
    for message in messages if isinstance(messages, Sequence) else ():
        if not isinstance(message, Mapping):
            turns.append(Turn("user", _content(message)))
            continue
        role = str(message.get("role") or message.get("type") or "")
        fields = [_content(message.get("content"))]
        if message.get("type") in _ITEMS:
            fields.append(_part(message))
        fields += [_call(call) for call in message.get("tool_calls") or ()]
        if message.get("function_call"):
            fields.append(_call(message["function_call"]))
        if message.get("images"):
            fields.append(_content(message["images"]))
        turns.append(Turn(role, "\n".join(field for field in fields if field)))
    return turns


_ITEMS = ("function_call", "function_call_output", "reasoning")


def _content(content: Any) -> str:
    """Text of a message's content, which is a string, a list of parts, or missing."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(_part(part) for part in content)
    return canonical_json(content)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part if len(part) < 2000 else _fingerprint("data", part)
    if not isinstance(part, Mapping):
        return canonical_json(part)
    kind = str(part.get("type", ""))
    if kind in ("text", "input_text", "output_text"):
        return str(part.get("text", ""))
    if kind in ("tool_use", "function_call"):
        return _call(part)
    if kind in ("tool_result", "function_call_output"):
        return f"<result> {_content(part.get('content', part.get('output')))}"
    if kind == "reasoning":
        return ""
    kept = {name: value for name, value in part.items() if name not in ("id", "cache_control", "type", "index")}
    text = canonical_json(kept)
    return f"<{kind}> {text}" if len(text) < 2000 else _fingerprint(kind, text)


def _call(call: Any) -> str:
    """A tool call without its id, which servers and frameworks make up."""
    if not isinstance(call, Mapping):
        return canonical_json(call)
    inner = call.get("function")
    function = inner if isinstance(inner, Mapping) else call
    arguments = function.get("arguments", function.get("input"))
    decoded = _json_or_none(arguments) if isinstance(arguments, str) else arguments
    return f"<call> {function.get('name', '')} {canonical_json(arguments if decoded is None else decoded)}"


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def _json_or_none(body: bytes | str | None) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:  # UnicodeDecodeError is one
        return None


def _text(body: bytes | str | None) -> str:
    if body is None or isinstance(body, str):
        return body or ""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return _fingerprint("binary", body)


def _fingerprint(kind: str, data: bytes | str) -> str:
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return f"<{kind} sha256 {hashlib.sha256(raw).hexdigest()[:16]}>"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()
