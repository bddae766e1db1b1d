"""Reasoning blocks that only their own provider accepts: when a switch must wait, and how they are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from steproute.plugins.langgraph.records import KEY

_KINDS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
_SIGNED = ("signature", "encrypted_content", "thought_signature")
_EXTRA_KEYS = ("reasoning", "reasoning_content", "reasoning_details", "thinking_blocks")
_SIGNATURE_KEYS = ("__gemini_function_call_thought_signatures__", "__openai_function_call_ids__")


def author(message: BaseMessage) -> str:
    """Pool name of the model that wrote a reply, from the router's stamp; empty without one."""
    stamp = message.response_metadata.get(KEY)
    return str(stamp.get("model", "")) if isinstance(stamp, dict) else ""


def has_reasoning(message: BaseMessage) -> bool:
    """Whether a reply holds reasoning of any kind, or a provider's signature."""
    if not isinstance(message, AIMessage):
        return False
    if any(message.additional_kwargs.get(key) for key in (*_EXTRA_KEYS, *_SIGNATURE_KEYS)):
        return True
    content = message.content
    return isinstance(content, list) and any(_is_reasoning(block) or _is_signed(block) for block in content)


def is_signed(message: BaseMessage) -> bool:
    """Whether its own provider wants the reasoning of a reply back, and no other accepts it."""
    if not isinstance(message, AIMessage):
        return False
    if any(message.additional_kwargs.get(key) for key in _SIGNATURE_KEYS):
        return True
    return isinstance(message.content, list) and any(_is_signed(block) for block in message.content)


def holder(messages: Sequence[BaseMessage], author_of: Callable[[BaseMessage], str] = author) -> str:
    """The model that must go on, because the open tool loop began with its signed reasoning; empty when any may.

    A loop is open while the last message is a tool's result. Its turn began after the last message that is neither a
    reply nor a tool's result; what lies before that may be left out without harm.

    Args:
        messages: in order.
        author_of: tells which model of the pool wrote a reply.
    """
    if not messages or not isinstance(messages[-1], ToolMessage):
        return ""
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            if is_signed(message) and (name := author_of(message)):
                return name
        elif not isinstance(message, ToolMessage):
            break
    return ""


def fit_for(
    messages: Sequence[BaseMessage], model: str, author_of: Callable[[BaseMessage], str] = author
) -> Sequence[BaseMessage]:
    """The messages as a model may be sent them: other models' reasoning is left out.

    Args:
        messages: in order; they are not changed.
        model: pool name of the model to be called.
        author_of: tells which model of the pool wrote a reply.

    Returns:
        The same sequence when nothing had to go.
    """
    fitted: list[BaseMessage] = []
    changed = False
    for message in messages:
        if isinstance(message, AIMessage) and has_reasoning(message) and author_of(message) != model:
            fitted.append(without_reasoning(message))
            changed = True
        else:
            fitted.append(message)
    return fitted if changed else messages


def without_reasoning(message: AIMessage) -> AIMessage:
    """A reply with its text, pictures and tool calls only; ids and signatures of a provider go with the reasoning."""
    content: str | list[str | dict[str, Any]] = message.content
    if isinstance(content, list):
        kept = [_plain(block) for block in content if not _is_tool(block) and not _is_reasoning(block)]
        texts = [block if isinstance(block, str) else block.get("text") for block in kept]
        content = "".join(str(text) for text in texts) if all(isinstance(text, str) for text in texts) else kept
    return AIMessage(content=content, tool_calls=message.tool_calls, name=message.name, id=message.id)


def _is_reasoning(block: Any) -> bool:
    return isinstance(block, Mapping) and (
        block.get("type") in _KINDS or (block.get("thought") is True and block.get("type") != "text")
    )


def _is_tool(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") in ("tool_use", "tool_call", "function_call")


def _is_signed(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    extras = block.get("extras")
    if any(block.get(key) for key in _SIGNED) or block.get("type") == "redacted_thinking":
        return True
    if block.get("type") == "reasoning" and str(block.get("id") or "").startswith("rs_"):
        return True
    return isinstance(extras, Mapping) and any(extras.get(key) for key in _SIGNED)


def _plain(block: str | dict[str, Any]) -> str | dict[str, Any]:
    if isinstance(block, str):
        return block
    dropped = {"id", "extras", "index", "annotations", "phase", *_SIGNED}
    return {key: value for key, value in block.items() if key not in dropped}
