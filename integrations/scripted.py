"""A backend that says what it is told to: for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from steproute.backend import BackendError, ChatRequest, ChatResponse
from steproute.integrations.wire import estimated_usage

Scripted = str | ChatResponse | Exception
"""A reply: text, a whole response, or an exception to raise."""
Script = Callable[[ChatRequest], Scripted] | Iterable[Scripted]


class ScriptedBackend:
    """Replies from a queue, a function, or one of these for each model.

    Args:
        script: replies in order; or a function of the request; or `{model: replies or function}`.
        seconds: duration to report for plain text.

    Attributes:
        requests: every request so far, in order.
    """

    def __init__(self, script: Script | Mapping[str, Script], *, seconds: float = 0.0):
        self.requests: list[ChatRequest] = []
        self._seconds = seconds
        self._scripts: Mapping[str, Callable[[ChatRequest], Scripted]] = (
            {model: _as_function(own) for model, own in script.items()} if isinstance(script, Mapping) else {}
        )
        self._script = None if isinstance(script, Mapping) else _as_function(script)

    def complete(self, request: ChatRequest) -> ChatResponse:
        """The next scripted reply.

        Raises:
            BackendError: the script has no reply left, or none for this model.
        """
        self.requests.append(request)
        script = self._script or self._scripts.get(request.model)
        if script is None:
            known = ", ".join(sorted(self._scripts)) or "none"
            raise BackendError(request.model, "request", f"the script has no such model; it has: {known}", status=404)
        reply = script(request)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, ChatResponse):
            return reply
        usage = estimated_usage(request, reply)
        return ChatResponse(
            reply, finish_reason="stop", usage=usage, seconds=self._seconds, model_reported=request.model
        )

    async def acomplete(self, request: ChatRequest) -> ChatResponse:
        """The same as `complete`."""
        return self.complete(request)


def _as_function(script: Script) -> Callable[[ChatRequest], Scripted]:
    if callable(script):
        return script
    replies: Iterator[Scripted] = iter([script] if isinstance(script, str) else script)

    def next_reply(request: ChatRequest) -> Scripted:
        for reply in replies:
            return reply
        raise BackendError(request.model, "request", "the script has no reply left")

    return next_reply
