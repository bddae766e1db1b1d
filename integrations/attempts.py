"""One call to a model server, with a deadline and bounded retries: shared by the backends."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

from steproute.backend import BackendError, ChatRequest, ChatResponse
from steproute.errors import SteprouteError
from steproute.redact import redact
from steproute.testing.mismatch import find_mismatch

_log = logging.getLogger(__name__)

Translate = Callable[[Exception], BackendError | None]
"""Turns a client library's exception into ours; None for one that is no failure of the model server."""


@dataclass(frozen=True)
class Retry:
    """How often and how patiently a backend asks again. Clock, sleep and chance are injectable for tests."""

    attempts: int = 3
    """Most attempts of one call; 1 = never retry."""
    first_wait_s: float = 0.5
    """Wait before the second attempt, in seconds; it doubles each time, less a random part of up to half."""
    longest_wait_s: float = 8.0
    """Cap of a wait of our own. A server's `Retry-After` is obeyed as it is, or the call fails where it is too long."""
    sleep: Callable[[float], None] = time.sleep
    asleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def wait_s(self, attempt: int, error: BackendError) -> float:
        """Seconds to wait after the given attempt failed."""
        if error.retry_after_s is not None:
            return error.retry_after_s
        wait = min(self.first_wait_s * float(2 ** (attempt - 1)), self.longest_wait_s)
        return wait * (1 - 0.5 * self.chance())


class _Call:
    """The state of one call: its deadline and how many attempts were made."""

    def __init__(
        self, request: ChatRequest, retry: Retry, limit_s: float | None, translate: Translate, secrets: Sequence[str]
    ):
        self.request, self.retry, self.translate, self.secrets = request, retry, translate, secrets
        self.limit_s = request.timeout if request.timeout is not None else limit_s
        self.deadline = None if self.limit_s is None else retry.clock() + self.limit_s
        self.attempt = 0
        self.started = 0.0

    def begin(self) -> float | None:
        """Start an attempt; the seconds left for it, None when unlimited."""
        self.attempt += 1
        self.started = self.retry.clock()
        return None if self.deadline is None else max(self.deadline - self.started, 0.001)

    def done(self, response: ChatResponse) -> ChatResponse:
        return replace(response, seconds=self.retry.clock() - self.started, attempts=self.attempt)

    def failed(self, error: Exception) -> float:
        """Seconds to wait before the next attempt; raises when there is none."""
        if isinstance(error, SteprouteError) and not isinstance(error, BackendError):
            raise error
        mismatch = find_mismatch(error)
        if mismatch is not None:  # a replay that drifted is not the server's fault: asking again cannot help
            raise mismatch
        ours = error if isinstance(error, BackendError) else self.translate(error)
        if ours is None:
            raise error
        wait = self.retry.wait_s(self.attempt, ours)
        too_late = self.deadline is not None and self.retry.clock() + wait >= self.deadline
        if not ours.retryable or self.attempt >= self.retry.attempts or too_late:
            if ours is error:
                raise ours
            # A traceback shows the cause's own text: it is left out where it holds a key.
            raise ours from (error if redact(str(error), self.secrets) == str(error) else None)
        _log.warning("%s; attempt %d of %d, waiting %.1f s", ours, self.attempt, self.retry.attempts, wait)
        return wait

    def timed_out(self) -> BackendError:
        return BackendError(self.request.model, "timeout", f"no answer within {self.limit_s:g} s", retryable=True)


def serve(
    request: ChatRequest,
    once: Callable[[float | None], ChatResponse],
    *,
    retry: Retry,
    limit_s: float | None,
    translate: Translate,
    secrets: Sequence[str] = (),
) -> ChatResponse:
    """Ask until there is an answer, a final error, or no time left.

    Args:
        request: what is asked; its `timeout` overrides `limit_s`.
        once: one attempt, given the seconds left.
        retry: how often and how patiently.
        limit_s: deadline of the whole call in seconds, None = none.
        translate: from the client's exceptions to ours.
        secrets: strings that must not show in an error.

    Raises:
        BackendError: the last attempt's failure.
    """
    call = _Call(request, retry, limit_s, translate, secrets)
    while True:
        left = call.begin()
        try:
            return call.done(once(left))
        except Exception as error:  # noqa: BLE001 - every one is translated and raised, or logged and tried again
            wait = call.failed(error)
        retry.sleep(wait)


async def aserve(
    request: ChatRequest,
    once: Callable[[float | None], Awaitable[ChatResponse]],
    *,
    retry: Retry,
    limit_s: float | None,
    translate: Translate,
    secrets: Sequence[str] = (),
) -> ChatResponse:
    """The async twin of `serve`. Cancelling the task ends the attempt at once, and nothing is retried."""
    call = _Call(request, retry, limit_s, translate, secrets)
    while True:
        left = call.begin()
        try:
            return call.done(await asyncio.wait_for(once(left), left))
        except asyncio.TimeoutError:
            wait = call.failed(call.timed_out())
        except Exception as error:  # noqa: BLE001 - every one is translated and raised, or logged and tried again
            wait = call.failed(error)
        await retry.asleep(wait)


def status_error(
    model: str, status: int, text: str, headers: Mapping[str, str] | None = None, secrets: Sequence[str] = ()
) -> BackendError:
    """The error of an HTTP answer: 408, 429 and 5xx may be asked again, other 4xx not."""
    retryable = status in (408, 429) or (status >= 500 and status not in (501, 505))
    phase: str = "timeout" if status == 408 else "request" if 400 <= status < 500 else "response"
    return BackendError(
        model,
        phase,  # type: ignore[arg-type]
        text or "no text",
        status=status,
        retryable=retryable,
        retry_after_s=retry_after_s(headers or {}),
        secrets=secrets,
    )


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds a server asks to wait, from `Retry-After-Ms` or `Retry-After` (seconds or a date); None when absent."""
    lower = {name.lower(): value for name, value in headers.items()}
    try:
        if "retry-after-ms" in lower:
            return max(float(lower["retry-after-ms"]) / 1000, 0.0)
        value = lower.get("retry-after", "").strip()
        if not value:
            return None
        if value.replace(".", "", 1).isdigit():
            return float(value)
        moment = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max((moment - (now or datetime.now(timezone.utc))).total_seconds(), 0.0)
