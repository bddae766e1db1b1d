"""Whether a model is still the one that was learnt: a change detector per model on what its gains differ from the belief.

A detector watches each model's gains over all groups. When it fires, it is worked out since when, and by how much: the
residuals x = (z − E[z]) / σ from the change on are the suffix with the largest (Σ x)² / n, the likelihood ratio of a shift
of unknown size and time (Willsky and Jones, IEEE Transactions on Automatic Control 21, 1976). The caller then lets go of
most of what was known from before, shifted, and keeps what was seen since.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, NamedTuple

from pydantic import Field

from steproute.errors import ConfigError
from steproute.predict.shiryaev import ShiryaevRoberts
from steproute.settings import Settings

logger = logging.getLogger("steproute")

CLIP = 4.0
"""A residual counts as at most so many standard deviations."""
LONGEST, KEPT = 600, 200
"""A detector that has seen so many steps without a change starts anew from the latest `KEPT`, so that its state stays small."""
SHIFT_SD = 0.3
"""Standard deviation of how far the gains of a model that changes move, before anything was seen of it."""


class ChangeConfig(Settings):
    """Settings of change detection; `page-hinkley` and `adwin` need the extra `drift`."""

    detector: Literal["none", "shiryaev-roberts", "page-hinkley", "adwin"] = "none"
    """`shiryaev-roberts` judges by what was expected of every step, and is the fastest; the others by a stream's own past:
    `page-hinkley` for changes of one standard deviation, `adwin` for changes of any size."""
    every: float = Field(default=1500.0, gt=1)
    """Shiryaev–Roberts: steps of a model between two false alarms, on average and at least."""
    tolerance: float = Field(default=0.05, ge=0, lt=1)
    """Shiryaev–Roberts: a shift of so much relative gain is none."""
    delta: float = Field(default=0.25, gt=0)
    """Page-Hinkley: a shift of so many standard deviations is none."""
    threshold: float = Field(default=10.0, gt=0)
    """Page-Hinkley: sum of deviations from which a change is declared; more = fewer false alarms, later."""
    confidence: float = Field(default=0.002, gt=0, lt=1)
    """ADWIN: chance of a false alarm per look."""
    least: int = Field(default=10, ge=1)
    """Steps of a model before a change can be declared."""
    keep: float = Field(default=8.0, ge=0)
    """What was known of a model before it changed, shifted by what is seen since, is worth at most so many observations per group.
    After an alarm of `page-hinkley`, which is often wrong, nothing is shifted and one observation at most is kept."""
    keep_version: float = Field(default=8.0, ge=0)
    """What was known of the old version, as it was, is worth at most so many for a new one."""
    again: int | None = Field(default=None, ge=1)
    """Steps of the others after which a model that fell is given another look, as if it were itself again, and every twice as
    many from then on; None = never."""

    @property
    def kept(self) -> float:
        """`keep`, or what the detector allows of it."""
        return min(self.keep, 1.0) if self.detector == "page-hinkley" else self.keep


class Seen(NamedTuple):
    """One step of a model: what it gained, and what was expected."""

    group: tuple[str, ...]
    gain: float
    """Relative gain z."""
    weight: float
    """Reliability ρ, in (0, 1]."""
    mean: float
    """E[z]."""
    variance: float
    """Variance of that expectation."""
    noise: float
    """σ², the variance of one fully reliable gain."""

    @property
    def residual(self) -> float:
        """x, in standard deviations of one observation."""
        return min(max((self.gain - self.mean) * math.sqrt(self.weight / self.noise), -CLIP), CLIP)


class Change(NamedTuple):
    """What is known of a change that was found."""

    shift: float
    """How far the model's gains moved, shrunken towards 0."""
    since: list[Seen]
    """The steps since, the latest included."""


class ChangeWatch:
    """One detector per model."""

    def __init__(self, config: ChangeConfig | None = None):
        """Set up.

        Raises:
            ImportError: a detector of river is wanted and river is not installed; names the extra.
        """
        self.config = config or ChangeConfig()
        self.found: dict[str, int] = {}
        """Model → how many changes were declared."""
        self._fallen: dict[str, tuple[float, int, int]] = {}
        """Model → how far it fell, steps until it is looked at again, steps that were waited for this."""
        self._seen: dict[str, list[Seen]] = {}
        self._detectors: dict[str, Any] = {}
        self._module: Any = None
        if self.config.detector in ("page-hinkley", "adwin"):
            try:
                self._module = import_module("river.drift")
            except ModuleNotFoundError:
                raise ImportError(
                    f"change detection by {self.config.detector!r} needs river: pip install 'steproute[drift]'"
                ) from None

    @property
    def active(self) -> bool:
        """Whether anything is watched."""
        return self.config.detector != "none"

    def note(self, model: str, step: Seen) -> Change | None:
        """Take in one step.

        Args:
            model: name of the model.
            step: what it gained and what was expected.

        Returns:
            What changed, when the model has changed: its detector starts anew. Else None.
        """
        if not self.active or not all(map(math.isfinite, step[1:])):
            return None
        seen = self._seen.setdefault(model, [])
        seen.append(step)
        if self._feed(model, step):
            self.found[model] = self.found.get(model, 0) + 1
            change = since(seen)
            logger.warning(
                "steproute: %s is not what it was: its steps bring %s than they did (seen over its latest %d steps); it is learnt anew",
                model,
                "less" if change.shift < 0 else "more",
                len(change.since),
            )
            if self.config.detector == "page-hinkley":
                change = Change(0.0, [])
            self.reset(model)
            self._fallen.pop(model, None)
            if self.config.again is not None and change.shift < 0:
                self._fallen[model] = (change.shift, self.config.again, self.config.again)
            return change
        if len(seen) >= LONGEST:
            self._start(model, seen[-KEPT:])
        return None

    def due(self, model: str) -> dict[str, float]:
        """Fallen models to look at again, and how far they fell; their detectors start anew.

        Args:
            model: who served this step; waiting is counted in steps of the others.
        """
        found = {}
        for name, (shift, left, waited) in list(self._fallen.items()):
            if name == model:
                continue
            if left > 1:
                self._fallen[name] = (shift, left - 1, waited)
            else:
                self._fallen[name] = (shift, 2 * waited, 2 * waited)
                found[name] = shift
                self.reset(name)
        return found

    def reset(self, model: str) -> None:
        """Start anew for a model."""
        self._seen.pop(model, None)
        self._detectors.pop(model, None)

    def state(self) -> dict[str, Any]:
        """Plain JSON values: each model's steps since its detector started."""
        kept = {model: [[list(step.group), *step[1:]] for step in seen] for model, seen in self._seen.items()}
        fallen = {model: list(entry) for model, entry in self._fallen.items()}
        return {"found": dict(self.found), "seen": kept, **({"fallen": fallen} if fallen else {})}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave. Steps without their group, as once written, are left out: the watch starts anew.

        Raises:
            ConfigError: the state is malformed.
        """
        try:
            found = {str(model): int(count) for model, count in state["found"].items()}
            kept = {
                str(model): [_step(entry) for entry in seen if not isinstance(entry, float)]
                for model, seen in state["seen"].items()
            }
            fallen = {
                str(model): (float(shift), int(left), int(waited))
                for model, (shift, left, waited) in state.get("fallen", {}).items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"state of change detection: {type(error).__name__}: {error}") from None
        self.found, self._fallen, self._seen, self._detectors = found, fallen, {}, {}
        if self.active:
            for model, seen in kept.items():
                self._start(model, seen)

    def _start(self, model: str, seen: list[Seen]) -> None:
        self.reset(model)
        self._seen[model] = list(seen)
        for step in seen:
            self._feed(model, step)

    def _feed(self, model: str, step: Seen) -> bool:
        detector = self._detectors.get(model)
        if detector is None:
            detector = self._detectors[model] = self._make()
        if isinstance(detector, ShiryaevRoberts):
            fired = detector.update(step.gain, step.mean, step.noise + step.variance)
        else:
            detector.update(step.residual)
            fired = bool(detector.drift_detected)
        return fired and len(self._seen[model]) >= self.config.least

    def _make(self) -> Any:
        config = self.config
        if config.detector == "shiryaev-roberts":
            return ShiryaevRoberts(config.every, config.tolerance)
        if config.detector == "adwin":
            return self._module.ADWIN(delta=config.confidence, clock=1, grace_period=config.least)
        return self._module.PageHinkley(
            min_instances=config.least, delta=config.delta, threshold=config.threshold, alpha=1.0
        )


def since(seen: Sequence[Seen]) -> Change:
    """Since when a model's gains are not what was expected, and by how much.

    Args:
        seen: its steps in order, at least one.
    """
    best, start, total = -1.0, len(seen) - 1, 0.0
    for i in range(len(seen) - 1, -1, -1):
        total += seen[i].residual
        score = total * total / (len(seen) - i)
        if score > best:
            best, start = score, i
    after = list(seen[start:])
    off = sum(step.weight * (step.gain - step.mean) for step in after)
    shift = off / (sum(step.weight for step in after) + after[-1].noise / SHIFT_SD**2)
    return Change(shift, after)


def _step(entry: Sequence[Any]) -> Seen:
    group, gain, weight, mean, variance, noise = entry
    return Seen(tuple(map(str, group)), float(gain), float(weight), float(mean), float(variance), float(noise))
