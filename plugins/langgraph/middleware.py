"""A LangChain agent middleware that chooses the model of every model call."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
    from langchain.agents.middleware.types import ExtendedModelResponse, PrivateStateAttr
    from langchain.chat_models import init_chat_model
    from langchain_core.messages import AIMessage
    from langgraph.types import Command
except ImportError as error:
    raise ImportError(
        f"RoutingMiddleware needs langchain >= 1.2.18 ({error}); install it with: pip install 'steproute[langchain]'"
    ) from error

from typing_extensions import NotRequired

from steproute.ledger import Outcome
from steproute.plugins.langgraph.calls import Call
from steproute.plugins.langgraph.deciding import Turn
from steproute.plugins.langgraph.desk import Desk, Settings, TaskSetting
from steproute.plugins.langgraph.heard import Ears, HeardCall, listening
from steproute.plugins.langgraph.ledgers import set_subtasks
from steproute.plugins.langgraph.loops import adrive, attempts, drive
from steproute.plugins.langgraph.prompt import CountTokens, read_prompt
from steproute.plugins.langgraph.records import KEY, Record, merge_records
from steproute.plugins.langgraph.schema import subtasks_in
from steproute.plugins.langgraph.site import config_of, site_of, site_of_runtime
from steproute.plugins.langgraph.usage import describe, known_names, reported_model
from steproute.router import Router

_DEAF = nullcontext()
Handler = Callable[[ModelRequest], Any]
AsyncHandler = Callable[[ModelRequest], Awaitable[Any]]


class RoutingState(AgentState[Any]):
    """The agent's state with the router's records, which are neither input nor output."""

    steproute: NotRequired[Annotated[dict[str, Record], PrivateStateAttr, merge_records]]


class RoutingMiddleware(AgentMiddleware[RoutingState, Any, Any]):
    """Replaces the agent's own model by the one steproute chooses for each call.

    It may stand before or after retry and fallback middleware. A request for another model than the agent's own (a
    fallback's) passes through untouched; whoever really answered gets the credit and the bill.
    """

    state_schema = RoutingState

    def __init__(
        self,
        router: Router,
        models: Mapping[str, Any],
        *,
        own: Any = None,
        role: str | None = None,
        task: TaskSetting = None,
        domain: str = "generic",
        fallbacks: bool = True,
        durable: bool = True,
        count_tokens: CountTokens | None = None,
    ):
        """Route between chat models.

        Args:
            router: the router.
            models: a LangChain chat model, or a name for `init_chat_model`, per model of the router's pool.
            own: the model given to `create_agent`; None = the one that each execution of the model node asks for
                first. Give it when an outer middleware chooses models by itself and is to be respected.
            role: worker the calls are made for; None = the agent's name.
            task: as for `RoutedChatModel`.
            domain: progress view of tasks that begin here.
            fallbacks: False = the first failure is raised, for other middleware to deal with.
            durable: save what calls cost beside the graph's checkpoint at once.
            count_tokens: counts the tokens of messages before a call; None = 4 characters a token.

        Raises:
            ConfigError: no models, or a name the pool does not have.
        """
        super().__init__()
        clients = {name: init_chat_model(item) if isinstance(item, str) else item for name, item in models.items()}
        self.desk = Desk(router, clients, Settings(role, task, domain, fallbacks, durable, count_tokens))
        self.own = own

    def wrap_model_call(self, request: ModelRequest, handler: Handler) -> Any:
        """Choose, call, credit; on to the next model when it fails."""
        call, routed = self._begin(request)
        if not routed:
            with listening() as heard:
                response = handler(request)
            self._credit_other(call, heard, response)
            return response
        call.desk.load(call.site, call.journal)
        self._see_subtasks(call, request)

        def ask(turn: Turn) -> Any:
            with _listening(handler) as ears:
                return ears, handler(self._request(request, turn, call))

        _, response = drive(call, attempts(call, lambda turn, heard: self._credit(call, turn, *heard)), ask)
        return self._response(call, response)

    async def awrap_model_call(self, request: ModelRequest, handler: AsyncHandler) -> Any:
        """`wrap_model_call` for asynchronous agents."""
        call, routed = self._begin(request)
        if not routed:
            with listening() as heard:
                response = await handler(request)
            self._credit_other(call, heard, response)
            return response
        await call.desk.aload(call.site, call.journal)
        self._see_subtasks(call, request)

        async def ask(turn: Turn) -> Any:
            with _listening(handler) as ears:
                return ears, await handler(self._request(request, turn, call))

        _, response = await adrive(call, attempts(call, lambda turn, heard: self._credit(call, turn, *heard)), ask)
        return self._response(call, response)

    # --- inside -----------------------------------------------------------------------------------------------

    def _begin(self, request: ModelRequest) -> tuple[Call, bool]:
        """The call of a request, and whether it is the agent's own and therefore routed."""
        messages = [*([request.system_message] if request.system_message else []), *request.messages]
        tools: list[Any] = list(request.tools)
        structured = _is_provider_strategy(request.response_format)
        if request.response_format is not None and not structured:
            tools.append(request.response_format)  # LangChain asks for the answer by a tool call
        told = request.model_settings.get("max_tokens")
        limit = told if isinstance(told, int) else None
        count = self.desk.settings.count_tokens
        prompt = read_prompt(messages, tools=tools, structured=structured, room=limit or 0, count=count)
        config = config_of(None)
        site = site_of(config)
        if not site.in_graph:
            site = site_of_runtime(request.runtime, request.state)
        call = Call.prepare(self.desk, config, prompt, limit, site)
        own = self.own
        if call.site.in_graph:
            execution = call.journal.execution(call.site)
            if execution.model is None:
                execution.model = request.model
            own = own if own is not None else execution.model
            if own is request.model:
                execution.call = call
            elif execution.call is not None:
                return execution.call, False
        return call, own is None or own is request.model

    def _request(self, request: ModelRequest, turn: Turn, call: Call) -> ModelRequest:
        client = self.desk.clients[turn.model]
        if turn.messages is call.prompt.messages:
            return request.override(model=client)
        messages: list[Any] = list(turn.messages)[1 if request.system_message else 0 :]
        return request.override(model=client, messages=messages)

    def _see_subtasks(self, call: Call, request: ModelRequest) -> None:
        try:
            subtasks = subtasks_in(request.state)
            if subtasks is not None:
                set_subtasks(self.desk.router, call.journal, subtasks)
        except Exception as error:
            if not self.desk.router.faults.swallow(error, "reading subtasks"):
                raise

    def _credit(self, call: Call, turn: Turn, ears: Ears | None, response: Any) -> None:
        """Observe for the model that really answered, and for the one decided if that is another."""
        with self.desk.router.faults.kept("crediting a model call"):
            message = _reply(response)
            if ears is None:
                call.answered(turn, message)
                return
            replied = _heard(ears, message)
            names = known_names(self.desk.clients[turn.model])
            mine = [item for item in ears.calls.values() if not item.model or not names or item.model in names]
            if replied is not None and replied in mine:
                call.answered(turn, message if message is not None else replied.message)
                return
            failure = next((item.error for item in mine if item.error is not None), None)
            if failure is not None:
                outcome = Outcome(seconds=turn.seconds, error=describe(failure))
                call.settle(turn, outcome, None, turn.model)
            else:
                call.unused(turn)
            if replied is not None and replied.message is not None:
                call.credit(self._pool_name(replied), replied.message)

    def _credit_other(self, call: Call, ears: Ears, response: Any) -> None:
        """Meter a request that passed through: another middleware chose its model."""
        with self.desk.router.faults.kept("crediting a model call"):
            replied = _heard(ears, _reply(response))
            if replied is not None and replied.message is not None:
                call.credit(self._pool_name(replied), replied.message)
                self.desk.save(call.site, call.journal)

    def _pool_name(self, heard: HeardCall) -> str:
        reported = reported_model(heard.message) if heard.message is not None else ""
        return self.desk.named(heard.model) or self.desk.named(reported)

    def _response(self, call: Call, response: Any) -> Any:
        keys = dict.fromkeys((*self.desk.unstored(call.site, call.journal), call.key))
        update = {KEY: {key: call.journal.records[key] for key in keys if key in call.journal.records}}
        if isinstance(response, ExtendedModelResponse):
            inner = response.command
            merged = {**(inner.update if inner is not None and isinstance(inner.update, Mapping) else {}), **update}
            return ExtendedModelResponse(model_response=response.model_response, command=Command(update=merged))
        if isinstance(response, AIMessage):
            response = ModelResponse(result=[response])
        return ExtendedModelResponse(model_response=response, command=Command(update=update))


_hook: Any
for _hook in (RoutingMiddleware.wrap_model_call, RoutingMiddleware.awrap_model_call):
    _hook.__signature__ = inspect.signature(_hook)  # LangChain asks at every call, and finding out anew takes 10 µs


def _listening(handler: Any) -> AbstractContextManager[Ears | None]:
    """Hear the calls that other middleware may make; where the handler is the model's own call there is none."""
    innermost = getattr(handler, "__name__", "") in ("_execute_model_sync", "_execute_model_async")
    return _DEAF if innermost else listening()


def _reply(response: Any) -> AIMessage | None:
    if isinstance(response, AIMessage):
        return response
    whole = getattr(response, "model_response", response)
    return next((item for item in reversed(getattr(whole, "result", ())) if isinstance(item, AIMessage)), None)


def _heard(ears: Ears, message: AIMessage | None) -> HeardCall | None:
    """The call a reply came from: the one that returned it, else the latest that returned something."""
    for item in reversed(ears.calls.values()):
        if item.message is not None and message is not None and item.message.id == message.id:
            return item
    return ears.replied


def _is_provider_strategy(response_format: Any) -> bool:
    return type(response_format).__name__ == "ProviderStrategy"
