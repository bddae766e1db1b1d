"""What LLM calls really happened while somebody else made them, heard through LangChain's callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.tracers.context import register_configure_hook


@dataclass(slots=True)
class HeardCall:
    """One LLM call: the model's name as its client gives it, and the reply or the error."""

    model: str = ""
    message: BaseMessage | None = None
    error: BaseException | None = None


class Ears(BaseCallbackHandler):
    """Notes every LLM call below it, in order of their beginning."""

    run_inline = True

    def __init__(self) -> None:
        self.calls: dict[UUID, HeardCall] = {}

    @property
    def last(self) -> HeardCall | None:
        """The call that began last."""
        return list(self.calls.values())[-1] if self.calls else None

    @property
    def replied(self) -> HeardCall | None:
        """The latest call that returned something."""
        return next((call for call in reversed(self.calls.values()) if call.message is not None), None)

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: UUID, metadata: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """A call begins."""
        self.calls[run_id] = HeardCall(str((metadata or {}).get("ls_model_name") or ""))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """A call returned."""
        call = self.calls.setdefault(run_id, HeardCall())
        if response.generations and response.generations[0]:
            call.message = getattr(response.generations[0][0], "message", None)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """A call failed."""
        self.calls.setdefault(run_id, HeardCall()).error = error


_LISTENING: ContextVar[Ears | None] = ContextVar("steproute_ears", default=None)
register_configure_hook(_LISTENING, inheritable=True)


@contextmanager
def listening() -> Iterator[Ears]:
    """Hear every LLM call made inside the block, whichever client makes it."""
    ears = Ears()
    token = _LISTENING.set(ears)
    try:
        yield ears
    finally:
        _LISTENING.reset(token)
