"""A fake of an OpenAI-compatible server: chat completions as JSON or server-sent events, tools, errors, models."""

from __future__ import annotations

import json
from typing import Any

from servers.base import FakeHandler, FakeServer, Hang, Reply, words


class _Handler(FakeHandler):
    def do_GET(self) -> None:
        self.received()
        if self.route.endswith("/models"):
            models = [{"id": "small", "object": "model"}, {"id": "large", "object": "model"}]
            self.send_json({"object": "list", "data": models})
        else:
            self.send_json({"error": {"message": f"no route {self.path}", "type": "invalid_request_error"}}, 404)

    def do_POST(self) -> None:
        received = self.received()
        if not self.route.endswith("/chat/completions") or not isinstance(received.body, dict):
            self.send_json({"error": {"message": f"no route {self.path}", "type": "invalid_request_error"}}, 404)
            return
        body = received.body
        reply = self.fake.next_reply(body)
        if isinstance(reply, Hang):
            self.hang()
        elif reply.raw is not None:
            self.send(reply.raw, reply.status, headers=reply.headers)
        elif reply.status != 200:
            error = {"message": reply.error or f"status {reply.status}", "type": "error", "param": None, "code": None}
            self.send_json({"error": error}, reply.status, reply.headers)
        elif body.get("stream"):
            self.send_chunks(_events(body, reply), "text/event-stream", reply.headers)
        else:
            self.send_json(_completion(body, reply, len(self.fake.requests)), headers=reply.headers)


class OpenAIServer(FakeServer):
    """`server.base_url` is what a client is given."""

    handler = _Handler

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"


def _tool_calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for number, call in enumerate(reply.tool_calls)
    ]


def _usage(reply: Reply) -> dict[str, Any]:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
    }


def _timings(reply: Reply) -> dict[str, Any]:
    return {
        "cache_n": reply.cached_tokens,
        "prompt_n": reply.prompt_tokens - reply.cached_tokens,
        "prompt_ms": reply.prefill_s * 1000,
        "predicted_n": reply.completion_tokens,
        "predicted_ms": reply.decode_s * 1000,
    }


def _completion(body: dict[str, Any], reply: Reply, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.tool_calls:
        message |= {"content": reply.content or None, "tool_calls": _tool_calls(reply)}
    finish = "tool_calls" if reply.tool_calls else reply.finish_reason
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_790_000_000 + number,
        "model": body.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": _usage(reply),
        "timings": _timings(reply),
    }


def _events(body: dict[str, Any], reply: Reply) -> list[bytes]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in words(reply.content) if word]
    deltas += [{"tool_calls": [{"index": number, **call}]} for number, call in enumerate(_tool_calls(reply))]
    head = {"id": "chatcmpl-s", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": body.get("model")}
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    finish = "tool_calls" if reply.tool_calls else reply.finish_reason
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": _usage(reply)})
    return [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks] + [b"data: [DONE]\n\n"]
