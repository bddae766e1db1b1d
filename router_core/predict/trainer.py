"""When and how the predictor is fitted anew: from the buffer, in the background, never at a decision's expense."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field

from steproute.policies.base import PolicyConfig
from steproute.predict.buffer import GainBuffer, Sample
from steproute.predict.trees import DualPath, TreesConfig

logger = logging.getLogger("steproute")


class TrainerConfig(PolicyConfig):
    """When to fit, and on how much."""

    min_rows: int = Field(default=60, ge=10)
    """Samples before the first fit; until then the capability prior predicts."""
    min_tasks: int = Field(default=10, ge=3)
    """Tasks they must come from."""
    refit_share: float = Field(default=0.25, gt=0)
    """Fit again when this share of the rows of the last fit has come in anew."""
    max_rows: int = Field(default=10_000, ge=100)
    """The latest rows a fit uses."""
    background: bool = True
    """False = fit inside `learn`, so that a seed is a result (replays)."""


class Trainer:
    """Owns the buffer and the latest good fit.

    A fit that fails keeps the last good one, is logged, and is counted; the next one is tried when the next rows are in.
    """

    def __init__(self, buffer: GainBuffer, trees: TreesConfig, config: TrainerConfig, seed: int = 0):
        """Start; what the buffer already holds is fitted at once (in the background, where that is set)."""
        self.buffer, self.trees, self.config = buffer, trees, config
        self.fitted: DualPath | None = None
        """The latest good fit; read it once per decision."""
        self.fits = 0
        self.failures = 0
        self.last_error = ""
        self._seed = seed
        self.fresh = len(buffer)
        """Samples that came since the rows of the last fit were taken."""
        self._base = 0
        self._worker: threading.Thread | None = None
        self._filler: threading.Thread | None = None
        self._lock = threading.Lock()
        self._fit_when_due()

    def add(self, sample: Sample) -> None:
        """Keep a sample, and start a fit when one is due."""
        self.buffer.append(sample)
        self.fresh += 1
        self._fit_when_due()

    def fill(self, read: Callable[[], Sequence[Sample]]) -> None:
        """Put samples of before a restart in front of those that are held; nothing is fitted until they are there.

        Args:
            read: gives them, oldest first; called in the background where fits are.
        """
        if not self.config.background:
            self.buffer.precede(read())
            return
        self._filler = threading.Thread(target=self._fill, args=(read,), name="steproute-refill", daemon=True)
        self._filler.start()

    def _fill(self, read: Callable[[], Sequence[Sample]]) -> None:
        try:
            self.buffer.precede(read())
        except Exception as error:  # noqa: BLE001 — the fit that is there goes on serving, the next one has fewer rows
            self.failures += 1
            self.last_error = f"{type(error).__name__}: {error}"
            logger.error("gain predictor: samples of before the restart cannot be read (%s)", self.last_error)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for what runs in the background; True when no fit is running any more."""
        if self._filler is not None:
            self._filler.join(timeout)
        worker = self._worker
        if worker is not None:
            worker.join(timeout)
        return worker is None or not worker.is_alive()

    def adopt(self, fitted: DualPath) -> None:
        """Go on from a snapshot."""
        with self._lock:
            self.fitted, self.fresh, self._base = fitted, 0, fitted.rows

    def _fit_when_due(self) -> None:
        if not self._due():
            return
        rows = self.buffer.rows()[-self.config.max_rows :]
        if self.fitted is None and len({row.task for row in rows}) < max(self.config.min_tasks, self.trees.folds):
            return
        self.fresh, self._base = 0, len(rows)
        if not self.config.background:
            self._fit(rows)
            return
        self._worker = threading.Thread(target=self._fit, args=(rows,), name="steproute-refit", daemon=True)
        self._worker.start()

    def _due(self) -> bool:
        if any(thread is not None and thread.is_alive() for thread in (self._worker, self._filler)):
            return False
        if self._base == 0:
            return len(self.buffer) >= self.config.min_rows
        return self.fresh >= max(self.config.refit_share * self._base, 1)

    def _fit(self, rows: Sequence[Sample]) -> None:
        try:
            fitted: Any = DualPath.fit(rows, self.trees, seed=self._seed + self.fits)
        except Exception as error:  # noqa: BLE001 — whatever went wrong, the last good fit goes on serving
            with self._lock:
                self.failures += 1
                self.last_error = f"{type(error).__name__}: {error}"
            logger.error(
                "gain predictor: fit of %d rows failed, the last good one stays (%s)", len(rows), self.last_error
            )
            return
        with self._lock:
            self.fitted = fitted
            self.fits += 1
