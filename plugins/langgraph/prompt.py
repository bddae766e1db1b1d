"""What a prompt tells the router before a model is chosen: tokens, needs, text, and a hash that identifies it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue

from steproute.models import Needs

CHARACTERS_PER_TOKEN = 4
"""For counting tokens where nobody else counts them."""
TOKENS_PER_IMAGE = 1000
"""A picture costs tokens by its area, not by the length of its encoding; this is a large photograph's share."""
_LONGEST_TEXT = 2000
_OVERHEAD_TOKENS = 4
"""Role and separators of one message."""


@dataclass(slots=True)
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
    may_reason: bool = True
    """False = no reply holds anything but text and tool calls, so no reasoning either."""


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
    ends, pieces, reasoning = [], [], False
    human: list[BaseMessage] = []
    for message in messages:
        content = message.content
        if isinstance(content, str):
            pieces.append(f"\x1e{message.type}\x1f{content}")
            characters = len(content)
        else:
            pieces.append(f"\x1e{message.type}")
            reasoning = reasoning or isinstance(message, AIMessage)
            characters = 0
            for block in content:
                if isinstance(block, dict) and is_image(block):
                    images += 1
                    tokens += TOKENS_PER_IMAGE
                else:
                    characters += len(_text(block))
                pieces.append(repr(block))
        if isinstance(message, HumanMessage):
            human.append(message)
        elif isinstance(message, AIMessage):
            if message.additional_kwargs:  # OpenAI's replies say `refusal: None` there
                reasoning = reasoning or any(message.additional_kwargs.values())
            for call in message.tool_calls:
                text = f"{call['name']} {call['args']}"
                pieces.append(text)
                characters += len(text)
        elif isinstance(message, ToolMessage):
            pieces.append(f"{message.tool_call_id} {message.status}")
        tokens += characters // CHARACTERS_PER_TOKEN + _OVERHEAD_TOKENS
        ends.append(tokens)
    if count is not None:
        counted = count(messages)
        ends = [end * counted // max(tokens, 1) for end in ends]
        tokens = counted
    needs = Needs(tools=bool(tools), vision=images > 0, structured=structured, context_tokens=tokens + room)
    mark = hashlib.blake2b("\x1f".join(pieces).encode("utf-8", "replace"), digest_size=8)
    goal = shown(human[0]) if human else ""
    return Prompt(messages, tokens, needs, _latest(messages, human), mark.hexdigest(), goal, ends, reasoning)


def messages_of(input: LanguageModelInput) -> Sequence[BaseMessage]:
    """The messages of whatever may be given to a chat model.

    Raises:
        ValueError: it is no prompt.
    """
    if isinstance(input, str):
        return [HumanMessage(input)]
    if isinstance(input, PromptValue):
        return input.to_messages()
    if isinstance(input, list) and all(issubclass(kind, BaseMessage) for kind in set(map(type, input))):
        return input
    if not isinstance(input, Sequence):
        raise ValueError(f"prompt: seen {type(input).__name__}; allowed: a text, a prompt value or a list of messages")
    return convert_to_messages(input)


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
    content = message.content
    if not isinstance(content, str):
        content = "\n".join(text for block in content if (text := _text(block, told=True)))
    return content[:_LONGEST_TEXT]


def is_image(block: Mapping[str, Any]) -> bool:
    """Whether a content block is a picture in any provider's format; other media are not counted as such."""
    kind = block.get("type", "")
    if kind in ("image", "image_url", "input_image"):
        return True
    mime = block.get("mime_type") or block.get("media_type") or ""
    return kind in ("media", "file") and str(mime).startswith("image/")


def _latest(messages: Sequence[BaseMessage], human: Sequence[BaseMessage]) -> str:
    last = [human[-1]] if human else []
    if messages and not (last and messages[-1] is last[-1]):
        last.append(messages[-1])
    return "\n".join(shown(message) for message in last)[-_LONGEST_TEXT:]


def _text(block: str | dict[str, Any], told: bool = False) -> str:
    """Text of a content block: what it says or, unless only what is told counts, whatever else it holds."""
    if isinstance(block, str):
        return block
    text = block.get("text")
    if isinstance(text, str):
        return text
    if told or block.get("type") == "tool_use":  # the same call is in `tool_calls`
        return ""
    return repr(block)
