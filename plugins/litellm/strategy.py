"""`StepRoutingStrategy`: for callers of `litellm.Router.completion`, whose deployments LiteLLM does not let a logger filter."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

import litellm
from litellm.types.router import CustomRoutingStrategyBase

from steproute.plugins.litellm.routing import StepRouting
from steproute.router import Router


class StepRoutingStrategy(CustomRoutingStrategyBase):  # type: ignore[misc]
    """Picks every deployment of a `litellm.Router`, from those LiteLLM calls healthy.

    `llm_router.register_plugin(StepRoutingStrategy(router, llm_router))`; before LiteLLM 1.81 the method is
    `set_custom_routing_strategy`. Outcomes are heard through a `StepRouting` among `litellm.callbacks`: the one that is
    there for the same router, else one is added.
    """

    def __init__(self, router: Router, llm_router: Any, *, rng: random.Random | None = None, **options: Any):
        """Serve a `litellm.Router`.

        Args:
            router: decides and learns.
            llm_router: LiteLLM's router.
            rng: draws between deployments of one model.
            options: as for `StepRouting`.
        """
        ours = [item for item in litellm.callbacks if isinstance(item, StepRouting) and item.router is router]
        self.routing = ours[0] if ours else StepRouting(router, **options)
        if not ours:
            litellm.callbacks.append(self.routing)
        self._llm_router = llm_router
        self._rng = rng or random.Random()

    def get_available_deployment(
        self,
        model: str,
        messages: list[Any] | None = None,
        input: Any = None,
        specific_deployment: bool | None = False,
        request_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Pick one for a synchronous call."""
        request = request_kwargs if request_kwargs is not None else {}
        if hasattr(self._llm_router, "select"):
            asked = self._llm_router.select(
                model, request, kind="healthy", specific_deployment=specific_deployment, messages=messages
            )
            healthy = _run(asked)
        else:
            healthy = self._healthy_before_1_81(model, messages, input, specific_deployment, request)
        if isinstance(healthy, dict):
            return healthy
        return self._one(self.routing.filter_deployments(healthy, messages, {"input": input, **request}))

    async def async_get_available_deployment(
        self,
        model: str,
        messages: list[Any] | None = None,
        input: Any = None,
        specific_deployment: bool | None = False,
        request_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Pick one for an asynchronous call: LiteLLM has asked the filter by then."""
        request = request_kwargs if request_kwargs is not None else {}
        if hasattr(self._llm_router, "select"):
            healthy = await self._llm_router.select(
                model, request, kind="healthy", specific_deployment=specific_deployment, messages=messages
            )
        else:
            healthy = await self._llm_router.async_get_healthy_deployments(
                model=model,
                request_kwargs=request,
                messages=messages,
                input=input,
                specific_deployment=specific_deployment,
            )
        if isinstance(healthy, dict):
            return healthy
        return self._one(healthy)

    def _healthy_before_1_81(
        self, model: str, messages: list[Any] | None, input: Any, specific: bool | None, request: dict[str, Any]
    ) -> Any:
        """What LiteLLM's own synchronous pick chooses from."""
        from litellm.router_utils import cooldown_handlers

        theirs = self._llm_router
        model, healthy = theirs._common_checks_available_deployment(
            model=model, messages=messages, input=input, specific_deployment=specific, request_kwargs=request
        )
        if isinstance(healthy, dict):
            return healthy
        cooling: Any = cooldown_handlers._get_cooldown_deployments
        resting = cooling(litellm_router_instance=theirs, parent_otel_span=None)
        healthy = theirs._filter_cooldown_deployments(healthy_deployments=healthy, cooldown_deployments=resting)
        if theirs.enable_pre_call_checks and messages is not None:
            healthy = theirs._pre_call_checks(
                model=model, healthy_deployments=healthy, messages=messages, request_kwargs=request
            )
        return healthy

    def _one(self, deployments: Sequence[Any]) -> Any:
        """One of several deployments of the chosen model, at random by LiteLLM's weights."""
        if not deployments:
            raise ValueError("no healthy deployment is left; all are cooling down")
        weights = [(item.get("litellm_params") or {}).get("weight") for item in deployments]
        known = [float(weight) if isinstance(weight, (int, float)) else 1.0 for weight in weights]
        return self._rng.choices(list(deployments), known if sum(known) > 0 else None)[0]


def _run(asked: Coroutine[Any, Any, Any]) -> Any:
    """Run LiteLLM's asynchronous question from synchronous code, also where a loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(asked)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(asked)))
    thread.start()
    thread.join()
    return found[0]
