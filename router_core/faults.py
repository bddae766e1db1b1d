"""Faults inside the router are kept from the host: logged, counted, and no more."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from steproute.errors import BudgetExceeded, NoEligibleModel

logger = logging.getLogger("steproute")

FOR_THE_HOST = (BudgetExceeded, NoEligibleModel)
"""What a host must hear of."""


class Faults:
    """Counts what went wrong inside; with `raising` it lets everything through, for tests."""

    def __init__(self, raising: bool = False):
        self.raising = raising
        self.count = 0
        self.last: Exception | None = None
        """The latest fault. Its text is not logged: it may quote the user."""
        self.listener: Callable[[Exception, str], None] | None = None
        """Told of every fault but its own."""

    def kept(self, where: str) -> _Guard:
        """A `with` block that ends quietly when something inside it fails, except for errors the host must hear of.

        Args:
            where: what is being done, for the log.
        """
        return _Guard(self, where)

    def swallow(self, error: Exception, where: str) -> bool:
        """Note a fault that was caught. For the hottest paths: `kept` costs a little each time, an `except` does not.

        Args:
            error: what was caught.
            where: what was being done, for the log.

        Returns:
            False = it is to be raised again: the host must hear of it, or a test.
        """
        if self.raising or isinstance(error, FOR_THE_HOST):
            return False
        self.note(error, where)
        return True

    def note(self, error: Exception, where: str) -> None:
        """Count and log one."""
        self.count += 1
        self.last = error
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown place"
        logger.error("steproute: %s failed inside (%s at %s); the host goes on", where, type(error).__name__, place)
        if self.listener is not None and where != "telemetry":
            with self.kept("telemetry"):
                self.listener(error, where)


class _Guard:
    __slots__ = ("_faults", "_where")

    def __init__(self, faults: Faults, where: str):
        self._faults, self._where = faults, where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        return isinstance(error, Exception) and self._faults.swallow(error, self._where)
