"""Keeps a router told of which models a server holds in memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from typing_extensions import Self

from steproute.backend import BackendError
from steproute.errors import ConfigError

_log = logging.getLogger(__name__)


class LoadedWatch:
    """Asks a server every few seconds, in a thread of its own, so that no decision waits for the answer.

    `LoadedWatch(lambda: [model.name for model in backend.ps()], router.told_loaded)`

    Args:
        ask: names of the models in memory, as in the pool or its deployments.
        told: hears them.
        interval_s: seconds between questions.

    Raises:
        ConfigError: the interval is not above 0.
    """

    def __init__(
        self, ask: Callable[[], Iterable[str]], told: Callable[[Iterable[str]], None], interval_s: float = 10.0
    ):
        if not interval_s > 0:
            raise ConfigError(f"interval_s: seen {interval_s!r}; allowed: seconds above 0")
        self._ask, self._told, self._interval = ask, told, interval_s
        self.failed = 0
        """Questions without an answer: the router then goes by what it has called itself."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steproute-loaded", daemon=True)

    def start(self) -> Self:
        """Begin to ask."""
        self._thread.start()
        return self

    def ask_now(self) -> None:
        """Ask once, in this thread."""
        try:
            names = list(self._ask())
        except BackendError as error:
            self.failed += 1
            if self.failed == 1:
                _log.warning("which models are in memory is not known: %s", error)
            return
        self._told(names)

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        self.ask_now()
        while not self._closed.wait(self._interval):
            self.ask_now()
