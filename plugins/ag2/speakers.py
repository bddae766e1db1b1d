"""Who speaks next, by the progress of the task, for both generations of AG2."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from steproute.errors import ConfigError, unknown_name
from steproute.plugins.ag2.books import Book
from steproute.progress import Regime
from steproute.router import Router

END = "END"
"""In place of a name: the chat ends."""

_SITUATIONS = (*(regime.label for regime in Regime), "stalled")
_ROUTERS: weakref.WeakValueDictionary[str, Router] = weakref.WeakValueDictionary()


def speaker_selector(router: Router, **speakers: str) -> ProgressTarget:
    """Let the progress of the task choose the next speaker.

    In ag2 ≥ 1.0 it is the `then` of a `Transition`, or the `default_target` of a `TransitionGraph`; in classic AG2 the
    `speaker_selection_method` of a `GroupChat`. No model is called.

    Args:
        router: attached to the chat.
        **speakers: the name of the agent that speaks when the task is `invalid`, `recoverable`, `partial` or `complete`,
            or, before those, when its last step brought it no further (`stalled`). `END` ends the chat. Whoever is
            not named here speaks when nobody else is called for, in order; a complete task ends the chat unless
            `complete` says otherwise. In ag2 ≥ 1.0 nobody speaks twice in a row: AG2 would not tell them.

    Raises:
        ConfigError: an unknown situation.
    """
    for name in speakers:
        if name not in _SITUATIONS:
            raise ConfigError(unknown_name("speaker_selector", name, _SITUATIONS))
    target = ProgressTarget(uuid.uuid4().hex, {"complete": END, **speakers})
    _ROUTERS[target.key] = router
    target._register()
    return target


@dataclass
class ProgressTarget:
    """A transition target of ag2 ≥ 1.0 and a speaker selection function of classic AG2 in one."""

    key: str
    """Finds the router again after the graph went through JSON; it must be alive in this process."""
    speakers: dict[str, str] = field(default_factory=dict)
    name: ClassVar[str] = "steproute_progress"

    def called_for(self, router: Router, book: Book) -> str:
        """Name of the agent that the state of a task calls for, END, or empty when it is the next one's turn."""
        steps, progress = len(book.ledger.steps), router.progress(book.task.id)
        if progress is None or not steps:
            return ""
        if steps > 1 and progress.d <= 0 and progress.regime is not Regime.COMPLETE and "stalled" in self.speakers:
            return self.speakers["stalled"]
        return self.speakers.get(progress.regime.label, "")

    # --- ag2 ≥ 1.0: TransitionTarget --------------------------------------------------------------------------

    def resolve(self, state: Any, envelope: Any) -> Any:
        """The next speaker of a channel."""
        from ag2.network.transitions import TransitionDecision

        from steproute.plugins.ag2.channels import channels_of

        name, order = "", list(state.participant_order)
        router = _ROUTERS.get(self.key)
        if router is not None:
            with router.faults.kept("the speaker selection"):
                known = channels_of(router, envelope.channel_id)
                if known is not None:
                    book, channels = known
                    channels.read(book, envelope)  # what it says about the last step counts already
                    name = self.called_for(router, book)
                    name = channels.names().get(name, name)
        if name == END:
            return TransitionDecision(next_speaker=None, close_reason="steproute: the task is complete")
        # AG2 tells the sender nothing of its own message: whoever spoke cannot be asked to go on.
        again = name == envelope.sender_id
        return TransitionDecision(
            next_speaker=name if name in order and not again else _after(order, envelope.sender_id)
        )

    def _register(self) -> None:
        """Make AG2 know the target, so that a graph with it can be loaded."""
        try:
            from ag2.network.transitions import register_target
        except ImportError:
            return  # classic AG2
        register_target(type(self))

    # --- classic AG2: speaker_selection_method ----------------------------------------------------------------

    def __call__(self, last_speaker: Any, groupchat: Any) -> Any:
        """The next speaker of a group chat; None ends it."""
        name = ""
        router = _ROUTERS.get(self.key)
        if router is not None:
            from steproute.plugins.ag2.classic import book_of_chat

            with router.faults.kept("the speaker selection"):
                book = book_of_chat(router, groupchat)
                if book is not None:
                    name = self.called_for(router, book)
        if name == END:
            return None
        chosen = next((agent for agent in groupchat.agents if agent.name == name), None)
        return chosen or groupchat.next_agent(last_speaker, groupchat.agents)


def _after(order: Sequence[str], speaker: str) -> str | None:
    if not order:
        return None
    return order[(order.index(speaker) + 1) % len(order)] if speaker in order else order[0]
