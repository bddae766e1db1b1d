"""Classic AG2 (0.10 to 0.14, `autogen`): per-instance hooks where replies, chats and speakers are made."""

from __future__ import annotations

import dataclasses
import functools
import json
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from autogen import ConversableAgent, GroupChat, GroupChatManager

try:
    from autogen.agentchat.group.patterns.pattern import Pattern
except ImportError:  # before group patterns
    Pattern = None

from steproute.plugins.ag2.attachment import MARK, Attachment, attachment_of, unknown_target
from steproute.plugins.ag2.books import Book, books_of
from steproute.plugins.ag2.calls import Attempts, Call
from steproute.plugins.ag2.completion import Completions, RoutedCompletion
from steproute.plugins.ag2.runs import Run, Runs
from steproute.router import Router

_SUMMARISING: ContextVar[bool] = ContextVar("steproute_ag2_summary", default=False)


class _Open:
    """The desks at work for a router."""

    def __init__(self) -> None:
        self.desks: weakref.WeakSet[Desk] = weakref.WeakSet()


def book_of_chat(router: Router, group: Any) -> Book | None:
    """The task of a group chat, brought up to its last message; None before its first routed call."""
    for desk in books_of(router).shared(_Open).desks:
        run = desk.runs.known(group)
        if run is not None and run.book is not None:
            return run.open(group.messages)
    return None


class Desk:
    """One attachment's hooks in classic AG2."""

    def __init__(self, attachment: Attachment):
        self.attachment = attachment
        self.runs = Runs(attachment)
        self.completions = Completions(attachment.settings.models)
        self._groups: list[Any] = []
        attachment.books.shared(_Open).desks.add(self)

    def add(self, target: Any) -> None:
        """Attach an agent, a group chat, its manager or a pattern.

        Raises:
            ConfigError: a model cannot be reached, or another router is attached.
        """
        if isinstance(target, GroupChat):
            self._add_group(target)
        elif isinstance(target, GroupChatManager):
            self._add_agent(target)
            self._add_group(target.groupchat)
            for entry in target._reply_func_list:  # it runs on a copy, which may be older than this attachment
                if isinstance(entry["config"], GroupChat):
                    self._add_group(entry["config"])
        elif isinstance(target, ConversableAgent):
            self._add_agent(target)
        elif Pattern is not None and isinstance(target, Pattern):
            if self.attachment.mark(target):
                self._wrap(target, "prepare_group_chat", self._prepared)
            for agent in (*target.agents, *([target.user_agent] if target.user_agent else ())):
                self.add(agent)
        else:
            raise unknown_target(target)

    def _add_group(self, group: Any) -> None:
        if not any(known is group for known in self._groups):
            if attachment_of(group) is self.attachment:  # a copy of one that is attached, with its hooks
                vars(group).pop(MARK)
                vars(group).pop("_create_internal_agents")
            self.attachment.mark(group)
            self._groups.append(group)
            self._wrap(group, "_create_internal_agents", self._selector(group))
        for agent in group.agents:
            if attachment_of(agent) is None:
                self.add(agent)

    # --- agents -----------------------------------------------------------------------------------------------

    def _add_agent(self, agent: Any) -> None:
        if not self.attachment.mark(agent):
            return
        if getattr(agent, "client", None) is not None:
            for model in self.attachment.router.pool:
                self.completions.reaching(model, agent.client)
        self._wrap(agent, "_generate_oai_reply_from_client", self._replying(agent))
        self._wrap(agent, "_reflection_with_llm", _summarising)
        self._wrap(agent, "initiate_chat", self._chatting(agent))
        self._wrap(agent, "a_initiate_chat", self._chatting_async(agent))
        self._wrap(agent, "_prepare_chat", self._preparing(agent))
        self._wrap(agent, "generate_reply", self._speaking(agent))
        self._wrap(agent, "a_generate_reply", self._speaking_async(agent))
        for entry in agent._reply_func_list if getattr(agent, "client", None) is not None else ():
            name = getattr(entry["reply_func"], "__qualname__", "")
            if name.endswith("generate_oai_reply") and not name.startswith("ConversableAgent."):
                self._hand_over(agent, entry)
        for guardrail in (*getattr(agent, "input_guardrails", ()), *getattr(agent, "output_guardrails", ())):
            if getattr(guardrail, "client", None) is not None and self.attachment.mark(guardrail):
                client = self._client(guardrail.client, "guardrail", functools.partial(self.runs.of, agent))
                self.attachment.replace(guardrail, "client", client)

    def _hand_over(self, agent: Any, entry: dict[str, Any]) -> None:
        """Agents that build their reply themselves, as those that see do, take a client as their setting."""
        before = {name: entry[name] for name in ("config", "init_config")}
        client = self._client(agent.client, str(agent.name), functools.partial(self.runs.of, agent), agent)
        entry.update(dict.fromkeys(before, client))
        self.attachment.on_detach(lambda: entry.update(before))

    def _wrap(self, target: Any, name: str, around: Callable[..., Any]) -> None:
        """Put `around(original, *args, **kwargs)` in the place of a method, for this instance alone."""
        original = getattr(target, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **more: Any) -> Any:
            return around(original, *args, **more)

        self.attachment.replace(target, name, wrapped)

    def _client(self, client: Any, role: str, run_of: Callable[[], Run], agent: Any = None) -> RoutedCompletion:
        def begin(call: Call, messages: Sequence[Any]) -> Attempts:
            book = run_of().open(messages)
            variables = getattr(getattr(agent, "context_variables", None), "data", None)
            if variables:
                book.ledger.notes["context_vars"] = json.loads(json.dumps(variables, default=str))
            return self.attachment.attempts(book, dataclasses.replace(call, role=role))

        return RoutedCompletion(self.attachment.router, client, self.completions, begin)

    def _replying(self, agent: Any, role: str = "", run_of: Callable[[], Run] | None = None) -> Callable[..., Any]:
        def reply(original: Callable[..., Any], llm_client: Any, messages: Any, cache: Any, **more: Any) -> Any:
            name = role or ("summary" if _SUMMARISING.get() else str(agent.name))
            routed = self._client(llm_client, name, run_of or functools.partial(self.runs.of, agent), agent)
            return original(routed, messages, cache, **more)

        return reply

    # --- chats ------------------------------------------------------------------------------------------------

    def _meet(self, agent: Any, other: Any) -> tuple[list[Any], Any]:
        """Who takes part when two agents start a chat, and the group behind it. Strangers are attached."""
        group = None
        with self.attachment.router.faults.kept("AG2 chat"):
            if isinstance(other, ConversableAgent) and attachment_of(other) is None:
                self.add(other)
            group = next((side.groupchat for side in (other, agent) if isinstance(side, GroupChatManager)), None)
        return [agent, other, *(group.agents if group is not None else ())], group

    def _chatting(self, agent: Any) -> Callable[..., Any]:
        def chat(original: Callable[..., Any], recipient: Any, *args: Any, **more: Any) -> Any:
            with self.runs.scope(*self._meet(agent, recipient)):
                return original(recipient, *args, **more)

        return chat

    def _chatting_async(self, agent: Any) -> Callable[..., Any]:
        async def chat(original: Callable[..., Any], recipient: Any, *args: Any, **more: Any) -> Any:
            with self.runs.scope(*self._meet(agent, recipient)):
                return await original(recipient, *args, **more)

        return chat

    def _speaking(self, agent: Any) -> Callable[..., Any]:
        def speak(original: Callable[..., Any], *args: Any, **more: Any) -> Any:
            with self.runs.replying(agent):
                return original(*args, **more)

        return speak

    def _speaking_async(self, agent: Any) -> Callable[..., Any]:
        async def speak(original: Callable[..., Any], *args: Any, **more: Any) -> Any:
            with self.runs.replying(agent):
                return await original(*args, **more)

        return speak

    def _preparing(self, agent: Any) -> Callable[..., Any]:
        def prepare(original: Callable[..., Any], recipient: Any, *args: Any, **more: Any) -> Any:
            with self.runs.prepare(*self._meet(agent, recipient)):
                return original(recipient, *args, **more)

        return prepare

    # --- groups -----------------------------------------------------------------------------------------------

    def _selector(self, group: Any) -> Callable[..., Any]:
        def create(original: Callable[..., Any], *args: Any, **more: Any) -> Any:
            made = original(*args, **more)
            with self.attachment.router.faults.kept("the speaker selection"):
                selector = made[1]
                around = self._replying(selector, "speaker_selection", functools.partial(self.runs.of_group, group))
                plain = selector._generate_oai_reply_from_client
                selector._generate_oai_reply_from_client = functools.partial(around, plain)
            return made

        return create

    def _prepared(self, original: Callable[..., Any], *args: Any, **more: Any) -> Any:
        made = original(*args, **more)
        with self.attachment.router.faults.kept("the pattern's group chat"):
            for part in _groups_in(made):
                self.add(part)
        return made


def _groups_in(made: Sequence[Any]) -> Iterator[Any]:
    yield from (part for part in made if isinstance(part, (GroupChat, GroupChatManager)))


def _summarising(original: Callable[..., Any], *args: Any, **more: Any) -> Any:
    token = _SUMMARISING.set(True)
    try:
        return original(*args, **more)
    finally:
        _SUMMARISING.reset(token)
