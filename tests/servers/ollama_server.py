"""A fake Ollama: chat and generate as JSON or JSON lines with durations, tags, ps, show and errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from servers.base import FakeHandler, FakeServer, Hang, Reply, Script, words

_CREATED = "2026-11-30T10:00:00.123456789Z"


class _Handler(FakeHandler):
    def do_GET(self) -> None:
        self.received()
        server = self.fake
        assert isinstance(server, OllamaServer)
        if self.route == "/api/tags":
            self.send_json({"models": [_described(name) for name in server.models]})
        elif self.route == "/api/ps":
            shown = [{**_described(name), "expires_at": _CREATED, "size_vram": 0} for name in sorted(server.loaded)]
            self.send_json({"models": shown})
        elif self.route == "/api/version":
            self.send_json({"version": "0.12.0"})
        else:
            self.send(b"404 page not found", 404, "text/plain")

    def do_POST(self) -> None:
        received = self.received()
        server = self.fake
        assert isinstance(server, OllamaServer)
        body = received.body if isinstance(received.body, dict) else {}
        name = str(body.get("model") or body.get("name") or "")
        if self.route not in ("/api/chat", "/api/generate", "/api/show"):
            self.send(b"404 page not found", 404, "text/plain")
        elif name not in server.models:
            self.send_json({"error": f"model '{name}' not found"}, 404)
        elif self.route == "/api/show":
            details = {"template": "{{ .Prompt }}", "model_info": {"llama.context_length": 4096}}
            self.send_json({**details, "details": _described(name)["details"], "capabilities": ["completion", "tools"]})
        elif body.get("keep_alive") == 0 and not body.get("prompt") and not body.get("messages"):
            server.loaded.discard(name)
            self.send_json(
                {"model": name, "created_at": _CREATED, "response": "", "done": True, "done_reason": "unload"}
            )
        else:
            self._answer(server, name, body)

    def _answer(self, server: OllamaServer, name: str, body: dict[str, Any]) -> None:
        reply = server.next_reply(body)
        if isinstance(reply, Hang):
            self.hang()
            return
        if reply.raw is not None:
            self.send(reply.raw, reply.status, headers=reply.headers)
            return
        if reply.status != 200:
            self.send_json({"error": reply.error or f"status {reply.status}"}, reply.status, reply.headers)
            return
        cold = name not in server.loaded
        server.loaded.add(name)
        lines = _lines(name, self.route == "/api/chat", reply, server.cold_load_s if cold else reply.load_s)
        if body.get("stream", True):
            self.send_chunks([(json.dumps(line) + "\n").encode() for line in lines], "application/x-ndjson")
        else:
            self.send_json(_merged(lines))


class OllamaServer(FakeServer):
    """Knows the models given; the first call to each is cold: it loads the model and shows it in `/api/ps`."""

    handler = _Handler

    def __init__(
        self,
        script: Script | None = None,
        upstream: Sequence[Any] = (),
        models: Sequence[str] = ("small", "large"),
        cold_load_s: float = 2.0,
    ):
        super().__init__(script, upstream)
        self.models = list(models)
        self.loaded: set[str] = set()
        self.cold_load_s = cold_load_s


def _described(name: str) -> dict[str, Any]:
    details = {"format": "gguf", "family": "llama", "parameter_size": "1B", "quantization_level": "Q4_K_M"}
    return {"name": name, "model": name, "modified_at": _CREATED, "size": 1000, "digest": "0" * 64, "details": details}


def _lines(name: str, chat: bool, reply: Reply, load_s: float) -> list[dict[str, Any]]:
    """The chunks of a stream; Ollama puts tool calls in a chunk of their own and durations on the last."""

    def chunk(text: str, **more: Any) -> dict[str, Any]:
        said = {"message": {"role": "assistant", "content": text, **more}} if chat else {"response": text}
        return {"model": name, "created_at": _CREATED, **said, "done": False}

    calls = [{"function": {"name": call["name"], "arguments": call["arguments"]}} for call in reply.tool_calls]
    lines = [chunk(word) for word in words(reply.content) if word]
    if calls and chat:
        lines.append(chunk("", tool_calls=calls))
    prefill, decode, load = (round(seconds * 1e9) for seconds in (reply.prefill_s, reply.decode_s, load_s))
    return [
        *lines,
        {
            **chunk(""),
            "done": True,
            "done_reason": reply.finish_reason,
            "total_duration": load + prefill + decode + 1_000_000,
            "load_duration": load,
            "prompt_eval_count": reply.prompt_tokens,
            "prompt_eval_duration": prefill,
            "eval_count": reply.completion_tokens,
            "eval_duration": decode,
        },
    ]


def _merged(lines: list[dict[str, Any]]) -> dict[str, Any]:
    last = dict(lines[-1])
    if "response" in last:
        return {**last, "response": "".join(line["response"] for line in lines)}
    message = {"role": "assistant", "content": "".join(line["message"]["content"] for line in lines)}
    calls = [call for line in lines for call in line["message"].get("tool_calls", ())]
    return {**last, "message": {**message, "tool_calls": calls} if calls else message}
