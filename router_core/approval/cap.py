"""A spending cap that calls are paid from: their worst case before they are made, what they cost after."""

from __future__ import annotations

import json
import math
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from steproute.approval.file import ApprovalError
from steproute.backend import Backend, BackendError, ChatRequest, ChatResponse
from steproute.errors import unknown_name
from steproute.models import Price

NANO = 10**9
PROMPT_MARGIN = 64
"""Tokens a message may take besides its text: roles and separators."""


class SpendingCap:
    """What was spent under an approval, in a SQLite file beside it; a hard cap over runs, threads and processes."""

    def __init__(self, path: Path, usd: float):
        """Open the book.

        Args:
            path: of the SQLite file; made where there is none.
            usd: the cap.

        Raises:
            ApprovalError: it cannot be opened.
        """
        self.path, self.usd = path, usd
        with self._book() as book:
            book.execute(
                "CREATE TABLE IF NOT EXISTS calls (id TEXT PRIMARY KEY, created REAL NOT NULL, benchmark TEXT NOT NULL, "
                "model TEXT NOT NULL, reserved_nano INTEGER NOT NULL, spent_nano INTEGER)"
            )

    @contextmanager
    def _book(self) -> Iterator[sqlite3.Connection]:
        try:
            book = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            try:
                book.execute("BEGIN IMMEDIATE")
                yield book
                book.execute("COMMIT")
            finally:
                book.close()  # what was not committed is undone
        except sqlite3.Error as error:
            raise ApprovalError(f"{self.path}: the book of what was spent cannot be kept ({error})") from None

    @property
    def spent(self) -> float:
        """USD spent so far; a call nobody settled counts with its worst case."""
        with self._book() as book:
            return _sum(book) / NANO

    def reserve(self, benchmark: str, model: str, worst: float) -> str:
        """Set the worst case of a call aside.

        Returns:
            Key of the call, for `settle`.

        Raises:
            ApprovalError: the cap leaves no room for it.
        """
        key, asked = uuid.uuid4().hex, math.ceil(worst * NANO)
        with self._book() as book:
            spent = _sum(book)
            if spent + asked <= round(self.usd * NANO):
                values = (key, time.time(), benchmark, model, asked)
                book.execute("INSERT INTO calls VALUES (?, ?, ?, ?, ?, NULL)", values)
                return key
        raise ApprovalError(
            f"spending cap of ${self.usd:g} reached: ${spent / NANO:.6g} spent, and the next call of {model!r} may cost "
            f"${worst:.6g}; raise `usd` to go on (--resume), the book is {self.path}"
        )

    def settle(self, key: str, usd: float) -> None:
        """Note what a call really cost."""
        with self._book() as book:
            book.execute("UPDATE calls SET spent_nano = ? WHERE id = ?", (math.ceil(usd * NANO), key))


def _sum(book: sqlite3.Connection) -> int:
    return int(book.execute("SELECT coalesce(sum(coalesce(spent_nano, reserved_nano)), 0) FROM calls").fetchone()[0])


class CappedBackend:
    """A backend whose every call is paid from a cap: its worst case before it is made, what it cost after."""

    def __init__(
        self, backend: Backend, cap: SpendingCap, prices: Mapping[str, Price], limits: Mapping[str, int], benchmark: str
    ):
        """Stand before a backend.

        Args:
            backend: makes the calls.
            cap: what may be spent.
            prices: deployment → its price.
            limits: deployment → most completion tokens of a call that sets no limit.
            benchmark: for the book.
        """
        self._backend, self._cap, self._prices, self._limits = backend, cap, prices, limits
        self._benchmark = benchmark
        self.refusal: ApprovalError | None = None
        """The latest call that was not made: frameworks may swallow the error."""

    def complete(self, request: ChatRequest) -> ChatResponse:
        """Serve the request.

        Raises:
            ApprovalError: the model is not approved, or the cap leaves no room.
            BackendError: the model could not be called.
        """
        key, request, price = self._pay(request)
        try:
            response = self._backend.complete(request)
        except BackendError as error:
            self._failed(key, error)
            raise
        self._settle(key, price, response)
        return response

    async def acomplete(self, request: ChatRequest) -> ChatResponse:
        """The async twin of `complete`."""
        key, request, price = self._pay(request)
        try:
            response = await self._backend.acomplete(request)
        except BackendError as error:
            self._failed(key, error)
            raise
        self._settle(key, price, response)
        return response

    def close(self) -> None:
        """Close the backend behind it."""
        close: Callable[[], None] | None = getattr(self._backend, "close", None)
        if close is not None:
            close()

    def _pay(self, request: ChatRequest) -> tuple[str, ChatRequest, Price]:
        try:
            return self._reserve(request)
        except ApprovalError as error:
            self.refusal = error
            raise

    def _reserve(self, request: ChatRequest) -> tuple[str, ChatRequest, Price]:
        price = self._prices.get(request.model)
        if price is None:
            raise ApprovalError(unknown_name("approval: models", request.model, self._prices))
        if request.max_tokens is None:  # without a limit there would be no worst case
            request = replace(request, max_tokens=self._limits[request.model])
        assert request.max_tokens is not None
        worst = Price(
            input=max(price.input, price.cached_input or 0.0, price.cache_write or 0.0), output=price.output
        ).usd(most_tokens(request), request.max_tokens)
        return self._cap.reserve(self._benchmark, request.model, worst), request, price

    def _settle(self, key: str, price: Price, response: ChatResponse) -> None:
        usage = response.usage
        if not usage.estimated:  # else what was set aside stays: an estimate is no bill
            self._cap.settle(key, price.usd(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens))

    def _failed(self, key: str, error: BackendError) -> None:
        if error.phase in ("connect", "request"):  # a call cut off in the middle may be on the provider's bill
            self._cap.settle(key, 0.0)


def most_tokens(request: ChatRequest) -> int:
    """More prompt tokens than a request can have: no tokenizer makes more of a text than it has bytes."""
    parts = [*request.messages, *request.tools, request.response_format or ""]
    text = json.dumps(parts, ensure_ascii=False, default=str)
    return len(text.encode("utf-8", "replace")) + PROMPT_MARGIN * (1 + len(request.messages) + len(request.tools))
