"""The fake OpenAI server with the other routes LiteLLM calls: embeddings, responses, Anthropic's messages."""

from __future__ import annotations

from typing import Any

from servers.base import Hang, Reply
from servers.openai_server import OpenAIServer

OTHERS = ("/embeddings", "/responses", "/messages")


class _Handler(OpenAIServer.handler):  # type: ignore[name-defined, misc]
    def do_POST(self) -> None:
        if not self.route.endswith(OTHERS):
            super().do_POST()
            return
        body = self.received().body
        reply = self.fake.next_reply(body)
        assert not isinstance(reply, Hang)
        if reply.status != 200:
            self.send_json({"error": {"message": reply.error, "type": "error"}}, reply.status, reply.headers)
        elif self.route.endswith("/embeddings"):
            self.send_json(_embeddings(body, reply))
        elif self.route.endswith("/responses"):
            self.send_json(_response(body, reply, len(self.fake.requests)))
        else:
            self.send_json(_message(body, reply))


class LiteLLMUpstream(OpenAIServer):
    """`server.base_url` for OpenAI's routes, `server.url` for Anthropic's."""

    handler = _Handler


def _embeddings(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    return {
        "object": "list",
        "model": body["model"],
        "data": [{"object": "embedding", "index": 0, "embedding": [0.1, 0.2, 0.3]}],
        "usage": {"prompt_tokens": reply.prompt_tokens, "total_tokens": reply.prompt_tokens},
    }


def _response(body: dict[str, Any], reply: Reply, number: int) -> dict[str, Any]:
    text = {"type": "output_text", "text": reply.content, "annotations": []}
    message = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [text]}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": "completed",
        "model": body["model"],
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": reply.prompt_tokens,
            "input_tokens_details": {"cached_tokens": reply.cached_tokens},
            "output_tokens": reply.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.prompt_tokens + reply.completion_tokens,
        },
    }


def _message(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{"type": "text", "text": reply.content}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": reply.prompt_tokens - reply.cached_tokens,
            "cache_read_input_tokens": reply.cached_tokens,
            "output_tokens": reply.completion_tokens,
        },
    }
