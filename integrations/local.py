"""Models run in this process by llama.cpp's server, from GGUF files on disk or shipped by a Python package."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from steproute.backend import BackendError, ChatRequest, ChatResponse, Timings
from steproute.errors import ConfigError, unknown_name
from steproute.integrations.attempts import Retry, aserve, serve, status_error
from steproute.integrations.wire import openai_body, read_openai

if TYPE_CHECKING:
    import httpx

_log = logging.getLogger(__name__)

_OPENMP_WAIT = "OMP_WAIT_POLICY"


class LocalBackend:
    """Serves requests with one llama.cpp server per model, started at the model's first call.

    Args:
        models: deployment name → GGUF file, or `package:NAME` for the one GGUF file that package NAME ships, or
            `package:NAME/file.gguf` where it ships several.
        threads: CPU threads per model.
        context: context window in tokens.
        gpu_layers: layers to put on a GPU; -1 = as many as fit, 0 = none.
        timeout_s: deadline of a call in seconds, retries and the load of the model included.
        retry: how often and how patiently to ask again.

    Raises:
        ConfigError: a file or package does not exist.
        ImportError: the extra `local` is missing.
    """

    def __init__(
        self,
        models: Mapping[str, str | Path],
        *,
        threads: int = 1,
        context: int = 4096,
        gpu_layers: int = -1,
        timeout_s: float | None = 600.0,
        retry: Retry | None = None,
    ):
        if threads < 1:
            raise ConfigError(f"LocalBackend: threads: must be at least 1, seen {threads}")
        self._files = {name: find_weights(source) for name, source in models.items()}
        self._xllamacpp = _library(threads > 1 and len(self._files) > 1)
        self._threads, self._context, self._gpu_layers = threads, context, gpu_layers
        self._timeout_s = timeout_s
        self._retry = retry or Retry()
        self._servers: dict[str, Any] = {}
        self._locks = {name: threading.Lock() for name in self._files}
        # Servers must be gone before the interpreter is: their threads call into it.
        self._finalizer = weakref.finalize(self, self._servers.clear)

    def complete(self, request: ChatRequest) -> ChatResponse:
        """Serve the request; the first one to a model loads it, and its timings say how long that took.

        Raises:
            BackendError: the model could not be loaded or called.
        """
        import httpx

        def once(left: float | None) -> ChatResponse:
            url, load_s = self._started(request.model)
            with httpx.Client(timeout=left, trust_env=False, verify=False) as client:
                return _read(client.post(url, json=openai_body(request)), request, load_s)

        return serve(
            request,
            once,
            retry=self._retry,
            limit_s=self._timeout_s,
            translate=lambda error: _translate(error, request.model),
        )

    async def acomplete(self, request: ChatRequest) -> ChatResponse:
        """The async twin of `complete`; a cancelled call also stops the computation."""
        import httpx

        async def once(left: float | None) -> ChatResponse:
            url, load_s = await asyncio.to_thread(self._started, request.model)
            async with httpx.AsyncClient(timeout=left, trust_env=False, verify=False) as client:
                return _read(await client.post(url, json=openai_body(request)), request, load_s)

        return await aserve(
            request,
            once,
            retry=self._retry,
            limit_s=self._timeout_s,
            translate=lambda error: _translate(error, request.model),
        )

    @property
    def loaded(self) -> tuple[str, ...]:
        """Names of the models in memory now."""
        return tuple(self._servers)

    def unload(self, model: str) -> None:
        """Stop the server of one model and free its memory."""
        self._servers.pop(model, None)

    def close(self) -> None:
        """Stop all servers and free their memory; a later call loads its model again."""
        self._servers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self, model: str) -> tuple[str, float]:
        """URL of a model's server, and the seconds its load took just now (0 when it was loaded)."""
        if model not in self._files:
            raise BackendError(model, "request", unknown_name("model", model, self._files), status=404)
        with self._locks[model]:
            load_s = 0.0
            if model not in self._servers:
                began = time.monotonic()
                self._servers[model] = self._start(model)
                load_s = time.monotonic() - began
            return f"{self._servers[model].listening_address}/v1/chat/completions", load_s

    def _start(self, model: str) -> Any:
        params = self._xllamacpp.CommonParams()
        params.model.path = str(self._files[model])
        params.model_alias = {model}
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.n_ctx = self._context
        params.n_parallel = 1
        params.n_gpu_layers = self._gpu_layers
        params.cpuparams.n_threads = self._threads
        params.cpuparams_batch.n_threads = self._threads
        params.verbosity = 1
        params.ui = False
        try:
            return self._xllamacpp.Server(params)
        except (RuntimeError, ValueError, OSError) as error:
            raise BackendError(model, "connect", f"{self._files[model].name} cannot be loaded: {error}") from error


def find_weights(source: str | Path) -> Path:
    """The GGUF file that a path or `package:NAME[/FILE]` means; the package is not imported.

    Raises:
        ConfigError: there is no such file or package, or the package ships none or several.
    """
    text = str(source)
    if not text.startswith("package:"):
        path = Path(text).expanduser()
        if not path.is_file():
            raise ConfigError(f"LocalBackend: models: no file {path}; give a GGUF file or `package:NAME`")
        return path
    name, _, file = text.removeprefix("package:").partition("/")
    spec = importlib.util.find_spec(name) if name else None
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    if not folders:
        raise ConfigError(f"LocalBackend: models: no package {name!r} is installed")
    found = sorted(path for folder in folders for path in folder.rglob(file or "*.gguf") if path.is_file())
    if len(found) != 1:
        seen = ", ".join(path.name for path in found) or "none"
        raise ConfigError(f"LocalBackend: models: package {name!r} must ship one file {file or '*.gguf'}, seen: {seen}")
    return found[0]


def _read(response: httpx.Response, request: ChatRequest, load_s: float) -> ChatResponse:
    if response.status_code != 200:
        raise status_error(request.model, response.status_code, _error_text(response), response.headers)
    answer = read_openai(response.json(), request)
    timings = answer.timings or Timings()
    return replace(answer, timings=replace(timings, load_s=load_s)) if answer.timings or load_s else answer


def _error_text(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:300]


def _translate(error: Exception, model: str) -> BackendError | None:
    import httpx

    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        return BackendError(model, "connect", error, retryable=True)
    if isinstance(error, httpx.TimeoutException):
        return BackendError(model, "timeout", error, retryable=True)
    if isinstance(error, httpx.TransportError):
        return BackendError(model, "response", error, retryable=True)
    if isinstance(error, ValueError):
        return BackendError(model, "response", error)
    return None


def _library(many_threads: bool) -> Any:
    """Import llama.cpp so that its idle threads sleep.

    By default OpenMP threads spin while they wait; with several models loaded, those of the idle ones take the CPU
    from the busy one (measured: 175 s for what takes 6 s alone). The setting is read once, at import.
    """
    unset = _OPENMP_WAIT not in os.environ
    if unset:
        os.environ[_OPENMP_WAIT] = "passive"
    try:
        import httpx  # noqa: F401
        import xllamacpp
    except ImportError as error:
        raise ImportError('the local backend needs llama.cpp: pip install "steproute[local]"') from error
    finally:
        if unset:
            del os.environ[_OPENMP_WAIT]
    if many_threads and os.environ.get(_OPENMP_WAIT, "passive").lower() != "passive":
        _log.warning(
            "%s=%s: several models with several threads will slow each other down",
            _OPENMP_WAIT,
            os.environ[_OPENMP_WAIT],
        )
    return xllamacpp
