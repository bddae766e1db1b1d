"""A client for classic AG2 that chooses the model of every completion; everything else is the agent's own client's."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from autogen import OpenAIWrapper

from steproute.errors import ConfigError
from steproute.ledger import Outcome
from steproute.models import Model, Needs
from steproute.plugins.ag2.calls import CHARACTERS_PER_TOKEN, Attempts, Call
from steproute.router import Router

_IMAGE_TOKENS = 1000
_WITH_THE_CALL = (
    "tools",
    "functions",
    "tool_choice",
    "function_call",
    "parallel_tool_calls",
    "response_format",
    "cache_seed",
    "filter_func",
    "allow_format_str_template",
)
"""Settings of an agent that belong to what it asks, not to the model that answers."""


class Completions:
    """Makes, for a client and a model of the pool, the client that reaches that model."""

    def __init__(self, models: Mapping[str, Any]):
        """Keep the host's entries.

        Args:
            models: per model name an entry of a `config_list`, as a dict or an AG2 entry, or a whole `LLMConfig`.
        """
        self._models = models
        self._built: dict[str, OpenAIWrapper] = {}

    def reaching(self, model: Model, client: Any) -> Any:
        """A view of `client` that calls one model, with the tools and formats the agent has at this moment.

        Raises:
            ConfigError: the client cannot reach the model.
        """
        own: Sequence[dict[str, Any]] = client._config_list
        listed = [entry.get("model") for entry in own]
        if model.name in self._models:
            built = self._build(model.name)
            carried = {key: value for key, value in own[0].items() if key in _WITH_THE_CALL}
            inner, entry = built._clients[0], {**carried, **built._config_list[0]}
        elif model.provider_name in listed:
            position = listed.index(model.provider_name)
            inner, entry = client._clients[position], own[position]
        elif str(own[0].get("api_type") or "").startswith("azure"):
            raise ConfigError(
                f"models: {model.name!r} is not in the agent's config_list, and on Azure one deployment cannot stand "
                f"in for another; add an entry with model {model.provider_name!r}, or give it in attach(..., models=)"
            )
        else:
            inner, entry = client._clients[0], {**own[0], "model": model.provider_name}
        view = copy.copy(client)
        view._clients, view._config_list = [_Noting(inner)], [entry]
        return view

    def _build(self, name: str) -> OpenAIWrapper:
        if name not in self._built:
            given = self._models[name]
            whole = hasattr(given, "config_list")
            self._built[name] = OpenAIWrapper(**given) if whole else OpenAIWrapper(config_list=[given])
        return self._built[name]


class _Noting:
    """The client of one model; notes that it was called, which a hit in AG2's cache prevents."""

    def __init__(self, inner: Any):
        self._inner = inner
        self.called = False

    def create(self, params: dict[str, Any]) -> Any:
        self.called = True
        return self._inner.create(params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class RoutedCompletion:
    """Stands in for an agent's `OpenAIWrapper` during one reply."""

    def __init__(
        self, router: Router, client: Any, completions: Completions, begin: Callable[[Call, Sequence[Any]], Attempts]
    ):
        """Stand in for a client.

        Args:
            router: chooses.
            client: the agent's own.
            completions: reaches the models.
            begin: gives the attempts of a call, from what is known about it and its messages.
        """
        self._router, self._client, self._completions, self._begin = router, client, completions, begin
        self._used = client

    def create(self, **config: Any) -> Any:
        """Complete; see `Attempts.decide` for what it raises."""
        attempts = None
        with self._router.faults.kept("AG2 call"):
            messages = config.get("messages") or ()
            attempts = self._begin(describe_call(config, self._client._config_list[0]), messages)
        while attempts is not None:
            decision = attempts.decide()
            if decision is None:
                break
            started = time.perf_counter()
            try:
                view = self._completions.reaching(decision.model, self._client)
                response = view.create(**config)
            except Exception as error:  # noqa: BLE001  counted by the router; raised once no model is left
                attempts.failed(decision, error, time.perf_counter() - started)
                continue
            except BaseException as error:
                attempts.failed(decision, error, time.perf_counter() - started)
                raise
            seconds = time.perf_counter() - started
            self._used = view
            usage = self._account(view, response)
            attempts.succeeded(
                decision,
                partial(outcome_of, usage, response, attempts.call, seconds),
                partial(_text, view, response),
                partial(_tool_calls, view, response),
            )
            return response
        return self._client.create(**config)

    def _account(self, view: Any, response: Any) -> Mapping[str, Any] | None:
        """Usage of a reply; None when it came out of AG2's cache. AG2's own sums stay with the agent's client."""
        self._client.total_usage_summary, self._client.actual_usage_summary = (
            view.total_usage_summary,
            view.actual_usage_summary,
        )
        noting: _Noting = view._clients[0]
        if not noting.called:
            return None
        with self._router.faults.kept("reading usage"):
            usage: Mapping[str, Any] = noting.get_usage(response)
            return usage
        return {}

    def extract_text_or_completion_object(self, response: Any) -> Any:
        """As the client that was used does."""
        return self._used.extract_text_or_completion_object(response)

    def __getattr__(self, name: str) -> Any:
        if name == "_client":  # a copy under construction
            raise AttributeError(name)
        return getattr(self._client, name)


def describe_call(config: Mapping[str, Any], own: Mapping[str, Any], role: str = "") -> Call:
    """What the router needs to know about a completion.

    Args:
        config: arguments of `create`.
        own: the agent's settings that go with it.
        role: worker it is made for.
    """
    messages = config.get("messages") or ()
    merged = {**own, **config}
    tools = [*(merged.get("tools") or ()), *(merged.get("functions") or ())]
    characters, images, last = 0, 0, ""
    for message in messages:
        text, pictures = _content(message.get("content"))
        calls = message.get("tool_calls") or message.get("function_call")
        characters, images = characters + len(text) + (len(_json(calls)) if calls else 0), images + pictures
        if message.get("role") != "system" and text:
            last = text
    characters += sum(len(_json(tool)) for tool in tools)
    tokens = characters // CHARACTERS_PER_TOKEN + images * _IMAGE_TOKENS
    limit = merged.get("max_tokens") or merged.get("max_completion_tokens")
    most = limit if isinstance(limit, int) else None
    structured = bool(merged.get("response_format"))
    needs = Needs(tools=bool(tools), vision=images > 0, structured=structured, context_tokens=tokens + (most or 0))
    timeout = merged.get("timeout")
    return Call(role, tokens, needs, last, most, timeout if isinstance(timeout, (int, float)) else None)


def outcome_of(usage: Mapping[str, Any] | None, response: Any, call: Call, seconds: float) -> Outcome:
    """Usage and time of a completion; one out of AG2's cache cost nothing."""
    if usage is None:
        return Outcome(usd=0.0, seconds=seconds)
    prompt, completion = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    missing = not prompt and not completion
    if missing:
        prompt = call.prompt_tokens
        completion = len(_json(getattr(response, "choices", ""))) // CHARACTERS_PER_TOKEN
    details = getattr(getattr(response, "usage", None), "prompt_tokens_details", None)
    return Outcome(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=min(int(getattr(details, "cached_tokens", 0) or 0), prompt),
        tokens_estimated=missing,
        seconds=seconds,
    )


def _reply(view: Any, response: Any) -> Any:
    found = view.extract_text_or_completion_object(response)[0]
    return found.model_dump() if hasattr(found, "model_dump") else found


def _text(view: Any, response: Any) -> str:
    reply = _reply(view, response)
    return str(reply.get("content") or "") if isinstance(reply, Mapping) else str(reply or "")


def _tool_calls(view: Any, response: Any) -> list[tuple[str, str, str]]:
    reply = _reply(view, response)
    calls = reply.get("tool_calls") or () if isinstance(reply, Mapping) else ()
    return [(str(call.get("id")), call["function"]["name"], call["function"]["arguments"] or "") for call in calls]


def _content(content: Any) -> tuple[str, int]:
    """Text of a message and how many images it holds."""
    if isinstance(content, str):
        return content, 0
    parts = [part for part in content or () if isinstance(part, Mapping)]
    text = "\n".join(str(part.get("text", "")) for part in parts)
    return text, sum("image" in str(part.get("type")) for part in parts)


def _json(value: Any) -> str:
    return json.dumps(value, default=str)
