"""The group chat of `ag2_chat` on classic AG2 (0.10 to 0.14): the same order, the same messages on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

try:
    from autogen import ConversableAgent, GroupChat, GroupChatManager
except ImportError as error:
    raise ImportError(
        f"this group chat needs classic AG2 ({error}); install it with: pip install 'steproute[ag2-classic]'"
    ) from error

Test = Callable[[str], "str | None"]
Setup = Callable[[Sequence[ConversableAgent], GroupChat], object]


def run_classic_chat(
    problem_text: str,
    coder_system: str,
    fixer_system: str,
    coder_config: Any,
    fixer_config: Any,
    test: Test,
    max_attempts: int,
    *,
    setup: Setup | None = None,
) -> list[str]:
    """Run one chat to its end; see `ag2_chat.run_chat`.

    Args:
        problem_text: the chat's first message.
        coder_system: system prompt of the agent that makes the first attempt.
        fixer_system: system prompt of the agent that makes the others.
        coder_config: `llm_config` of the coder.
        fixer_config: `llm_config` of the fixer.
        test: called with every reply, the last one too; returns the report that goes into the chat, or None to end it.
        max_attempts: most LLM replies.
        setup: called with the agents `(coder, fixer)` and the group chat before the first turn.

    Returns:
        The replies in order; empty ones are kept as "".

    Raises:
        Exception: whatever a model call or `test` raised.
    """
    if max_attempts < 1:
        raise ValueError(f"max_attempts: seen {max_attempts!r}; allowed: 1 or more")
    replies: list[str] = []
    over = False

    def judge(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, str]:
        nonlocal over
        replies.append(str(messages[-1].get("content") or "").removesuffix(_NOTHING))
        report = test(replies[-1])
        over = report is None or len(replies) >= max_attempts
        return True, report or "done"

    user, tester = (_agent(name, False) for name in ("user", "tester"))
    coder, fixer = _agent("coder", coder_config, coder_system), _agent("fixer", fixer_config, fixer_system)
    tester.register_reply([ConversableAgent, None], judge, position=0)
    following = {user: coder, coder: tester, tester: fixer, fixer: tester}
    chat = GroupChat(
        agents=[user, coder, tester, fixer],
        messages=[],
        max_round=2 * max_attempts + 2,
        speaker_selection_method=lambda last, _: None if over else following[last],
    )
    if setup is not None:
        setup((coder, fixer), chat)
    manager = GroupChatManager(chat, llm_config=False, silent=True)
    user.initiate_chat(manager, message=problem_text, silent=True)
    return replies


async def run_classic_chat_async(*args: Any, **more: Any) -> list[str]:
    """`run_classic_chat` in a thread, for asynchronous programs."""
    return await asyncio.to_thread(run_classic_chat, *args, **more)


_NOTHING = "\N{ZERO WIDTH SPACE}"
"""What an empty reply is in the chat: classic AG2 ends a chat at a message without content."""


def _agent(name: str, config: Any, system: str = "") -> ConversableAgent:
    agent = ConversableAgent(name, system, llm_config=config, human_input_mode="NEVER", max_consecutive_auto_reply=1000)
    agent.register_hook("process_all_messages_before_reply", _first_and_last)
    agent.register_hook("process_message_before_send", _never_empty)
    return agent


def _first_and_last(messages: list[dict[str, Any]]) -> list[dict[str, str]]:
    shown = messages[:1] if len(messages) == 1 else [messages[0], messages[-1]]
    return [{"role": "user", "content": str(message.get("content") or "")} for message in shown]


def _never_empty(sender: Any, message: Any, recipient: Any, silent: bool) -> Any:
    content = message.get("content") if isinstance(message, dict) else message
    if content:
        return message
    return {**message, "content": _NOTHING} if isinstance(message, dict) else _NOTHING
