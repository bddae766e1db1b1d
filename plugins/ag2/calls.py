"""One LLM call of either generation: decide, call, observe, and on to the next model when it failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from steproute.decision import Decision
from steproute.errors import BudgetExceeded, NoEligibleModel
from steproute.ledger import Outcome
from steproute.models import Needs
from steproute.redact import redact
from steproute.router import Router

if TYPE_CHECKING:
    from steproute.plugins.ag2.books import Book
    from steproute.plugins.ag2.meter import Meter

logger = logging.getLogger("steproute")

CHARACTERS_PER_TOKEN = 4
"""For counting tokens where nobody else counts them."""


@dataclass(frozen=True, slots=True)
class Call:
    """What is known about a call before its model is chosen."""

    role: str
    prompt_tokens: int
    """Estimated."""
    needs: Needs
    text: str = ""
    """The last message, for estimators that embed it."""
    max_tokens: int | None = None
    timeout_s: float | None = None
    """After how many seconds the host gives the call up."""


@dataclass
class Attempts:
    """The attempts of one call. The caller loops: `decide`, call the model, then `failed` or `succeeded`."""

    router: Router
    book: Book
    call: Call
    meter: Meter
    pin: str | None = None
    _key: str = ""
    _error: Exception | None = field(default=None, repr=False)

    def decide(self) -> Decision | None:
        """The model to call next.

        Returns:
            The decision, or None when the router is out of order: the host's own model stands in, unmetered.

        Raises:
            BudgetExceeded: a hard limit leaves no model that fits.
            NoEligibleModel: no model has what the call needs.
            Exception: the provider's own error, once every model that could serve the call has failed.
        """
        try:
            with self.router.faults.kept("AG2 step"):
                if not self._key:
                    self._key = self.book.next_key()
                return self.router.decide(
                    self.book.ledger,
                    self.call.role,
                    step=self._key,
                    prompt_tokens=self.call.prompt_tokens,
                    max_tokens=self.call.max_tokens,
                    timeout_s=self.call.timeout_s,
                    needs=self.call.needs,
                    text=self.call.text,
                    pin=self.pin,
                )
        except NoEligibleModel as refusal:
            raise _marked(self._error or refusal) from None
        except BudgetExceeded as refusal:
            raise _marked(refusal) from self._error
        return None

    def failed(self, decision: Decision, error: BaseException, seconds: float) -> None:
        """Tell the router that the model failed; the next `decide` leaves it out."""
        if isinstance(error, Exception):
            self._error = error
        reason = "cancelled" if isinstance(error, asyncio.CancelledError) else describe(error)
        self._observe(decision, Outcome(seconds=seconds, error=reason), "")
        logger.warning("steproute: %s failed for role %r (%s)", decision.model.name, self.call.role, reason)

    def succeeded(
        self,
        decision: Decision,
        outcome: Callable[[], Outcome],
        output: Callable[[], str],
        tool_calls: Callable[[], Sequence[tuple[str, str, str]]],
    ) -> None:
        """Tell the router what the model returned. A reply that cannot be read counts as one that cost nothing.

        Args:
            decision: of this attempt.
            outcome: reads usage, time and the like.
            output: reads the text of the reply.
            tool_calls: reads `(call id, tool name, arguments as text)` of each tool the reply asks for.
        """
        seen, text = Outcome(tokens_estimated=True), ""
        with self.router.faults.kept("reading a reply"):
            seen, text = outcome(), output()
        self._observe(decision, seen, text)
        with self.router.faults.kept("reading tool calls"):
            self.book.add_tool_calls(decision.id, tool_calls())

    def _observe(self, decision: Decision, outcome: Outcome, output: str) -> None:
        with self.router.faults.kept("AG2 outcome"):
            outcome.model = decision.model.name
            self.router.observe(decision, outcome, output=output)
        self.meter.add(decision.model.name, self.call.role, outcome)


def _marked(error: Exception) -> Exception:
    with suppress(AttributeError):
        error._steproute_final = True  # type: ignore[attr-defined]
    return error


def is_final(error: BaseException | None) -> bool:
    """Whether an error is one that a routed call ended with, or comes from one."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if getattr(error, "_steproute_final", False):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def describe(error: BaseException) -> str:
    """One short line about an error, without keys."""
    text = " ".join(redact(str(error)).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
