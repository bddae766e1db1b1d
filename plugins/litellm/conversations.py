"""Recognise a conversation by its beginning: the messages of an earlier call, the reply to it, then new ones."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Turn:
    """One call of a conversation."""

    task: str
    reply: bytes = b""
    """Digest of what was answered; empty while it is not known."""


class Conversations:
    """The latest calls that named no task, by the digest of their messages. Safe between threads."""

    def __init__(self, remember: int = 10_000):
        self._turns: OrderedDict[tuple[str, bytes], list[Turn]] = OrderedDict()
        self._responses: OrderedDict[str, str] = OrderedDict()
        self._remember = remember
        self._lock = threading.Lock()

    def find(self, client: str, messages: Sequence[Any], digests: Sequence[bytes]) -> str:
        """The task whose earlier call these messages go on from; empty when there is none. `digests` are their `prefixes`.

        A call with the very same messages as an earlier one is another conversation: only one that goes on after a
        reply is recognised. Of several that began alike, the one that was given this reply is meant.
        """
        with self._lock:
            for index in range(len(messages) - 1, 0, -1):
                if not _is_reply(messages[index]):
                    continue
                turns = self._turns.get((client, digests[index]))
                if turns:
                    reply = fingerprint(messages[index])
                    return next((turn.task for turn in reversed(turns) if turn.reply == reply), None) or next(
                        (turn.task for turn in reversed(turns) if not turn.reply), turns[-1].task
                    )
        return ""

    def note(self, client: str, digest: bytes, task: str) -> Turn:
        """Remember a call by the digest of all its messages.

        Returns:
            Where its reply is to be noted.
        """
        key = (client, digest)
        with self._lock:
            turns = self._turns.setdefault(key, [])
            turn = next((item for item in turns if item.task == task), None)
            if turn is None:
                turn = Turn(task)
                turns.append(turn)
                del turns[:-8]
            self._turns.move_to_end(key)
            while len(self._turns) > self._remember:
                self._turns.popitem(last=False)
        return turn

    def answered(self, response_id: str, task: str) -> None:
        """Remember the id of a response, which `/responses` goes on from by name."""
        with self._lock:
            self._responses[response_id] = task
            while len(self._responses) > self._remember:
                self._responses.popitem(last=False)

    def of_response(self, response_id: str) -> str:
        """The task of a response; empty when it is not known."""
        return self._responses.get(response_id, "")


def prefixes(messages: Sequence[Any]) -> list[bytes]:
    """Digest of the first n messages, for every n from 0 on."""
    digest = hashlib.blake2b(digest_size=16)
    found = [digest.digest()]
    for message in messages:
        digest.update(fingerprint(message))
        found.append(digest.digest())
    return found


def fingerprint(message: Any) -> bytes:
    """What a message says, whatever client wrote it: role, text without outer blanks, names and arguments of tool calls."""
    if not isinstance(message, dict):
        return hashlib.blake2b(str(message).encode("utf-8", "replace"), digest_size=16).digest()
    content = message.get("content")
    parts = [str(message.get("role") or message.get("type") or ""), _text(content).strip()]
    for call in message.get("tool_calls") or ():
        function = (call.get("function") if isinstance(call, Mapping) else None) or {}
        parts.append(f"{function.get('name')}({function.get('arguments')})")
    if message.get("type") in ("function_call", "function_call_output"):
        parts.append(f"{message.get('name')}({message.get('arguments')}){message.get('output')}")
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=16).digest()


def _is_reply(message: Any) -> bool:
    return isinstance(message, dict) and (
        message.get("role") == "assistant" or message.get("type") in ("function_call", "reasoning")
    )


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        return json.dumps(content, sort_keys=True, default=str)
    parts = []
    for part in content:
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            parts.append(part["text"])
        else:
            parts.append(json.dumps(part, sort_keys=True, default=str))
    return "".join(parts)
