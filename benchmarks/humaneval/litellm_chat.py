"""The team of the main job as a plain loop through `litellm.Router`: LiteLLM calls the models, steproute narrows its choice.

The models are served by a provider of LiteLLM's own kind that asks the benchmark's backend, so that the same recordings
answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from steproute.backend import Backend, BackendError
from steproute.benchmarks.humaneval import team
from steproute.benchmarks.humaneval.solve import Solving
from steproute.benchmarks.humaneval.tree import request
from steproute.plugins.litellm import StepRouting, labels

import litellm  # isort: skip  (after the plugin, which keeps it off the network)
from litellm.types.utils import Choices, Message, ModelResponse, Usage  # isort: skip

_PROVIDER = "steproute-benchmark"
_GROUP = "team"
_HEARD_WITHIN_S = 60.0


class _Models(litellm.CustomLLM):  # type: ignore[misc, name-defined]
    """A LiteLLM provider in front of a backend."""

    def __init__(self, solving: Solving, backend: Backend):
        super().__init__()
        self._solving, self._backend = solving, backend

    async def acompletion(self, model: str, messages: list[dict[str, Any]], *_: Any, **more: Any) -> Any:
        """Answer as the backend does."""
        try:
            found = await self._backend.acomplete(request(self._solving.problem, messages, model))
        except BackendError as error:
            status = error.status or 500
            raise litellm.exceptions.APIError(status, str(error), _PROVIDER, model) from error
        usage = Usage(
            prompt_tokens=found.usage.prompt_tokens,
            completion_tokens=found.usage.completion_tokens,
            total_tokens=found.usage.prompt_tokens + found.usage.completion_tokens,
            prompt_tokens_details={"cached_tokens": found.usage.cached_tokens},
        )
        choice = Choices(finish_reason="stop", message=Message(role="assistant", content=found.content))
        answer = ModelResponse(choices=[choice], model=model, usage=usage)
        answer._hidden_params["steproute_seconds"] = found.seconds
        return answer


class _Heard(StepRouting):
    """Lets the loop wait until an outcome has been taken in."""

    heard: asyncio.Event

    async def async_log_success_event(self, *given: Any, **named: Any) -> None:
        """Hear of a call that returned."""
        await super().async_log_success_event(*given, **named)
        self.heard.set()


def run_litellm(solving: Solving, backend: Backend, models: Mapping[str, str]) -> None:
    """A plain loop; what chooses the model is the filter in `litellm.callbacks`."""
    plugin = _Heard(solving.router, count_tokens=lambda messages: solving.prompt_tokens())
    deployments = [
        {
            "model_name": _GROUP,
            "litellm_params": {"model": f"{_PROVIDER}/{deployment}"},
            "model_info": {"id": name, "steproute": name},
        }
        for name, deployment in models.items()
    ]
    before = litellm.callbacks, litellm.custom_provider_map, litellm.suppress_debug_info
    litellm.callbacks, litellm.suppress_debug_info = [plugin], True
    litellm.custom_provider_map = [{"provider": _PROVIDER, "custom_handler": _Models(solving, backend)}]
    try:
        library: Any = litellm
        llm_router = library.Router(
            model_list=deployments, num_retries=len(models) * team.MAX_ATTEMPTS, retry_after=0, disable_cooldowns=True
        )
        asyncio.run(_work(solving, llm_router, plugin))
    finally:
        litellm.callbacks, litellm.custom_provider_map, litellm.suppress_debug_info = before


async def _work(solving: Solving, llm_router: Any, plugin: _Heard) -> None:
    role = "coder"
    while True:
        plugin.heard = asyncio.Event()
        with labels(task=solving.ledger, role=role):
            answer = await llm_router.acompletion(
                model=_GROUP,
                messages=solving.node.messages(solving.problem),
                temperature=0,
                max_tokens=team.MAX_TOKENS,
                stop=team.STOP,
                seed=0,
            )
        await asyncio.wait_for(plugin.heard.wait(), _HEARD_WITHIN_S)
        if solving.test(answer.choices[0].message.content or "") is None:
            return
        role = "fixer"
