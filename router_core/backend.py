"""The seam to whatever serves a model: one request, one response, one error, one protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from steproute.errors import SteprouteError
from steproute.redact import redact

Phase = Literal["connect", "request", "response", "timeout", "cancelled"]

LABELS = frozenset({"task", "step", "role", "attempt"})
"""Keys of `ChatRequest.extra` that only label a call and are never sent to a model server."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One LLM call, in the vocabulary of OpenAI's chat completions."""

    model: str
    """Deployment name as the backend knows it."""
    messages: Sequence[Mapping[str, Any]]
    """Dicts with `role` and `content`; assistant messages may carry `tool_calls`, tool messages a `tool_call_id`."""
    tools: Sequence[Mapping[str, Any]] = ()
    """`{"type": "function", "function": {"name", "description", "parameters"}}` each."""
    tool_choice: str | Mapping[str, Any] | None = None
    response_format: Mapping[str, Any] | None = None
    """`{"type": "json_object"}` or `{"type": "json_schema", "json_schema": {...}}`."""
    temperature: float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    seed: int | None = None
    timeout: float | None = None
    """Seconds for the whole call with its retries; None = the backend's own limit."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Labels (`LABELS`) for messages and recordings; every other key is passed to the model server as it is."""

    def options(self) -> dict[str, Any]:
        """The part of `extra` that is meant for the model server."""
        return {name: value for name, value in self.extra.items() if name not in LABELS}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool the model asks to run. `arguments` is JSON text, as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call."""

    prompt_tokens: int = 0
    """All prompt tokens, those read from a cache included."""
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that were not computed again."""
    estimated: bool = False
    """True when the server reported none and the numbers were counted here."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the server says the time went, in seconds."""

    load_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0

    @property
    def total_s(self) -> float:
        """Load, prefill and decode together."""
        return self.load_s + self.prefill_s + self.decode_s


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """What one call returned."""

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    """`stop`, `length`, `tool_calls`, or the server's own word."""
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    """Duration of the attempt that succeeded: wall clock when live, the server's own account when replayed."""
    timings: Timings | None = None
    model_reported: str = ""
    """The model the server names; it may differ from the deployment asked for."""
    id: str = ""
    """The server's id of the response."""
    attempts: int = 1
    """How many times the server was asked."""


class BackendError(SteprouteError):
    """A model could not be called. The message holds no key.

    Attributes:
        model: the deployment asked for.
        phase: `connect` (nobody answered), `request` (the server refused it: 4xx), `response` (the answer was an
            error of the server, 5xx, or unreadable), `timeout`, `cancelled`.
        cause: the text of what happened, with keys redacted.
        status: HTTP status, None where there was no answer.
        retryable: whether the same call may succeed later.
        retry_after_s: how long the server asked to wait, in seconds.
    """

    def __init__(
        self,
        model: str,
        phase: Phase,
        cause: BaseException | str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
        secrets: Sequence[str] = (),
    ):
        text = cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"
        self.model = model
        self.phase: Phase = phase
        self.cause = redact(" ".join(text.split()), secrets)[:500]
        self.status = status
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        seen = f" (HTTP {status})" if status is not None else ""
        super().__init__(f"model {model!r}: {phase} failed{seen}: {self.cause}")


@runtime_checkable
class Backend(Protocol):
    """Anything that can serve a `ChatRequest`."""

    def complete(self, request: ChatRequest) -> ChatResponse:
        """Serve the request.

        Raises:
            BackendError: the model could not be called, after the backend's own bounded retries.
        """
        ...

    async def acomplete(self, request: ChatRequest) -> ChatResponse:
        """Serve the request without blocking the loop; a cancelled task stops the call at once."""
        ...
