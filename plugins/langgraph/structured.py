"""Structured output from a model that is not chosen yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable, RunnableConfig

from steproute.plugins.langgraph import loops
from steproute.plugins.langgraph.calls import Call
from steproute.plugins.langgraph.preparing import Preparer


class RoutedStructuredOutput(Runnable[LanguageModelInput, Any]):
    """What `RoutedChatModel.with_structured_output` returns: the chosen model's own structured output."""

    def __init__(self, prepare: Preparer, schema: Any, options: Mapping[str, Any]):
        self._prepare = prepare
        self.schema = schema
        self.options = dict(options)
        self._key = ("schema", id(schema), repr(sorted(self.options.items(), key=lambda item: item[0])))

    def invoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """One object."""
        return loops.run(*self._prepared(input, config, kwargs))

    async def ainvoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """`invoke` for asynchronous hosts."""
        return await loops.arun(*self._prepared(input, config, kwargs))

    def stream(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """The object as it grows, where the model's own structured output streams."""
        yield from loops.stream(*self._prepared(input, config, kwargs))

    async def astream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """`stream` for asynchronous hosts."""
        async for piece in loops.astream(*self._prepared(input, config, kwargs)):
            yield piece

    def _prepared(
        self, input: LanguageModelInput, config: RunnableConfig | None, kwargs: dict[str, Any]
    ) -> tuple[Call, loops.Target]:
        return self._prepare.parsed(input, config, self._bind, kwargs)

    def _bind(self, name: str) -> Any:
        client = self._prepare.desk.clients[name]
        return self._prepare.bound(
            (name, *self._key), self.schema, lambda: client.with_structured_output(self.schema, **self.options)
        )
