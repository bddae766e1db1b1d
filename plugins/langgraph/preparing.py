"""Makes a routed call of what a host hands to a chat model: prompt, configuration, tools, options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs

from steproute.plugins.langgraph.calls import Call
from steproute.plugins.langgraph.desk import Desk
from steproute.plugins.langgraph.loops import Target
from steproute.plugins.langgraph.prompt import CHARACTERS_PER_TOKEN, messages_of, read_prompt
from steproute.plugins.langgraph.site import config_of
from steproute.plugins.langgraph.tools import BoundModels, QueuedTools

_LIMITS = ("max_tokens", "max_completion_tokens", "num_predict")


class Preparer:
    """What a routed chat model does before a model is chosen."""

    def __init__(self, desk: Desk, own: RunnableConfig | None):
        """Keep what is the same for every call.

        Args:
            desk: the router's side.
            own: callbacks, tags and metadata of the routed model itself.
        """
        self.desk, self._own = desk, own
        self._bound = BoundModels()
        self._limit = _common_limit(desk.clients.values())

    def reply(
        self, input: LanguageModelInput, config: RunnableConfig | None, kwargs: dict[str, Any]
    ) -> tuple[Call, Target]:
        """A call that returns a reply, ready to run.

        Args:
            input: the prompt.
            config: as the host gave it.
            kwargs: goes to the model chosen; tools that wait are bound to it instead.
        """
        tools = kwargs.get("tools")
        if not isinstance(tools, QueuedTools):  # bound in a provider's own form: the host knows what it does
            client_of = self.desk.clients.__getitem__
            return self._call(input, config, client_of, kwargs, tools or (), _asks_for_schema(kwargs))
        del kwargs["tools"]
        structured = _asks_for_schema(kwargs) or _asks_for_schema(tools.options)

        def make(name: str) -> Any:
            return self.bound(
                (name, *tools.key),
                tools,
                lambda: self.desk.clients[name].bind_tools(list(tools.tools), **tools.options),
            )

        return self._call(input, config, make, kwargs, tools, structured)

    def parsed(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None,
        make: Callable[[str], Any],
        kwargs: Mapping[str, Any],
    ) -> tuple[Call, Target]:
        """A call that returns an object that follows a schema, ready to run.

        Args:
            input: the prompt.
            config: as the host gave it.
            make: pool name → the runnable to call.
            kwargs: goes to the runnable.
        """
        call, target = self._call(input, config, make, kwargs, (), structured=True)
        target.parsed = True
        return call, target

    def bound(self, key: tuple[Any, ...], held: Any, make: Callable[[], Any]) -> Any:
        """A model with tools or a schema bound, kept under a key; see `BoundModels`."""
        return self._bound.get(key, held, make)

    def tokens(self, text: str) -> int:
        """Estimated tokens of a text."""
        count = self.desk.settings.count_tokens
        return count([HumanMessage(text)]) if count is not None else len(text) // CHARACTERS_PER_TOKEN

    def _call(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None,
        make: Callable[[str], Any],
        kwargs: Mapping[str, Any],
        tools: Sequence[Any],
        structured: bool,
    ) -> tuple[Call, Target]:
        if self._own:
            config = merge_configs(ensure_config(config), self._own)
        limit = self._limit
        if kwargs:
            limit = next((kwargs[key] for key in _LIMITS if isinstance(kwargs.get(key), int)), limit)
        count = self.desk.settings.count_tokens
        prompt = read_prompt(messages_of(input), tools=tools, structured=structured, room=limit or 0, count=count)
        return Call.prepare(self.desk, config_of(config), prompt, limit), Target(make, config, kwargs)


def _asks_for_schema(options: Mapping[str, Any]) -> bool:
    return bool(options.get("response_format") or options.get("format"))


def _common_limit(clients: Iterable[Any]) -> int | None:
    """The largest completion limit, when every chat model has one of its own."""
    limits = [
        next((value for key in _LIMITS if isinstance(value := getattr(client, key, None), int)), None)
        for client in clients
    ]
    return max(limit for limit in limits if limit is not None) if limits and None not in limits else None
