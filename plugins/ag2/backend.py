"""Any steproute backend as an ag2 (≥ 1.0) model: local weights, Ollama with its timings, recordings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

try:
    from ag2.config import LLMClient, ModelConfig, ModelProvider
    from ag2.config.openai.mappers import convert_messages, response_proto_to_schema, tool_to_api
    from ag2.events import BaseEvent, ModelMessage, ModelResponse, ToolCallEvent, ToolCallsEvent, Usage
except ImportError as error:
    raise ImportError(
        f"this needs ag2 >= 1.0 with its openai extra ({error}); install it with: pip install 'steproute[ag2]'"
    ) from error

from steproute.backend import Backend, ChatRequest, ChatResponse


@dataclass
class BackendConfig(ModelConfig):
    """An ag2 `ModelConfig` whose calls go through a steproute backend.

    The duration the backend reports reaches the routed call's outcome, so that a replayed call costs what it cost when
    it was recorded.
    """

    backend: Backend
    deployment: str
    """Model name as the backend knows it."""
    temperature: float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    seed: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Goes into `ChatRequest.extra`."""

    @property
    def provider(self) -> ModelProvider:
        """The chat-completions vocabulary is OpenAI's."""
        return ModelProvider.OPENAI

    @property
    def model(self) -> str:
        """Same as `deployment`."""
        return self.deployment

    def copy(self) -> BackendConfig:
        """An independent copy that shares the backend."""
        return BackendConfig(
            self.backend, self.deployment, self.temperature, self.max_tokens, self.stop, self.seed, dict(self.extra)
        )

    def create(self) -> LLMClient:
        """A client for one agent."""
        return _Client(self)

    def create_files_client(self) -> Any:
        """A backend serves chat only."""
        raise NotImplementedError("a steproute backend has no files API")


class TimedResponse(ModelResponse):
    """An ag2 response that also says how long the model server took."""

    seconds: float = 0.0


class _Client(LLMClient):
    def __init__(self, config: BackendConfig):
        self._config = config

    async def __call__(
        self,
        messages: Sequence[BaseEvent],
        context: Any,
        *,
        tools: Iterable[Any] = (),
        response_schema: Any = None,
        serializer: Any = None,
    ) -> ModelResponse:
        config = self._config
        prompt = [*context.prompt]
        if response_schema and response_schema.system_prompt:
            prompt.append(response_schema.system_prompt)
        response = await config.backend.acomplete(
            ChatRequest(
                model=config.deployment,
                messages=convert_messages(prompt, messages, serializer),
                tools=[tool_to_api(tool) for tool in tools],
                response_format=response_proto_to_schema(response_schema),
                temperature=config.temperature,
                max_tokens=config.max_tokens,
                stop=config.stop,
                seed=config.seed,
                extra=config.extra,
            )
        )
        message = ModelMessage(response.content) if response.content else None
        if message is not None:
            await context.send(message)
        return _response(response, message, config)


def _response(response: ChatResponse, message: ModelMessage | None, config: BackendConfig) -> ModelResponse:
    usage = response.usage
    return TimedResponse(
        message,
        tool_calls=ToolCallsEvent(
            [ToolCallEvent(id=c.id, name=c.name, arguments=c.arguments) for c in response.tool_calls]
        ),
        usage=Usage(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
            cache_read_input_tokens=usage.cached_tokens,
        ),
        model=config.deployment,
        provider=config.provider,
        finish_reason=response.finish_reason,
        seconds=response.seconds,
    )
