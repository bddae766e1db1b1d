"""`StepRouting`: LiteLLM's filter of deployments and its logger of outcomes, for its SDK and its proxy."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

try:
    from litellm.integrations.custom_logger import CustomLogger
except ImportError as error:
    raise ImportError(
        f"steproute.plugins.litellm needs LiteLLM ({error}); install it with: pip install 'steproute[litellm]'"
    ) from error

from steproute.decision import Decision
from steproute.errors import BudgetExceeded, NoEligibleModel
from steproute.plugins.litellm.answers import http_error, response_headers
from steproute.plugins.litellm.calls import Pick
from steproute.plugins.litellm.deployments import Deployment
from steproute.plugins.litellm.desk import Desk
from steproute.plugins.litellm.identity import METADATA
from steproute.plugins.litellm.refusals import refusal, refusal_in
from steproute.router import Router
from steproute.telemetry import under

_RECENT = hasattr(CustomLogger, "async_post_call_response_headers_hook")
"""Whether this LiteLLM lets a logger add headers to every answer, as it does since 1.81."""


class StepRouting(CustomLogger):  # type: ignore[misc]
    """Narrows a group's deployments to those of the model the router chooses, and tells it how the calls went.

    `litellm.callbacks = [StepRouting(router)]`. Cooldowns, tags, fallbacks, aliases, retries and context windows stay
    LiteLLM's; a fault in here leaves its choice as it was. Two errors reach the caller: `BudgetExceeded` and
    `NoEligibleModel`.
    """

    def __init__(
        self,
        router: Router,
        *,
        count_tokens: Callable[[Sequence[Any]], int] | None = None,
        ask_usage: bool = True,
    ):
        """Serve a router.

        Args:
            router: decides and learns.
            count_tokens: tokens of a request's messages; None = characters / 4.
            ask_usage: True = streams are asked for their usage; their readers then see one more chunk, with no text.
        """
        super().__init__()
        self.steproute_name = (
            uuid.uuid4().hex
        )  # LiteLLM takes loggers of one class with equal public scalars for the same
        self.ask_usage = ask_usage
        self._desk = Desk(router, count_tokens)

    @property
    def router(self) -> Router:
        """The router behind it."""
        return self._desk.router

    # --- before the call ------------------------------------------------------------------------------------------

    async def async_filter_deployments(
        self,
        model: str,
        healthy_deployments: list[Any],
        messages: list[Any] | None,
        request_kwargs: dict[str, Any] | None = None,
        parent_otel_span: Any = None,
    ) -> list[Any]:
        """Leave the deployments of the chosen model."""
        return self.filter_deployments(healthy_deployments, messages, request_kwargs, parent_otel_span)

    def filter_deployments(
        self,
        deployments: Sequence[Deployment],
        messages: Sequence[Any] | None,
        request: Mapping[str, Any] | None,
        span: Any = None,
    ) -> list[Any]:
        """The synchronous twin, for `StepRoutingStrategy`."""
        try:
            with self.router.faults.kept("choosing a deployment"), under(span):
                pick = self._desk.pick(deployments, messages, request or {})
                if pick is not None:
                    return self._desk.answer(pick, self._decided(pick)) or list(deployments)
        except (BudgetExceeded, NoEligibleModel) as error:
            raise refusal(error) from error
        return list(deployments)

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Ask a stream for its usage, which LiteLLM would otherwise guess."""
        if not kwargs.get("stream") or not self.ask_usage:
            return None
        if getattr(call_type, "value", call_type) not in ("acompletion", "completion"):
            return None
        options = kwargs.get("stream_options")
        if options is not None and (not isinstance(options, Mapping) or "include_usage" in options):
            return None
        return {**kwargs, "stream_options": {**(options or {}), "include_usage": True}}

    # --- after the call ---------------------------------------------------------------------------------------------

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Hear of a call that returned; of a stream, once it has ended."""
        self._returned(kwargs, response_obj, start_time, end_time)

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """The synchronous twin."""
        self._returned(kwargs, response_obj, start_time, end_time)

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Hear of a call that failed."""
        self._failed(kwargs, start_time, end_time)

    def log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """The synchronous twin."""
        self._failed(kwargs, start_time, end_time)

    # --- the proxy's answers ----------------------------------------------------------------------------------------

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
        litellm_call_info: dict[str, Any] | None = None,
    ) -> dict[str, str] | None:
        """Headers that say what was decided. LiteLLM has this hook since 1.81."""
        with self.router.faults.kept("writing response headers"):
            return self._headers(data)
        return None

    if not _RECENT:

        async def async_post_call_success_hook(
            self, data: dict[str, Any], user_api_key_dict: Any, response: Any
        ) -> Any:
            """The same headers for older proxies, where only whole answers can carry them."""
            with self.router.faults.kept("writing response headers"):
                hidden = getattr(response, "_hidden_params", None)
                if hidden is not None:
                    headers = {**(hidden.get("additional_headers") or {}), **self._headers(data)}
                    hidden["additional_headers"] = headers
            return response

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> Any:
        """Answer a refusal with its own status and a body that names the limit."""
        found = refusal_in(original_exception)
        return None if found is None else http_error(found, structured=_RECENT)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _decided(self, pick: Pick) -> Decision:
        if not pick.call.asked.chat:
            given, options = self._desk.booking(pick)
            return self.router.book(*given, **options)
        for _ in range(2):
            about, asked = self._desk.question(pick)
            try:
                return self.router.decide(*about, **asked)
            except NoEligibleModel as error:
                self._desk.goes_on(pick, error)
        about, asked = self._desk.question(pick)
        return self.router.decide(*about, **asked)

    def _returned(self, event: Any, response: Any, start: Any, end: Any) -> None:
        with self.router.faults.kept("hearing of a LiteLLM call"):
            told = self._desk.success(event, response, start, end)
            if told is not None:
                self.router.observe(told.decision, told.outcome, output=told.output)
                self._desk.settled(told, response)

    def _failed(self, event: Any, start: Any, end: Any) -> None:
        with self.router.faults.kept("hearing of a LiteLLM failure"):
            told = self._desk.failure(event, start, end)
            if told is not None:
                self.router.observe(*told)

    def _headers(self, data: Mapping[str, Any]) -> dict[str, str]:
        for name in METADATA:
            call = self._desk.call_in(data.get(name))
            if call is not None and call.attempts:
                return response_headers(call)
        return {}
