"""What a request asks of a model: its messages, tokens, tools, images, answer format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from steproute.models import Needs

CHARACTERS_PER_TOKEN = 4
_IMAGE_TOKENS = 800
_IMAGES = ("image_url", "input_image", "image")
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_TEXT_KEPT = 2000
_NOTHING_MORE = Needs()
_UNSAID = frozenset({"role", "type", "id", "tool_call_id", "call_id", "cache_control"})


class Asked(NamedTuple):
    """A request as the router needs to know it."""

    chat: bool
    """False = an embedding, an image, audio …: metered, but no model is chosen for it."""
    prompt_tokens: int
    least_tokens: int
    """What it must have room for: its tokens, or its UTF-8 bytes, of which no tokenizer makes more tokens."""
    max_tokens: int | None
    timeout_s: float | None
    needs: Needs
    text: str
    """End of the last message."""


def read(
    messages: Sequence[Any] | None,
    request: Mapping[str, Any],
    count_tokens: Callable[[Sequence[Any]], int] | None = None,
) -> tuple[Asked, Sequence[Any]]:
    """Read a request.

    Args:
        messages: as LiteLLM hands them to its callbacks; None where it has none.
        request: its keyword arguments.
        count_tokens: counts the prompt's tokens; None = characters / 4.

    Returns:
        What is remembered of it, and the messages of a chat, a response or an Anthropic message; none for other calls.
    """
    given = messages if messages is not None else request.get("messages")
    chat = bool(given) and "prompt" not in request
    if given is None:
        given, chat = _input(request)
    texts = _Texts()
    tools = request.get("tools") or request.get("functions")
    beside = request.get("instructions") or request.get("system")
    if tools or beside:
        texts.add(tools)
        texts.add(beside)
    texts.add_messages(given)
    if not chat and not given:
        texts.add(request.get("input"))
    tokens = texts.characters // CHARACTERS_PER_TOKEN + _IMAGE_TOKENS * texts.images
    if count_tokens is not None and given:
        tokens = count_tokens(given)
    limit = next((value for name in _LIMITS if isinstance(value := request.get(name), int) and value > 0), None)
    timeout = request.get("timeout")
    structured = _structured(request)
    asked = Asked(
        chat,
        tokens,
        min(tokens, texts.bytes + 16),
        limit,
        float(timeout) if isinstance(timeout, (int, float)) and timeout > 0 else None,
        Needs(bool(tools), texts.images > 0, structured) if tools or texts.images or structured else _NOTHING_MORE,
        texts.last[-_TEXT_KEPT:],
    )
    return asked, given


def _input(request: Mapping[str, Any]) -> tuple[Sequence[Any], bool]:
    """Messages of a `/responses` request. Embeddings have an `input` too; only the former keeps `litellm_metadata`."""
    given = request.get("input")
    if "litellm_metadata" not in request or given is None:
        return (), False
    return ([{"role": "user", "content": given}] if isinstance(given, str) else list(given)), True


def _structured(request: Mapping[str, Any]) -> bool:
    wanted = request.get("response_format")
    if wanted is None:
        text = request.get("text")
        wanted = text.get("format") if text and isinstance(text, Mapping) else None
    if wanted is None:
        return False
    return not isinstance(wanted, Mapping) or wanted.get("type") not in (None, "text")


class _Texts:
    """Adds up what a prompt says."""

    def __init__(self) -> None:
        self.characters = self.bytes = self.images = 0
        self.last = ""

    def add_messages(self, messages: Sequence[Any]) -> None:
        """Count messages; most are plain text."""
        characters = octets = 0
        for message in messages:
            content = message.get("content") if type(message) is dict else None
            if type(content) is str and content and len(message) == 2 and "role" in message:
                characters += (size := len(content))
                octets += size if content.isascii() else len(content.encode("utf-8", "replace"))
                self.last = content
            else:
                self.add(message)
        self.characters += characters
        self.bytes += octets

    def add(self, part: Any, depth: int = 0) -> None:
        """Count a message, a part of one, a tool …"""
        if isinstance(part, str):
            if part:
                self.characters += len(part)
                self.bytes += len(part) if part.isascii() else len(part.encode("utf-8", "replace"))
                if depth <= 3:
                    self.last = part
        elif isinstance(part, dict):
            if part.get("type") in _IMAGES:
                self.images += 1
                return
            for name, value in part.items():
                if value is not None and name not in _UNSAID:
                    self.add(value, depth + 1)
        elif isinstance(part, (list, tuple)) and depth < 12:
            for item in part:
                self.add(item, depth + 1)
        elif hasattr(part, "model_dump") and depth < 12:  # a message object of LiteLLM's own
            self.add(part.model_dump(), depth)
