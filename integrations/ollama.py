"""Models served by Ollama, through its official client; its durations of load, prefill and decode are kept."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from steproute.backend import BackendError, ChatRequest, ChatResponse
from steproute.integrations.attempts import Retry, aserve, serve, status_error
from steproute.integrations.wire import ollama_fields, read_ollama


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that Ollama holds in memory: a call to it needs no load."""

    name: str
    size_bytes: int
    vram_bytes: int


class OllamaBackend:
    """Serves requests with an Ollama server.

    A client is made for each call, so that one backend may be used from several threads and event loops.

    Args:
        host: URL of the server; None = `OLLAMA_HOST`, else the default port of this machine.
        models: deployment name → Ollama's name, where they differ.
        keep_alive: how long Ollama keeps a model loaded, e.g. `"10m"`; None = its default.
        timeout_s: deadline of a call in seconds, retries included; a request's own `timeout` overrides it.
        retry: how often and how patiently to ask again.

    Raises:
        ImportError: the extra `ollama` is missing.
    """

    def __init__(
        self,
        host: str | None = None,
        models: Mapping[str, str] | None = None,
        *,
        keep_alive: str | float | None = None,
        timeout_s: float | None = 600.0,
        retry: Retry | None = None,
    ):
        _library()
        self._host = host
        self._models = dict(models or {})
        self._keep_alive = keep_alive
        self._timeout_s = timeout_s
        self._retry = retry or Retry()

    def complete(self, request: ChatRequest) -> ChatResponse:
        """Serve the request with `/api/chat`.

        Raises:
            BackendError: the model could not be called.
        """
        seen = _LastHeaders()

        def once(left: float | None) -> ChatResponse:
            client = _library().Client(
                self._host, timeout=left, verify=self._tls, event_hooks={"response": [seen.keep]}
            )
            try:
                return read_ollama(client.chat(**self._fields(request)).model_dump(), request)
            finally:
                client._client.close()

        return serve(
            request,
            once,
            retry=self._retry,
            limit_s=self._timeout_s,
            translate=lambda error: _translate(error, request.model, seen.headers),
        )

    async def acomplete(self, request: ChatRequest) -> ChatResponse:
        """The async twin of `complete`."""
        seen = _LastHeaders()

        async def once(left: float | None) -> ChatResponse:
            hooks = {"response": [seen.akeep]}
            client = _library().AsyncClient(self._host, timeout=left, verify=self._tls, event_hooks=hooks)
            try:
                answer = await client.chat(**self._fields(request))
                return read_ollama(answer.model_dump(), request)
            finally:
                await client._client.aclose()

        return await aserve(
            request,
            once,
            retry=self._retry,
            limit_s=self._timeout_s,
            translate=lambda error: _translate(error, request.model, seen.headers),
        )

    def ps(self) -> tuple[LoadedModel, ...]:
        """The models in memory now; any other model is cold, and its first call pays for the load.

        Raises:
            BackendError: the server could not be asked.
        """
        client = _library().Client(self._host, timeout=10.0, verify=self._tls)
        try:
            models = client.ps().models
        except Exception as error:
            translated = _translate(error, "(any)", {})
            if translated is None:
                raise
            raise translated from error
        finally:
            client._client.close()
        return tuple(
            LoadedModel(str(model.model or model.name), int(model.size or 0), int(model.size_vram or 0))
            for model in models
        )

    def is_loaded(self, model: str) -> bool:
        """Whether the deployment is in memory now."""
        wanted = self._models.get(model, model)
        return any(loaded.name in (wanted, f"{wanted}:latest") for loaded in self.ps())

    def unload(self, model: str) -> None:
        """Let Ollama take a model out of memory.

        Raises:
            BackendError: the server could not be asked.
        """
        client = _library().Client(self._host, timeout=60.0, verify=self._tls)
        try:
            client.generate(model=self._models.get(model, model), keep_alive=0)
        except Exception as error:
            translated = _translate(error, model, {})
            if translated is None:
                raise
            raise translated from error
        finally:
            client._client.close()

    def _fields(self, request: ChatRequest) -> dict[str, Any]:
        fields = ollama_fields(request)
        if self._keep_alive is not None:
            fields.setdefault("keep_alive", self._keep_alive)
        return {"model": self._models.get(request.model, request.model), **fields}

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        # Reading the certificates takes longer than a call to this machine: once is enough.
        return ssl.create_default_context()


class _LastHeaders:
    """The headers of the last answer: the client's own error does not keep them, and `Retry-After` is there."""

    def __init__(self) -> None:
        self.headers: Mapping[str, str] = {}

    def keep(self, response: Any) -> None:
        self.headers = response.headers

    async def akeep(self, response: Any) -> None:
        self.headers = response.headers


def _translate(error: Exception, model: str, headers: Mapping[str, str]) -> BackendError | None:
    import httpx

    if isinstance(error, _library().ResponseError):
        if error.status_code < 0:
            return BackendError(model, "response", error.error)
        return status_error(model, error.status_code, error.error, headers)
    if isinstance(error, (ConnectionError, httpx.ConnectError, httpx.ConnectTimeout)):
        return BackendError(model, "connect", f"{error} Is the server running?", retryable=True)
    if isinstance(error, httpx.TimeoutException):
        return BackendError(model, "timeout", error, retryable=True)
    if isinstance(error, httpx.TransportError):
        return BackendError(model, "response", error, retryable=True)
    if isinstance(error, (ValueError, TypeError)):  # an answer that is no JSON, or JSON of another shape
        return BackendError(model, "response", error)
    return None


def _library() -> Any:
    try:
        import ollama
    except ImportError as error:
        raise ImportError('the ollama backend needs its client: pip install "steproute[ollama]"') from error
    return ollama
