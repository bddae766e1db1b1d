"""Whether a model is still the one that was learnt: a change detector per model on what its gains differ from the belief.

Every step gives the residual x = (z − E[z]) / σ, in standard deviations of one observation. A detector of `river.drift`
watches each model's residuals over all groups; when it fires, the caller lets go of most of what it knew about that model.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

from pydantic import Field

from steproute.errors import ConfigError
from steproute.settings import Settings

logger = logging.getLogger("steproute")

CLIP = 4.0
"""A residual counts as at most so many standard deviations."""
LONGEST, KEPT = 600, 200
"""A detector that has seen so many residuals without a change starts anew from the latest `KEPT`, so that its state stays small."""


class ChangeConfig(Settings):
    """Settings of change detection; it needs the extra `drift`."""

    detector: Literal["none", "page-hinkley", "adwin"] = "none"
    """`page-hinkley` sees a change of one standard deviation after about 15 steps, `adwin` needs no size of change to be stated."""
    delta: float = Field(default=0.25, gt=0)
    """Page-Hinkley: a shift of so many standard deviations is none."""
    threshold: float = Field(default=10.0, gt=0)
    """Page-Hinkley: sum of deviations from which a change is declared; more = fewer false alarms, later."""
    confidence: float = Field(default=0.002, gt=0, lt=1)
    """ADWIN: chance of a false alarm per look."""
    least: int = Field(default=10, ge=1)
    """Steps of a model before a change can be declared."""
    keep: float = Field(default=1.0, ge=0)
    """After a change what was known of the model is worth at most so many observations per group."""
    keep_version: float = Field(default=8.0, ge=0)
    """The same for a new version, which is likely to be like the old one."""


class ChangeWatch:
    """One detector per model."""

    def __init__(self, config: ChangeConfig | None = None):
        """Set up.

        Raises:
            ImportError: a detector is wanted and river is not installed; names the extra.
        """
        self.config = config or ChangeConfig()
        self.found: dict[str, int] = {}
        """Model → how many changes were declared."""
        self._seen: dict[str, list[float]] = {}
        self._detectors: dict[str, Any] = {}
        self._module: Any = None
        if self.config.detector != "none":
            try:
                self._module = import_module("river.drift")
            except ModuleNotFoundError:
                raise ImportError(
                    f"change detection by {self.config.detector!r} needs river: pip install 'steproute[drift]'"
                ) from None

    @property
    def active(self) -> bool:
        """Whether anything is watched."""
        return self._module is not None

    def note(self, model: str, residual: float) -> bool:
        """Take in one residual.

        Args:
            model: name of the model.
            residual: (z − E[z]) / σ.

        Returns:
            True when the model has changed: its detector starts anew.
        """
        if not self.active or not math.isfinite(residual):
            return False
        x = min(max(residual, -CLIP), CLIP)
        seen = self._seen.setdefault(model, [])
        seen.append(x)
        if self._feed(model, x):
            self.found[model] = self.found.get(model, 0) + 1
            logger.warning(
                "steproute: %s is not what it was: its steps bring %s than they did (seen over its latest %d steps); it is learnt anew",
                model,
                "less" if sum(seen[-20:]) < 0 else "more",
                len(seen),
            )
            self.reset(model)
            return True
        if len(seen) >= LONGEST:
            self._start(model, seen[-KEPT:])
        return False

    def reset(self, model: str) -> None:
        """Start anew for a model."""
        self._seen.pop(model, None)
        self._detectors.pop(model, None)

    def state(self) -> dict[str, Any]:
        """Plain JSON values: each model's residuals since its detector started."""
        return {"found": dict(self.found), "seen": {model: list(seen) for model, seen in self._seen.items()}}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave.

        Raises:
            ConfigError: the state is malformed.
        """
        try:
            found = {str(model): int(count) for model, count in state["found"].items()}
            kept = {str(model): [float(x) for x in seen] for model, seen in state["seen"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"state of change detection: {type(error).__name__}: {error}") from None
        self.found, self._seen, self._detectors = found, {}, {}
        if self.active:
            for model, seen in kept.items():
                self._start(model, seen)

    def _start(self, model: str, seen: list[float]) -> None:
        self.reset(model)
        self._seen[model] = list(seen)
        for x in seen:
            self._feed(model, x)

    def _feed(self, model: str, x: float) -> bool:
        detector = self._detectors.get(model)
        if detector is None:
            detector = self._detectors[model] = self._make()
        detector.update(x)
        return bool(detector.drift_detected) and len(self._seen[model]) >= self.config.least

    def _make(self) -> Any:
        config = self.config
        if config.detector == "adwin":
            return self._module.ADWIN(delta=config.confidence, clock=1, grace_period=config.least)
        return self._module.PageHinkley(
            min_instances=config.least, delta=config.delta, threshold=config.threshold, alpha=1.0
        )
