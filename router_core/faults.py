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
        if not isinstance(error, Exception) or isinstance(error, FOR_THE_HOST) or self._faults.raising:
            return False
        self._faults.note(error, self._where)
        return True
