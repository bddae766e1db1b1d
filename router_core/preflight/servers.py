"""Whether the model servers answer and have the models; asked for their lists alone, so that nothing is paid for."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any

from steproute.models import Model, ModelPool
from steproute.preflight.finding import Finding
from steproute.redact import redact

OLLAMA = ("ollama/", "ollama_chat/")
MOST_BYTES = 4_000_000
"""Longest list that is read."""


class _Refused(Exception):
    """A server answered with a status that is no success."""

    def __init__(self, status: int):
        self.status = status


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A key is for the server it was meant for."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


def check_servers(pool: ModelPool, base_url: str | None, key_env: str | None, timeout_s: float) -> Iterator[Finding]:
    """Ask each server once.

    Args:
        pool: the models.
        base_url: where those are that name no server.
        key_env: environment variable of the key to send; None = none.
        timeout_s: how long to wait for each.
    """
    key = None if key_env is None else os.environ.get(key_env)
    if key_env is not None and not key:
        yield Finding("error", "servers.key", key_env, "this environment variable is not set")
        return
    places: dict[tuple[str, bool], list[Model]] = {}
    for model in pool:
        place = _place(model, base_url)
        if place is None:
            said = "no address is known: `serving.server` may be a URL, or give --base-url"
            yield Finding("skipped", "servers.unknown", model.name, said)
        else:
            places.setdefault(place, []).append(model)
    for (url, ollama), models in places.items():
        yield from _server(url, ollama, models, key, timeout_s)


def _place(model: Model, base_url: str | None) -> tuple[str, bool] | None:
    """The address of a model's server, and whether it speaks Ollama's own protocol."""
    ollama = model.provider_name.startswith(OLLAMA)
    if model.serving.server.startswith(("http://", "https://")):
        return model.serving.server.rstrip("/"), ollama
    if base_url is not None:
        return base_url.rstrip("/"), ollama
    if ollama:
        host = os.environ.get("OLLAMA_API_BASE") or os.environ.get("OLLAMA_HOST") or "127.0.0.1:11434"
        return (host if "://" in host else f"http://{host}").rstrip("/"), True
    return None


def _server(url: str, ollama: bool, models: list[Model], key: str | None, timeout_s: float) -> Iterator[Finding]:
    try:
        names = _ollama_names(url, key, timeout_s) if ollama else _openai_names(url, key, timeout_s)
    except _Refused as refused:
        if refused.status in (401, 403):
            yield Finding(
                "warning", "servers.key", url, f"answers, but wants a key (HTTP {refused.status}); --key-env names one"
            )
        else:
            yield Finding(
                "error", "servers.refused", url, f"answers with HTTP {refused.status} when asked for its models"
            )
        return
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        yield Finding("error", "servers.unreachable", url, redact(f"{type(error).__name__}: {reason}")[:200])
        return
    for model in models:
        wanted = model.provider_name.partition("/")[2] or model.provider_name
        forms = {model.provider_name, wanted, *({f"{wanted}:latest"} if ollama else ())}
        if forms & names:
            yield Finding("ok", "servers.ok", model.name, f"{url} has it")
        else:
            known = ", ".join(sorted(names)[:10]) or "none"
            yield Finding("error", "servers.model", model.name, f"{url} has no {wanted!r}; it has {known}")


def _openai_names(url: str, key: str | None, timeout_s: float) -> set[str]:
    try:
        data = _get(f"{url}/models", key, timeout_s)
    except _Refused as refused:
        if refused.status != 404 or url.endswith("/v1"):
            raise
        data = _get(f"{url}/v1/models", key, timeout_s)
    return _names(data, "data", "id")


def _ollama_names(url: str, key: str | None, timeout_s: float) -> set[str]:
    return _names(_get(f"{url.removesuffix('/v1')}/api/tags", key, timeout_s), "models", "name")


def _names(data: Any, items: str, name: str) -> set[str]:
    listed = data.get(items) if isinstance(data, dict) else None
    if not isinstance(listed, list):
        raise ValueError(f"its answer has no list {items!r}")
    return {str(item[name]) for item in listed if isinstance(item, dict) and name in item}


def _get(url: str, key: str | None, timeout_s: float) -> Any:
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=timeout_s) as answer:
            return json.loads(answer.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        raise _Refused(error.code) from None
