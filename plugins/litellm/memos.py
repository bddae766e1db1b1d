"""What is remembered of each task between its calls: open tool calls, and how much of a prompt each model has served."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from steproute.decision import Decision
from steproute.ledger import ToolCall
from steproute.router import Router

_FAILED = ("error", "exception", "traceback", "failed")


@dataclass(slots=True)
class Memo:
    """One task."""

    served: dict[str, int] = field(default_factory=dict)
    """Model → tokens of the latest prompt it has served."""
    steps: int = -1
    """Number that the latest step was given."""
    tools: OrderedDict[str, ToolCall] = field(default_factory=OrderedDict)
    """Tool calls whose result has not been seen, by the provider's id."""


class Memos:
    """The latest tasks. Safe between threads."""

    def __init__(self, router: Router, remember: int = 2000):
        self._router, self._remember = router, remember
        self._memos: OrderedDict[str, Memo] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, task: str) -> Memo:
        """What is remembered of a task."""
        with self._lock:
            memo = self._memos.get(task)
            if memo is None:
                memo = self._memos[task] = Memo()
            else:
                self._memos.move_to_end(task)
            while len(self._memos) > self._remember:
                self._memos.popitem(last=False)
            return memo

    def next_step(self, memo: Memo, length: int, token: str) -> str:
        """Key of a task's next step: the number of steps in its ledger, as the router would choose; made unique for
        calls that run side by side."""
        with self._lock:
            taken, memo.steps = length <= memo.steps, max(length, memo.steps)
        return f"{length}.{token}" if taken else str(length)

    def read_tools(self, memo: Memo, messages: Sequence[Any]) -> None:
        """Note how tool calls ended, from the results at the end of the messages."""
        if not memo.tools:
            return
        for call_id, failed, text in _results(messages):
            call = memo.tools.pop(call_id, None)
            if call is not None:
                call.ok, call.error = not failed, text if failed else ""

    def ask_tools(self, decision: Decision, calls: Iterable[tuple[str, str, str]]) -> None:
        """Note the tool calls of a reply, `(id, name, arguments)` each, in its step."""
        ledger = self._router.ledger(decision.task)
        steps = ledger.steps[-16:] if ledger is not None else ()
        step = next((item for item in reversed(steps) if item.id == decision.id), None)
        if step is None:
            return
        memo = self.of(decision.task)
        for call_id, name, arguments in calls:
            mark = hashlib.blake2b(f"{name}\0{arguments}".encode("utf-8", "replace"), digest_size=8).hexdigest()
            call = ToolCall(name=name, fingerprint=mark)
            step.tool_calls.append(call)
            if call_id:
                memo.tools[call_id] = call
        while len(memo.tools) > 64:
            memo.tools.popitem(last=False)


def _results(messages: Sequence[Any]) -> Iterator[tuple[str, bool, str]]:
    """(call id, whether it failed, its first words) of the tool results after the last reply."""
    for message in reversed(messages):
        if not isinstance(message, Mapping) or message.get("role") == "assistant":
            return
        if message.get("role") == "tool":
            yield _result(message.get("tool_call_id"), message.get("content"), None)
        elif message.get("type") == "function_call_output":
            yield _result(message.get("call_id"), message.get("output"), None)
        else:
            content = message.get("content")
            for part in content if isinstance(content, list) else ():
                if isinstance(part, Mapping) and part.get("type") == "tool_result":
                    yield _result(part.get("tool_use_id"), part.get("content"), part.get("is_error"))


def _result(call_id: Any, content: Any, failed: Any) -> tuple[str, bool, str]:
    """OpenAI's format has no word for a failed tool: a result that begins like an error is taken for one."""
    text = content if isinstance(content, str) else str(content or "")
    first = " ".join(text[:400].split())
    if not isinstance(failed, bool):
        failed = first.lower().lstrip("{[\"' ").startswith(_FAILED)
    return str(call_id or ""), failed, first[:200]
