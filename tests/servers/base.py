"""What the fake servers share: scripted replies, a log of what was asked, and the life of the thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import Self


@dataclass
class Reply:
    """What a server answers. The defaults are those of a small, fast model."""

    content: str = "ok"
    tool_calls: Sequence[Mapping[str, Any]] = ()
    """`{"name": ..., "arguments": {...}}` each."""
    finish_reason: str = "stop"
    prompt_tokens: int = 11
    completion_tokens: int = 17
    cached_tokens: int = 0
    load_s: float = 0.0
    prefill_s: float = 0.1
    decode_s: float = 0.5
    status: int = 200
    error: str = ""
    """Text of the error body when `status` is not 200."""
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    """Sent as it is in place of a well-formed body."""


@dataclass
class Hang:
    """Accept the request and answer nothing until the server closes."""


@dataclass
class Received:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


Script = Callable[[dict[str, Any]], "Reply | Hang"]


class _Listener(ThreadingHTTPServer):
    request_queue_size = 128  # many clients may call at the same moment


class FakeServer:
    """An HTTP server on a free loopback port. Replies are taken from `script`, or from what `queue` was given.

    Args:
        script: called with each request body; gets `Reply()` when absent.
        upstream: cassette files that answer by model, messages and tools; what they lack is a 404 that says so.
    """

    handler: type[BaseHTTPRequestHandler]

    def __init__(self, script: Script | None = None, upstream: Sequence[Any] = ()):
        self.requests: list[Received] = []
        self._script = script or (lambda body: Reply())
        self._queue: list[Reply | Hang] = []
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self.hung = threading.Event()
        """Set when a request has begun to hang: what a test waits for before it cancels."""
        self.answers = _answers(upstream)
        self._http = _Listener(("127.0.0.1", 0), self.handler)
        self._http.daemon_threads = True
        self._http.fake = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def calls(self) -> list[Received]:
        """The chat requests among all requests."""
        return [received for received in self.requests if received.method == "POST" and received.path != "/api/show"]

    def queue(self, *replies: Reply | Hang) -> None:
        """Answer the next chat requests with these, then as scripted."""
        self._queue.extend(replies)

    def next_reply(self, body: dict[str, Any]) -> Reply | Hang:
        with self._lock:
            if self._queue:
                return self._queue.pop(0)
        if self.answers is not None:
            return self._recorded(body)
        return self._script(body)

    def _recorded(self, body: dict[str, Any]) -> Reply:
        from steproute.testing.canonical import canonical_chat

        assert self.answers is not None
        response = self.answers.get(canonical_chat(body).chat_key)
        if response is None:
            return Reply(status=404, error=f"not recorded for model {body.get('model')!r}")
        choice, usage, timings = response["choices"][0], response.get("usage", {}), response.get("timings", {})
        return Reply(
            content=choice["message"].get("content") or "",
            finish_reason=choice.get("finish_reason", "stop"),
            prompt_tokens=usage.get("prompt_tokens", 0),
            completion_tokens=usage.get("completion_tokens", 0),
            prefill_s=timings.get("prompt_ms", 0) / 1000,
            decode_s=timings.get("predicted_ms", 0) / 1000,
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)


def _answers(upstream: Sequence[Any]) -> dict[str, dict[str, Any]] | None:
    if not upstream:
        return None
    from steproute.testing.exchange import load_cassette

    return {
        exchange.asked.chat_key: json.loads(exchange.response_body)
        for path in upstream
        for exchange in load_cassette(path)
    }


_NONE: Mapping[str, str] = {}


class FakeHandler(BaseHTTPRequestHandler):
    """Reads requests, logs them, writes JSON or chunks."""

    protocol_version = "HTTP/1.1"

    @property
    def fake(self) -> FakeServer:
        return self.server.fake  # type: ignore[attr-defined, no-any-return]

    @property
    def route(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]

    def log_message(self, *_: object) -> None:
        pass

    def received(self) -> Received:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        received = Received(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        self.fake.requests.append(received)
        return received

    def hang(self) -> None:
        self.fake.hung.set()
        self.fake.closing.wait(30)
        self.close_connection = True

    def send(
        self, body: bytes, status: int = 200, kind: str = "application/json", headers: Mapping[str, str] = _NONE
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_json(self, data: Any, status: int = 200, headers: Mapping[str, str] = _NONE) -> None:
        self.send(json.dumps(data).encode(), status, headers=headers)

    def send_chunks(self, chunks: Sequence[bytes], kind: str, headers: Mapping[str, str] = _NONE) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for chunk in [*chunks, b""]:
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            self.wfile.flush()


def words(text: str) -> list[str]:
    """Text cut as a model streams it; joined it is the text again."""
    pieces = text.split(" ")
    return [piece + (" " if number + 1 < len(pieces) else "") for number, piece in enumerate(pieces)]
