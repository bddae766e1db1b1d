"""The one line: `attach(router, group_chat)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from steproute.errors import ConfigError
from steproute.ledger import Evidence, Ledger, Task
from steproute.plugins.ag2.attachment import Attachment, Settings, attachment_of, unknown_target
from steproute.router import Router


class _Desk(Protocol):
    def add(self, target: Any) -> None: ...


def attach(
    router: Router,
    *targets: Any,
    models: Mapping[str, Any] | None = None,
    hub: Any = None,
    pin: Mapping[str, str] | None = None,
    task: str | Task | Ledger | Callable[[Task], Task] | None = None,
    evidence: Callable[[Any], Sequence[Evidence] | None] | None = None,
    success: Callable[[Ledger], bool | None] | None = None,
) -> Attachment:
    """Let a router choose the model of every LLM call that the targets make.

    That covers turns, handoff turns, tool loops, sub-tasks, agents offered as tools, summaries, guardrails and the
    selection of speakers. A model that fails is replaced by the next best; the provider's own error comes up once
    every candidate failed. What is attached already stays as it is; when that is everything, its attachment comes back.

    Where the router's models come from: in `models`, by their name in the pool; a model that is not there is reached
    through the agent's own settings with the model's `deployment` in place of the model name, that is, by the same
    provider at the same address. In classic AG2 an entry of the agent's `config_list` with that model name goes first.
    So an agent that can reach all models by one address, or lists them all, needs no `models`.

    Args:
        router: chooses, learns and keeps the budget.
        *targets: ag2 ≥ 1.0: agents, agent clients, hubs, hub clients, channels. Classic: group chats, their managers,
            patterns, conversable agents.
        models: per model name: an ag2 model config (≥ 1.0), or an entry for a `config_list` (classic). It is used as
            it is, also its temperature and limits.
        hub: a network hub of ag2 ≥ 1.0 to listen to; only needed where the targets do not lead to it.
        pin: per role, the model that always serves it. It is metered like any other.
        task: a task, its ledger or its id instead of one task per channel or chat; you then end it by `router.finish`.
            Or a function that takes the task as AG2 shows it (id, goal) and returns it changed, e.g. with a `domain`.
        evidence: looks at each message of the chat (an `Envelope`; in classic AG2 a message) and says what it tells
            about the quality of the step before it, as a tester's report does.
        success: looks at the ledger of a finished chat and says whether it succeeded; None = unknown.

    Returns:
        The attachment: `detach()`, `meter`, and a context manager that detaches.

    Raises:
        ConfigError: a name is not in the pool, a model cannot be reached, a target is of an unknown kind or attached
            to another router.
    """
    settings = Settings(dict(models or {}), dict(pin or {}), task, evidence, success)
    settings.check(router)
    wanted = [*targets] if hub is None else [*targets, hub]
    if not wanted:
        raise ConfigError("attach: nothing to attach to; give at least one agent, group chat or hub")
    known = [attachment_of(target) for target in wanted]
    if all(found is not None and found.router is router for found in known):
        assert known[0] is not None
        return known[0]
    attachment = Attachment(router, settings)
    desks: dict[str, _Desk] = {}
    try:
        for target in wanted:
            generation = _generation(target)
            if generation not in desks:
                desks[generation] = _desk(generation, attachment)
            desks[generation].add(target)
    except BaseException:
        attachment.detach()
        raise
    return attachment


def _generation(target: Any) -> str:
    roots = {kind.__module__.partition(".")[0] for kind in type(target).__mro__}
    if "autogen" in roots:
        return "classic"
    if "ag2" in roots:
        return "modern"
    raise unknown_target(target)


def _desk(generation: str, attachment: Attachment) -> _Desk:
    if generation == "classic":
        from steproute.plugins.ag2.classic import Desk as ClassicDesk

        classic: _Desk = ClassicDesk(attachment)
        return classic
    from steproute.plugins.ag2.modern import Desk as ModernDesk

    modern: _Desk = ModernDesk(attachment)
    return modern
