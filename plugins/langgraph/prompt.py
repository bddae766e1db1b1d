"""What a prompt tells the router before a model is chosen: tokens, needs, text, and a hash that identifies it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from steproute.models import Needs

CHARACTERS_PER_TOKEN = 4
"""For counting tokens where nobody else counts them."""
TOKENS_PER_IMAGE = 1000
"""A picture costs tokens by its area, not by the length of its encoding; this is a large photograph's share."""
_LONGEST_TEXT = 2000
_OVERHEAD_TOKENS = 4
"""Role and separators of one message."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The messages of one call and what they ask of a model."""

    messages: Sequence[BaseMessage]
    tokens: int
    """Estimated."""
    needs: Needs
    text: str
    """The task's latest words: the last human message and, after it, the last message."""
    digest: str
    """Same roles, contents and tool calls → same digest. Ids are left out: they change when a node runs again."""
    goal: str
    """The first human message."""
    ends: Sequence[int] = ()
    """Tokens up to the end of each message."""


CountTokens = Callable[[Sequence[BaseMessage]], int]


def read_prompt(
    messages: Sequence[BaseMessage],
    *,
    tools: Sequence[Any] = (),
    structured: bool = False,
    room: int = 0,
    count: CountTokens | None = None,
) -> Prompt:
    """Look through the messages of a call.

    Args:
        messages: in order.
        tools: what is bound to the call.
        structured: whether the reply must follow a schema.
        room: tokens of the completion that must fit into the context window besides the prompt.
        count: counts the tokens of messages; None = 4 characters a token.
    """
    # tools are sent with every call, yet their schemas are only known to the client: one has about 400 characters
    tokens, images = 100 * len(tools), 0
    ends = []
    mark = hashlib.blake2b(digest_size=8)
    for message in messages:
        mark.update(f"\x1e{message.type}\x1f{getattr(message, 'tool_call_id', '')}".encode())
        characters = 0
        for kind, text in _parts(message):
            if kind == "image":
                images += 1
                tokens += TOKENS_PER_IMAGE
            elif kind == "text":
                characters += len(text)
            mark.update(b"\x1f")
            mark.update(text.encode("utf-8", "replace"))
        tokens += characters // CHARACTERS_PER_TOKEN + _OVERHEAD_TOKENS
        ends.append(tokens)
    if count is not None:
        counted = count(messages)
        ends = [end * counted // max(tokens, 1) for end in ends]
        tokens = counted
    needs = Needs(tools=bool(tools), vision=images > 0, structured=structured, context_tokens=tokens + room)
    human = [message for message in messages if isinstance(message, HumanMessage)]
    goal = shown(human[0]) if human else ""
    return Prompt(messages, tokens, needs, _latest(messages, human), mark.hexdigest(), goal, ends)


def served(prompt: Prompt, author_of: Callable[[BaseMessage], str]) -> dict[str, int]:
    """Per model, tokens of the prompt it has read before: up to the last reply that it wrote, the reply included.

    Args:
        prompt: what is asked.
        author_of: tells which model of the pool wrote a reply.
    """
    found: dict[str, int] = {}
    for message, end in zip(prompt.messages, prompt.ends, strict=False):
        if isinstance(message, AIMessage) and (name := author_of(message)):
            found[name] = end
    return found


def shown(message: BaseMessage) -> str:
    """The readable text of a message, cut at 2,000 characters."""
    return "\n".join(text for kind, text in _parts(message) if kind == "text")[:_LONGEST_TEXT]


def is_image(block: Mapping[str, Any]) -> bool:
    """Whether a content block is a picture in any provider's format; other media are not counted as such."""
    kind = str(block.get("type", ""))
    if kind in ("image", "image_url", "input_image"):
        return True
    mime = block.get("mime_type") or block.get("media_type") or ""
    return kind in ("media", "file") and str(mime).startswith("image/")


def _latest(messages: Sequence[BaseMessage], human: Sequence[BaseMessage]) -> str:
    last = [human[-1]] if human else []
    if messages and messages[-1] not in last[-1:]:
        last.append(messages[-1])
    return "\n".join(shown(message) for message in last)[-_LONGEST_TEXT:]


def _parts(message: BaseMessage) -> Iterator[tuple[str, str]]:
    """Kind (`text`, `image`, `call`) and text of everything a message holds."""
    content = message.content
    for block in [content] if isinstance(content, str) else content:
        if isinstance(block, str):
            yield "text", block
        elif is_image(block):
            yield "image", repr(block)
        elif isinstance(block.get("text"), str):
            yield "text", block["text"]
        elif block.get("type") != "tool_use":  # the same call is in `tool_calls`
            yield "text", repr(block)
    if isinstance(message, AIMessage):
        for call in message.tool_calls:
            yield "text", f"{call['name']} {call['args']}"
    elif isinstance(message, ToolMessage) and message.status == "error":
        yield "call", "error"
