"""Structured output from a model that is not chosen yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable, RunnableConfig

from steproute.plugins.langgraph import loops
from steproute.plugins.langgraph.calls import Call

if TYPE_CHECKING:
    from steproute.plugins.langgraph.chat_model import RoutedChatModel


class RoutedStructuredOutput(Runnable[LanguageModelInput, Any]):
    """What `RoutedChatModel.with_structured_output` returns: the chosen model's own structured output."""

    def __init__(self, model: RoutedChatModel, schema: Any, options: Mapping[str, Any]):
        self.model = model
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
        return self.model.prepare(input, config, self._bind, kwargs, (), structured=True, parsed=True)

    def _bind(self, name: str) -> Any:
        def bind() -> Any:
            return self.model.models[name].with_structured_output(self.schema, **self.options)

        return self.model.bound.get((name, *self._key), self.schema, bind)
