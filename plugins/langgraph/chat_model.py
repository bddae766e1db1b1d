"""A LangChain chat model whose every call is served by the model that steproute chooses for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, cast

try:
    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
    from langchain_core.outputs import ChatGeneration, ChatResult, LLMResult
    from langchain_core.runnables import Runnable, RunnableConfig
except ImportError as error:
    raise ImportError(
        f"RoutedChatModel needs langchain-core ({error}); install it with: pip install 'steproute[langgraph]'"
    ) from error

from pydantic import Field

from steproute.errors import ConfigError, unknown_name
from steproute.plugins.langgraph import events, loops
from steproute.plugins.langgraph.calls import Call
from steproute.plugins.langgraph.desk import Desk, Settings, TaskSetting
from steproute.plugins.langgraph.preparing import Preparer
from steproute.plugins.langgraph.prompt import CountTokens
from steproute.plugins.langgraph.structured import RoutedStructuredOutput
from steproute.plugins.langgraph.tools import QueuedTools
from steproute.router import Router

_FIELDS = ("callbacks", "metadata", "name", "profile", "tags", "verbose")


class RoutedChatModel(BaseChatModel):
    """Use it wherever a chat model goes: alone, in chains, graphs and agents.

    It makes no request of its own: the chat model chosen is invoked in its place, with the tools, the schema, the
    stop words and the callbacks it was given, so traces and token counts show each call once, under the model that
    served it. A model that fails is followed by the next one the router chooses.
    """

    router: Any = Field(exclude=True, repr=False)
    """The steproute router."""
    models: Mapping[str, Any] = Field(exclude=True, repr=False)
    """Pool name → chat model."""
    role: str | None = None
    """Worker the calls are made for; None = the agent's or the node's name."""
    domain: str = "generic"
    """Progress view of tasks that begin here."""
    fallbacks: bool = True
    """False = the first failure is the host's."""
    durable: bool = True
    """Save what calls cost beside the graph's checkpoint at once, so that it outlives an interrupt or a kill."""

    preparer: Any = Field(exclude=True, repr=False)
    """Readies each call. A field, since a private attribute of a pydantic model is slow to read."""

    def __init__(
        self,
        router: Router,
        models: Mapping[str, Any],
        *,
        role: str | None = None,
        task: TaskSetting = None,
        domain: str = "generic",
        fallbacks: bool = True,
        durable: bool = True,
        count_tokens: CountTokens | None = None,
        **more: Any,
    ):
        """Route between chat models.

        Args:
            router: the router; a node or middleware of the same graph may share it.
            models: a LangChain chat model per model of the router's pool; pool models without one are never chosen.
            role: worker the calls are made for; None = the agent's or the node's name.
            task: the task the calls belong to: an id, a `Task`, a `Ledger`, or a callable that gets the configuration;
                None = the thread, else the run of the graph, else the conversation. `steproute_task` in a call's
                `configurable` goes before it.
            domain: progress view of tasks that begin here.
            fallbacks: False = the first failure is raised.
            durable: save what calls cost beside the graph's checkpoint at once.
            count_tokens: counts the tokens of messages before a call; None = 4 characters a token.
            **more: `callbacks`, `tags`, `metadata`, `name` or `profile` of a chat model. What changes how a call is made
                (cache, rate limiter, streaming) is set on the chat models themselves.

        Raises:
            ConfigError: no models, a name the pool does not have, no chat model, or a setting that does not exist.
        """
        for setting in more:
            if setting not in _FIELDS:
                raise ConfigError(unknown_name("RoutedChatModel", setting, _FIELDS))
        desk = Desk(router, models, Settings(role, task, domain, fallbacks, durable, count_tokens))
        fields: dict[str, Any] = {"router": router, "models": dict(models), "role": role, "domain": domain}
        own = {key: more[key] for key in ("callbacks", "tags", "metadata") if more.get(key)}
        fields["preparer"] = Preparer(desk, cast(RunnableConfig, own))
        super().__init__(**{**fields, "fallbacks": fallbacks, "durable": durable, **more})

    # --- what a chat model does -------------------------------------------------------------------------------

    def invoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Call the model chosen, and the next one when it fails."""
        call, target = self._routed(input, config, stop, kwargs)
        return cast(AIMessage, loops.run(call, target))

    async def ainvoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """`invoke` for asynchronous hosts."""
        call, target = self._routed(input, config, stop, kwargs)
        return cast(AIMessage, await loops.arun(call, target))

    def stream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessageChunk]:
        """Stream from the model chosen; the next one is tried only while nothing has come."""
        call, target = self._routed(input, config, stop, kwargs)
        yield from loops.stream(call, target)

    async def astream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessageChunk]:
        """`stream` for asynchronous hosts."""
        call, target = self._routed(input, config, stop, kwargs)
        async for piece in loops.astream(call, target):
            yield piece

    def generate(
        self, messages: list[list[BaseMessage]], stop: list[str] | None = None, callbacks: Any = None, **kwargs: Any
    ) -> LLMResult:
        """One routed call per list of messages. The models chosen report to the callbacks, each call once."""
        config, kwargs = _split(callbacks, kwargs)
        replies = [self.invoke(item, config, stop=stop, **kwargs) for item in messages]
        return LLMResult(generations=[[ChatGeneration(message=reply)] for reply in replies])

    async def agenerate(
        self, messages: list[list[BaseMessage]], stop: list[str] | None = None, callbacks: Any = None, **kwargs: Any
    ) -> LLMResult:
        """`generate` for asynchronous hosts."""
        config, kwargs = _split(callbacks, kwargs)
        replies = [await self.ainvoke(item, config, stop=stop, **kwargs) for item in messages]
        return LLMResult(generations=[[ChatGeneration(message=reply)] for reply in replies])

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Keep the tools until a model is chosen; only models that can call tools will be."""
        options = kwargs if tool_choice is None else {"tool_choice": tool_choice, **kwargs}
        return cast("Runnable[LanguageModelInput, AIMessage]", self.bind(tools=QueuedTools(tools, options)))

    def with_structured_output(
        self, schema: Any, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Keep the schema until a model is chosen. A reply that does not follow it counts as a failure of that model."""
        return RoutedStructuredOutput(self.preparer, schema, {"include_raw": include_raw, **kwargs})

    def get_num_tokens(self, text: str) -> int:
        """Estimated as before a call: no model is chosen whose tokenizer could be asked."""
        return cast(Preparer, self.preparer).tokens(text)

    def stream_events(
        self, input: Any, config: RunnableConfig | None = None, *, version: Any = "v2", **kwargs: Any
    ) -> Any:
        """Events of the model chosen."""
        if version != "v3":
            return super().stream_events(input, config, version=version, **kwargs)
        return events.stream_events(*self._routed(input, config, kwargs.pop("stop", None), kwargs))

    def astream_events(
        self, input: Any, config: RunnableConfig | None = None, *, version: Any = "v2", **kwargs: Any
    ) -> Any:
        """Events of the model chosen."""
        if version != "v3":
            return super().astream_events(input, config, version=version, **kwargs)
        return events.astream_events(*self._routed(input, config, kwargs.pop("stop", None), kwargs))

    # --- inside -----------------------------------------------------------------------------------------------

    def _routed(
        self, input: LanguageModelInput, config: RunnableConfig | None, stop: list[str] | None, kwargs: dict[str, Any]
    ) -> tuple[Call, loops.Target]:
        if stop is not None:
            kwargs["stop"] = stop
        return cast(Preparer, self.preparer).reply(input, config, kwargs)

    @property
    def _llm_type(self) -> str:
        return "steproute"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"models": sorted(self.models), "policy": self.router.policy.name}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = self.invoke(messages, {"callbacks": []}, stop=stop, **kwargs)  # whoever calls this reports the call
        return ChatResult(generations=[ChatGeneration(message=reply)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = await self.ainvoke(messages, {"callbacks": []}, stop=stop, **kwargs)
        return ChatResult(generations=[ChatGeneration(message=reply)])


def _split(callbacks: Any, kwargs: dict[str, Any]) -> tuple[RunnableConfig, dict[str, Any]]:
    """The configuration that `generate` takes as separate arguments."""
    config: dict[str, Any] = {"callbacks": callbacks}
    for name in ("tags", "metadata", "run_name", "run_id"):
        value = kwargs.pop(name, None)
        if value is not None:
            config[name] = value
    return cast(RunnableConfig, config), kwargs
