"""Models behind LiteLLM: every provider it knows, called through its SDK."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from steproute.backend import BackendError, ChatRequest, ChatResponse
from steproute.errors import ConfigError
from steproute.integrations.attempts import Retry, aserve, serve, status_error
from steproute.integrations.wire import openai_body, read_openai
from steproute.testing.mismatch import linked_errors

_COST_MAP = "LITELLM_LOCAL_MODEL_COST_MAP"
_SECRET = re.compile(r"key|secret|password|token(?!s)")
_NO_CONNECTION = ("ConnectError", "ConnectTimeout", "ClientConnectorError", "ConnectionRefusedError", "gaierror")
"""LiteLLM reports a server that is not there as HTTP 500: the causes tell."""


class LiteLLMBackend:
    """Serves requests with `litellm.completion`. LiteLLM is imported at the first call: that takes seconds.

    Args:
        deployments: deployment name → LiteLLM parameters, as in a proxy's `litellm_params`: `model`, `api_base`,
            `api_key`, … A name that is not listed is passed as the model itself, e.g. `"ollama_chat/qwen3"`.
        timeout_s: deadline of a call in seconds, retries included; a request's own `timeout` overrides it.
        retry: how often and how patiently to ask again; LiteLLM's own retries are off.

    Raises:
        ConfigError: a deployment has no `model`.
        ImportError: the extra `litellm` is missing.
    """

    def __init__(
        self,
        deployments: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        timeout_s: float | None = 600.0,
        retry: Retry | None = None,
    ):
        for name, params in (deployments or {}).items():
            if not isinstance(params.get("model"), str):
                raise ConfigError(f"LiteLLMBackend: deployments.{name}.model: missing; e.g. 'openai/gpt-5-mini'")
        self._deployments = {name: dict(params) for name, params in (deployments or {}).items()}
        self._timeout_s = timeout_s
        self._retry = retry or Retry()
        _check_installed()

    def complete(self, request: ChatRequest) -> ChatResponse:
        """Serve the request.

        Raises:
            BackendError: the model could not be called.
        """
        litellm = _library()
        fields = self._fields(request)

        def once(left: float | None) -> ChatResponse:
            return _read(litellm.completion(**fields, timeout=left), request)

        return serve(
            request,
            once,
            retry=self._retry,
            limit_s=self._timeout_s,
            translate=lambda error: _translate(error, request.model, _secrets(fields)),
            secrets=_secrets(fields),
        )

    async def acomplete(self, request: ChatRequest) -> ChatResponse:
        """The async twin of `complete`."""
        litellm = _library()
        fields = self._fields(request)

        async def once(left: float | None) -> ChatResponse:
            return _read(await litellm.acompletion(**fields, timeout=left), request)

        return await aserve(
            request,
            once,
            retry=self._retry,
            limit_s=self._timeout_s,
            translate=lambda error: _translate(error, request.model, _secrets(fields)),
            secrets=_secrets(fields),
        )

    def _fields(self, request: ChatRequest) -> dict[str, Any]:
        deployment = self._deployments.get(request.model, {"model": request.model})
        return {**openai_body(request), **deployment, "num_retries": 0, "max_retries": 0}


def _secrets(fields: Mapping[str, Any]) -> Sequence[str]:
    return [
        str(value)
        for name, value in fields.items()
        if value and ("key" in name or "token" in name) and "tokens" not in name
    ]


def _read(answer: Any, request: ChatRequest) -> ChatResponse:
    return read_openai(answer.model_dump(), request)


def _translate(error: Exception, model: str, secrets: Sequence[str]) -> BackendError | None:
    import litellm

    text = getattr(error, "message", None) or str(error)
    if isinstance(error, litellm.exceptions.Timeout):
        return BackendError(model, "timeout", text, retryable=True, secrets=secrets)
    if any(type(link).__name__ in _NO_CONNECTION for link in linked_errors(error)):
        return BackendError(model, "connect", text, retryable=True, secrets=secrets)
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        response = getattr(error, "response", None)
        headers = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None) or {}
        return status_error(model, status, text, headers, secrets)
    if isinstance(error, ValueError):
        return BackendError(model, "response", text, secrets=secrets)
    return None


def _check_installed() -> None:
    from importlib.util import find_spec

    if find_spec("litellm") is None:
        raise ImportError('the litellm backend needs LiteLLM: pip install "steproute[litellm]"')


def _library() -> Any:
    # Without this, importing LiteLLM fetches its price list from the network; our prices come from the model pool.
    os.environ.setdefault(_COST_MAP, "True")
    import litellm

    litellm.suppress_debug_info = True  # else each failed attempt prints advertising to standard output
    return litellm
