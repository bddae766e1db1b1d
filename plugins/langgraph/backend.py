"""Any steproute backend as a LangChain chat model: local weights, Ollama with its timings, recordings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

try:
    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.runnables import Runnable
    from langchain_core.utils.function_calling import convert_to_openai_tool
except ImportError as error:
    raise ImportError(
        f"BackendChatModel needs langchain-core ({error}); install it with: pip install 'steproute[langgraph]'"
    ) from error

from pydantic import Field

from steproute.backend import Backend, ChatRequest, ChatResponse
from steproute.plugins.langgraph.usage import ESTIMATED, SECONDS


class BackendChatModel(BaseChatModel):
    """A chat model whose calls go through a steproute backend.

    The duration the backend reports reaches the routed call's outcome, so that a replayed call costs what it cost when
    it was recorded.
    """

    backend: Any = Field(exclude=True, repr=False)
    """A `steproute.backend.Backend`."""
    deployment: str
    """Model name as the backend knows it."""
    temperature: float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    seed: int | None = None
    extra: Mapping[str, Any] = Field(default_factory=dict)
    """Goes into `ChatRequest.extra`."""

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Send these tools with every call."""
        schemas = [convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=schemas, **({} if tool_choice is None else {"tool_choice": tool_choice}), **kwargs)

    @property
    def _llm_type(self) -> str:
        return "steproute-backend"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        backend: Backend = self.backend
        return self._result(backend.complete(self._request(messages, stop, kwargs)))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        backend: Backend = self.backend
        return self._result(await backend.acomplete(self._request(messages, stop, kwargs)))

    def _request(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: Mapping[str, Any]) -> ChatRequest:
        return ChatRequest(
            model=self.deployment,
            messages=convert_to_openai_messages(messages),
            tools=kwargs.get("tools", ()),
            tool_choice=kwargs.get("tool_choice"),
            response_format=kwargs.get("response_format"),
            temperature=kwargs.get("temperature", self.temperature),
            max_tokens=kwargs.get("max_tokens", self.max_tokens),
            stop=self.stop if stop is None else stop,
            seed=kwargs.get("seed", self.seed),
            extra=self.extra,
        )

    def _result(self, response: ChatResponse) -> ChatResult:
        usage = response.usage
        message = AIMessage(
            response.content,
            tool_calls=[
                {"id": call.id, "name": call.name, "args": json.loads(call.arguments or "{}"), "type": "tool_call"}
                for call in response.tool_calls
            ],
            usage_metadata={
                "input_tokens": usage.prompt_tokens,
                "output_tokens": usage.completion_tokens,
                "total_tokens": usage.prompt_tokens + usage.completion_tokens,
                "input_token_details": {"cache_read": usage.cached_tokens},
            },
            response_metadata={
                "model_name": self.deployment,
                "finish_reason": response.finish_reason,
                SECONDS: response.seconds,
                ESTIMATED: usage.estimated,
            },
        )
        return ChatResult(generations=[ChatGeneration(message=message)])
