"""A graph node that decides for the LLM call after it, and keeps the router's records in the graph's state."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

try:
    from langchain_core.messages import BaseMessage, HumanMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.graph import MessagesState
    from langgraph.types import Command
except ImportError as error:
    raise ImportError(
        f"router_node needs langgraph ({error}); install it with: pip install 'steproute[langgraph]'"
    ) from error

from steproute.errors import ConfigError, unknown_name
from steproute.models import Needs
from steproute.plugins.langgraph.calls import Call
from steproute.plugins.langgraph.desk import Desk, Settings, TaskSetting
from steproute.plugins.langgraph.history import read_history
from steproute.plugins.langgraph.journal import Journal
from steproute.plugins.langgraph.ledgers import read_tools, refresh, set_subtasks
from steproute.plugins.langgraph.prompt import Prompt, messages_of, read_prompt
from steproute.plugins.langgraph.records import KEY, Record, as_mapping, records_in
from steproute.plugins.langgraph.schema import as_schema, subtasks_in, with_records
from steproute.plugins.langgraph.site import Site, config_of, site_of
from steproute.router import Router

Node = Callable[..., Any]


def router_node(
    router: Router,
    State: type[Any] = MessagesState,
    *,
    role: str | Callable[[Any], str] | None = None,
    task: TaskSetting = None,
    domain: str = "generic",
    needs: Needs | Callable[[Any], Needs] | None = None,
    max_tokens: int | None = None,
    messages_key: str = "messages",
    subtasks_key: str | None = None,
    into: str | None = None,
    goto: Mapping[str, str] | Callable[[Record], str] | None = None,
) -> Node:
    """A node that decides which model serves the next LLM call.

    The ledger is built from the state: replies by id, errors of tools, subtasks. Decision and ledger are written into
    the graph's own state, as plain JSON under the key `steproute`, which needs no field in `State`. A `RoutedChatModel`
    that is called later, in the same graph or in one inside it, takes the decision made for its role. Later nodes read
    it with `latest_decision`. Replies of models that are not routed count as the answer to the decision before them.

    Args:
        router: the router.
        State: schema of the graph's state: TypedDict, pydantic model or dataclass.
        role: worker that is to be called, or a callable that finds it in the state; None = whoever comes next.
        task: as for `RoutedChatModel`.
        domain: progress view of tasks that begin here.
        needs: what the call will need of a model; None = what the messages show.
        max_tokens: limit of the completion, for the worst case.
        messages_key: where the state holds its messages; it may have none.
        subtasks_key: where it holds subtasks; None = `subtasks` or `todos`.
        into: a field of the state that gets the name of the chosen model.
        goto: the node to go to by model, or a callable that gets the record; the node then returns a `Command`. Models
            of the pool without a node are never chosen.

    Returns:
        The node, for `add_node`.

    Raises:
        ConfigError: the schema cannot be used, has no such field, or the pool no such model.
    """
    nodes = goto if isinstance(goto, Mapping) else None
    desk = Desk(router, None, Settings(None, task, domain), only=nodes)
    for name in nodes or ():
        if name not in router.pool:
            raise ConfigError(unknown_name("goto", name, router.pool.names))
    schema = with_records(State)
    _check_fields(schema, into=into, messages_key=messages_key, subtasks_key=subtasks_key)
    reader = _Reader(desk, messages_key, subtasks_key)

    def route(state: Any, config: RunnableConfig) -> Any:
        view = reader.read(state, config)
        own = as_schema(view.values, State) if callable(role) or callable(needs) else None
        worker = role(own) if callable(role) else role or ""
        if into is not None or goto is not None:
            desk.journals.shown.add(worker)
        elif worker and view.site.root:
            desk.journals.look_back(view.journal, worker, view.site.root)
        prompt = _for_role(view.prompt, worker, needs(own) if callable(needs) else needs)
        call = Call(desk, view.journal, view.site, prompt, worker, max_tokens, kind="node")
        model = call.turn().model
        update: dict[str, Any] = {KEY: view.update(desk, call.key)}
        if into is not None:
            update[into] = model
        if goto is None:
            return update
        record = view.journal.records[call.key]
        return Command(update=update, goto=goto(record) if callable(goto) else goto[model])

    returns = Command[Literal[tuple(nodes.values())]] if nodes is not None else dict  # type: ignore[misc]
    return _annotated(route, "router", schema, returns)


def finish_node(
    router: Router,
    State: type[Any] = MessagesState,
    *,
    success: Callable[[Any], bool | float | None] | None = None,
    ends: bool = True,
    task: TaskSetting = None,
    messages_key: str = "messages",
    subtasks_key: str | None = None,
) -> Node:
    """A node that takes in the last replies, writes the ledger into the state and ends the task.

    At the end of a task its steps get their credit and the queues advance.

    Args:
        router: the router.
        State: schema of the graph's state.
        ends: False = the task goes on, as one does that lasts for a conversation.
        success: tells from the state whether the task succeeded, or a reward in [0, 1]; None = not known.
        task: as for `router_node`.
        messages_key: where the state holds its messages.
        subtasks_key: where it holds subtasks.

    Raises:
        ConfigError: the schema cannot be used or has no such field; while running, `success` returned something else.
    """
    desk = Desk(router, None, Settings(None, task))
    schema = with_records(State)
    _check_fields(schema, messages_key=messages_key, subtasks_key=subtasks_key)
    reader = _Reader(desk, messages_key, subtasks_key)

    def finish(state: Any, config: RunnableConfig) -> Any:
        view = reader.read(state, config)
        journal = view.journal
        refresh(router, journal)
        if ends:
            desk.journals.look_back(journal)
            result = success(as_schema(view.values, State)) if success is not None else None
            router.finish(journal.task.id, reward=_reward(result))
            journal.begin_anew(journal.task)
        return {KEY: view.update(desk)}

    return _annotated(finish, "finish", schema, dict)


def latest_decision(state: Any = None, role: str | None = None) -> Record | None:
    """The router's newest decision, with model, reason, scores and progress.

    Args:
        state: the state of a node that asks for the router's key (its schema made by `with_records`, or its own);
            None = the state of the graph that is running.
        role: of this worker only.

    Returns:
        The record, or None when there is none.
    """
    records = records_in(state) if state is not None else dict(site_of(config_of(None)).records or {})
    found = [record for record in records.values() if role in (None, record["role"]) and record["kind"] != "message"]
    return dict(max(found, key=lambda record: record["at"])) if found else None


@dataclass(slots=True)
class _View:
    """What a node sees when it runs."""

    site: Site
    values: dict[str, Any]
    prompt: Prompt
    journal: Journal

    def update(self, desk: Desk, *keys: str) -> dict[str, Record]:
        """Records the state does not have yet, or not in this version."""
        wanted = dict.fromkeys((*desk.unstored(self.site, self.journal), *keys))
        return {key: self.journal.records[key] for key in wanted if key in self.journal.records}


class _Reader:
    """Turns a state into what the router needs to know of it."""

    def __init__(self, desk: Desk, messages_key: str, subtasks_key: str | None):
        self._desk, self._messages_key, self._subtasks_key = desk, messages_key, subtasks_key

    def read(self, state: Any, config: RunnableConfig) -> _View:
        """Take in the state."""
        desk, full = self._desk, config_of(config)
        site, values = site_of(full), as_mapping(state)
        prompt = self._prompt(values)
        journal = desk.journal(site, full, prompt)
        fresh = not journal.home and not journal.records
        desk.load(site, journal)
        desk.take_in(journal, journal.unknown(values.get(KEY)))
        read_tools(desk.router, journal, prompt.messages)
        subtasks = subtasks_in(values, self._subtasks_key)
        if subtasks is not None:
            set_subtasks(desk.router, journal, subtasks)
        watching = not fresh or bool(journal.records)
        read_history(desk, journal, site, prompt.messages, watching)
        return _View(site, values, prompt, journal)

    def _prompt(self, values: Mapping[str, Any]) -> Prompt:
        """The state's messages; without any, its texts and numbers stand for what is asked."""
        found = values.get(self._messages_key)
        messages: Sequence[BaseMessage] = ()
        if isinstance(found, BaseMessage):
            messages = [found]
        elif isinstance(found, Sequence) and found and not isinstance(found, str):
            messages = messages_of(list(found))
        if not messages:
            plain = {
                key: value for key, value in values.items() if isinstance(value, (str, int, float)) and value != ""
            }
            messages = [HumanMessage("\n".join(f"{key}: {value}" for key, value in plain.items()))]
        return read_prompt(messages)


def _for_role(prompt: Prompt, role: str, needs: Needs | None) -> Prompt:
    """The prompt as one worker's: its needs as told, its identity with the worker's name in it."""
    mark = hashlib.blake2b(f"{prompt.digest}\0{role}".encode("utf-8", "replace"), digest_size=8)
    prompt.digest, seen = mark.hexdigest(), prompt.needs
    if needs is not None:
        prompt.needs = Needs(needs.tools, needs.vision or seen.vision, needs.structured).at_least(
            max(needs.context_tokens, seen.context_tokens)
        )
    return prompt


def _check_fields(schema: type[Any], **fields: str | None) -> None:
    """LangGraph drops what is written to a field the schema does not have, and says nothing."""
    known = [name for name in schema.__annotations__ if name != KEY]
    for setting, name in fields.items():
        if name not in (None, "messages", *known):
            raise ConfigError(unknown_name(setting, str(name), known))


def _reward(result: bool | float | None) -> float | None:
    if result is None:
        return None
    try:
        reward = float(result)
    except (TypeError, ValueError):
        reward = math.nan
    if not 0 <= reward <= 1:
        raise ConfigError(f"success: seen {result!r}; allowed: True, False, None or a reward in [0, 1]")
    return reward


def _annotated(function: Node, name: str, schema: type[Any], returns: Any) -> Node:
    """Give a node the annotations LangGraph reads: the schema of its state, and where it may go."""
    function.__annotations__ = {"state": schema, "config": RunnableConfig, "return": returns}
    function.__name__ = function.__qualname__ = name
    return function
