"""ag2 ≥ 1.0: a model config that chooses the model of every call, in the place of an agent's own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ag2 import Agent
from ag2.config import LLMClient, ModelConfig
from ag2.events import BaseEvent, ModelResponse
from ag2.middleware import BaseMiddleware, Middleware
from ag2.network import AgentClient, Hub, HubClient
from ag2.network.client.channel import Channel

from steproute.errors import ConfigError
from steproute.models import Model
from steproute.plugins.ag2.attachment import Attachment, unknown_target
from steproute.plugins.ag2.calls import Attempts
from steproute.plugins.ag2.channels import Channels, current
from steproute.plugins.ag2.clients import Clients
from steproute.plugins.ag2.events import describe_call, outcome_of, text_of, tool_calls, tool_results

AGENT_DEP = "__ag2_agent__"


class RoutedConfig:
    """A `ModelConfig` for AG2. What is not about the model is answered by the agent's own config."""

    def __init__(self, desk: Desk, own: ModelConfig | None, owner: str, role: str | None = None):
        """Stand in for a config.

        Args:
            desk: where calls are routed.
            own: the config it stands in for, which is copied for models that have none of their own.
            owner: name of the agent, for errors and where AG2 does not say who calls.
            role: role of every call through it; None = the calling agent's name.
        """
        self.desk, self.own, self.owner, self.role = desk, own, owner, role

    @property
    def provider(self) -> Any:
        """Provider of the agent's own config."""
        return self._shown.provider

    @property
    def model(self) -> str:
        """Model of the agent's own config; the model called is chosen per call."""
        return self._shown.model

    @property
    def _shown(self) -> ModelConfig:
        return self.own if self.own is not None else self.config_for(self.desk.attachment.router.pool.default)

    def copy(self, **overrides: Any) -> RoutedConfig:
        """A routed config over a copy of the agent's own."""
        own = None if self.own is None else self.own.copy(**overrides)
        return RoutedConfig(self.desk, own, self.owner, self.role)

    def create(self) -> LLMClient:
        """The client AG2 calls."""
        return RoutedClient(self)

    def create_files_client(self) -> Any:
        """The agent's own files client."""
        return self._shown.create_files_client()

    def config_for(self, model: Model) -> ModelConfig:
        """The real config of a model.

        Raises:
            ConfigError: there is none, and no own config that could be copied.
        """
        given: ModelConfig | None = self.desk.attachment.settings.models.get(model.name)
        if given is not None:
            return given
        own: Any = self.own
        problem = "which has no config of its own to copy"
        if own is not None:
            try:
                copied: ModelConfig = own if own.model == model.provider_name else own.copy(model=model.provider_name)
                return copied
            except (TypeError, NotImplementedError):
                problem = f"whose {type(own).__name__} cannot be copied with another model"
        raise ConfigError(
            f"models: no model config for {model.name!r} for agent {self.owner!r}, {problem}; "
            f"give attach(..., models={{{model.name!r}: <an ag2 model config>}})"
        )

    def limits(self) -> tuple[int | None, float | None]:
        """Most completion tokens and seconds of a call: the largest of the models' limits, None when one has none."""
        found = [self._limits_of(model) for model in self.desk.attachment.router.pool]
        tokens, seconds = (
            [most for most, _ in found if most is not None],
            [most for _, most in found if most is not None],
        )
        return (
            max(tokens) if len(tokens) == len(found) else None,
            max(seconds) if len(seconds) == len(found) else None,
        )

    def _limits_of(self, model: Model) -> tuple[int | None, float | None]:
        try:
            config: Any = self.config_for(model)
        except ConfigError:
            return None, None  # an arm that came later; it fails by itself when it is chosen
        values = (getattr(config, name, None) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"))
        timeout = getattr(config, "timeout", None)
        return (
            next((value for value in values if isinstance(value, int)), None),
            float(timeout) if isinstance(timeout, (int, float)) else None,
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "own" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._shown, name)


class RoutedClient:
    """AG2's view of a model: one call in, one reply out, from whichever model was chosen."""

    def __init__(self, config: RoutedConfig):
        self._config = config

    async def __call__(self, messages: Sequence[BaseEvent], context: Any, **options: Any) -> ModelResponse:
        """Route one call; see `Attempts.decide` for what it raises."""
        options["tools"] = list(options.get("tools") or ())
        attempts = None
        with self._config.desk.attachment.router.faults.kept("AG2 call"):
            attempts = await self._prepare(messages, context, options)
        while attempts is not None:
            decision = attempts.decide()
            if decision is None:
                break
            started = time.perf_counter()
            try:
                client = await self._config.desk.clients.get(self._config.config_for(decision.model))
                response: ModelResponse = await client(messages, context, **options)
            except Exception as error:  # noqa: BLE001  counted by the router; raised once no model is left
                attempts.failed(decision, error, time.perf_counter() - started)
                continue
            except BaseException as error:
                attempts.failed(decision, error, time.perf_counter() - started)
                raise
            seconds = time.perf_counter() - started
            attempts.succeeded(
                decision,
                partial(outcome_of, response, attempts.call, seconds),
                partial(text_of, response),
                partial(tool_calls, response),
            )
            return response
        return await self._unrouted(messages, context, options)

    async def _prepare(self, messages: Sequence[BaseEvent], context: Any, options: Mapping[str, Any]) -> Attempts:
        config, channels = self._config, self._config.desk.channels
        role = config.role or _role(context, config.owner)
        book = await channels.book(context, messages)
        await channels.sync(book, context)
        for call_id, error in tool_results(messages):
            book.close_tool_call(call_id, error)
        schema = options.get("response_schema")
        call = describe_call(role, context.prompt, messages, options["tools"], schema, *config.limits())
        return config.desk.attachment.attempts(book, call)

    async def _unrouted(self, messages: Sequence[BaseEvent], context: Any, options: Mapping[str, Any]) -> ModelResponse:
        client = await self._config.desk.clients.get(self._config._shown)
        response: ModelResponse = await client(messages, context, **options)
        return response


def _role(context: Any, owner: str) -> str:
    agent = context.dependencies.get(AGENT_DEP)
    name = owner if agent is None else str(agent.name)
    return "subtask" if name.startswith("subtask-") else name  # the rest of the name is random


class _TurnScope(BaseMiddleware):
    """Lets everything that an agent's turn sets off know whose task it belongs to."""

    def __init__(self, event: Any, context: Any, desk: Desk):
        super().__init__(event, context)
        self._desk = desk

    async def on_turn(self, call_next: Any, event: Any, context: Any) -> Any:
        book = None
        with self._desk.attachment.router.faults.kept("AG2 turn"):
            book = await self._desk.channels.book(context, [event])
        if book is None:
            return await call_next(event, context)
        with current(book):
            return await call_next(event, context)


class Desk:
    """One attachment's hooks in ag2 ≥ 1.0."""

    def __init__(self, attachment: Attachment):
        self.attachment = attachment
        self.channels = Channels(attachment)
        self.clients = attachment.books.shared(Clients)
        self._hubs: list[Hub] = []
        self.channels.on_created = self._add_new_agents

    def add(self, target: Any) -> None:
        """Attach an agent, a hub, or something that holds them.

        Raises:
            ConfigError: a model has no config, or another router is attached.
        """
        if not isinstance(target, (Agent, AgentClient, Hub, HubClient, Channel)):
            raise unknown_target(target)
        if isinstance(target, Hub) and self.attachment.mark(target):
            self._hubs.append(target)
        client = target._client if isinstance(target, Channel) else target
        self.channels.watch(getattr(client, "_hub_client", client))
        for agent in agents_in(target):
            self._add_agent(agent)

    def _add_new_agents(self) -> None:
        """A hub tells of an agent before the agent is there; by the time a channel begins it is."""
        for hub in self._hubs:
            for agent in agents_in(hub):
                self._add_agent(agent)

    def _add_agent(self, agent: Agent[Any]) -> None:
        if not self.attachment.mark(agent):
            return
        config = RoutedConfig(self, agent.config, agent.name)
        self._check(config)
        self.attachment.replace(agent, "config", config)
        scope = Middleware(_TurnScope, desk=self)
        agent.insert_middleware(scope)
        self.attachment.on_detach(lambda: agent._middleware.remove(scope))
        tasks = agent._task_config
        if tasks is not None and tasks.config is not None:
            self._swap(tasks, "config", agent, None)
        knowledge = getattr(getattr(agent, "_knowledge_context", None), "config", None)
        for tool in agent.tools:
            if isinstance(getattr(tool, "agent", None), Agent):  # an agent offered as a tool
                self._add_agent(tool.agent)  # type: ignore[attr-defined]
        for strategy in (getattr(knowledge, "compact", None), getattr(knowledge, "aggregate", None)):
            if getattr(strategy, "_config", None) is not None:
                self._swap(strategy, "_config", agent, "summary")

    def _swap(self, holder: Any, name: str, agent: Agent[Any], role: str | None) -> None:
        own = getattr(holder, name)
        if isinstance(own, RoutedConfig):
            return
        config = RoutedConfig(self, own, agent.name, role)
        self._check(config)
        self.attachment.replace(holder, name, config)

    def _check(self, config: RoutedConfig) -> None:
        for model in self.attachment.router.pool:
            config.config_for(model)


def agents_in(target: Any) -> Iterator[Agent[Any]]:
    """The agents a target stands for."""
    if isinstance(target, Agent):
        yield target
    elif isinstance(target, AgentClient):
        yield target.agent
    elif isinstance(target, HubClient):
        yield from (client.agent for client in target._clients.values() if isinstance(client, AgentClient))
    elif isinstance(target, Hub):
        for client in target._owned_clients:
            yield from agents_in(client)
    elif isinstance(target, Channel):
        hub_client = target._client._hub_client
        members = {item.agent_id for item in target.metadata.participants}
        for source in (hub_client, *(hub_client._hub._owned_clients if hub_client._hub is not None else ())):
            yield from (c.agent for i, c in source._clients.items() if i in members and isinstance(c, AgentClient))
