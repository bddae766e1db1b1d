"""Whether calls still take what a model's profile says: a two-sided cumulative sum of log ratios per model and resource.

With x = log(measured / expected) of one call, clipped so that one cold load is no drift, the sums

    up ← max(0, up + x − slack)        down ← max(0, down − x − slack)

stay near 0 while the profile is right and grow by |log factor| − slack a call when it is off by a factor. Past `threshold` the
profile has drifted: from then on forecasts are multiplied by the median ratio since the sum left 0, and the sums start anew
around it (E. S. Page, 1954).
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from steproute.ledger import Outcome
from steproute.models import Model

logger = logging.getLogger("steproute")

SLACK = 0.15
"""A deviation of this much, in logs, is no drift: 16 %."""
THRESHOLD = 2.0
CLIP = 0.7
"""Most that one call counts: a factor of 2."""
KEPT = 25


@dataclass(slots=True)
class _Watch:
    factor: float = 1.0
    up: float = 0.0
    down: float = 0.0
    risen: int = 0
    """Calls since `up` left 0: the change is not older."""
    fallen: int = 0
    """The same of `down`."""
    calls: int = 0
    logs: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))


class Drift:
    """Compares outcomes with profiles."""

    def __init__(self) -> None:
        self._watches: dict[tuple[str, str], _Watch] = {}
        self._profiles: dict[str, int] = {}
        self.found: dict[tuple[str, str], float] = {}
        """(model, `seconds` or `energy_j`) → how many times what the profile says calls take now."""

    def note(self, model: Model, outcome: Outcome) -> None:
        """Take in a call that was answered. Estimated tokens and joules say nothing about the profile.

        Only fitted profiles are watched: one that a user stated may leave out on purpose what calls take besides.
        """
        profile = model.profile
        if not profile.source:
            return
        if self._profiles.get(model.name) != id(profile):  # another profile under the same name
            self._profiles[model.name] = id(profile)
            for resource in ("seconds", "energy_j"):
                self._watches.pop((model.name, resource), None)
                self.found.pop((model.name, resource), None)
        if outcome.tokens_estimated or not outcome.completion_tokens:
            return
        tokens = (outcome.prompt_tokens, outcome.completion_tokens, min(outcome.cached_tokens, outcome.prompt_tokens))
        if outcome.seconds > 0 and profile.decode_tokens_per_s:
            self._watch(model.name, "seconds", outcome.seconds, profile.seconds(*tokens))
        measured = outcome.energy_j is not None and not outcome.energy_source.startswith("estimate")
        if measured and profile.decode_j_per_token:
            self._watch(model.name, "energy_j", outcome.energy_j or 0.0, profile.energy_j(*tokens) or 0.0)

    def correct(self, model: str, cost: dict[str, float], worst: dict[str, float]) -> None:
        """Multiply what a call is expected to take by what was found, in place."""
        for resource in ("seconds", "energy_j"):
            factor = self.found.get((model, resource))
            if factor is not None:
                for amounts in (cost, worst):
                    if resource in amounts:
                        amounts[resource] *= factor

    def state(self) -> list[list[Any]]:
        """Every watch as plain JSON values."""
        rows: list[list[Any]] = []
        for key, watch in self._watches.items():
            sums = (watch.up, watch.down, watch.risen, watch.fallen, watch.calls)
            rows.append([*key, watch.factor, *sums, list(watch.logs), self.found.get(key)])
        return rows

    def load(self, state: list[list[Any]], models: Iterable[Model]) -> None:
        """Take over what `state` gave; watches of models that are not there are left out."""
        self._profiles = {model.name: id(model.profile) for model in models}
        for model, resource, factor, up, down, risen, fallen, calls, logs, found in state:
            if model in self._profiles:
                recent = deque(map(float, logs), maxlen=KEPT)
                self._watches[model, resource] = _Watch(
                    float(factor), float(up), float(down), int(risen), int(fallen), int(calls), recent
                )
                if found is not None:
                    self.found[model, resource] = float(found)

    def _watch(self, model: str, resource: str, measured: float, expected: float) -> None:
        if measured <= 0 or expected <= 0:
            return
        watch = self._watches.setdefault((model, resource), _Watch())
        whole = math.log(measured / expected)
        watch.logs.append(whole)
        watch.calls += 1
        x = max(-CLIP, min(CLIP, whole - math.log(watch.factor)))
        watch.up = max(0.0, watch.up + x - SLACK)
        watch.down = max(0.0, watch.down - x - SLACK)
        watch.risen = watch.risen + 1 if watch.up > 0 else 0
        watch.fallen = watch.fallen + 1 if watch.down > 0 else 0
        if max(watch.up, watch.down) < THRESHOLD:
            return
        since = watch.risen if watch.up > watch.down else watch.fallen
        watch.factor = math.exp(_median(list(watch.logs)[-since:]))
        watch.up, watch.down, watch.risen, watch.fallen = 0.0, 0.0, 0, 0
        self.found[model, resource] = watch.factor
        if abs(math.log(watch.factor)) < SLACK:
            del self.found[model, resource]
            watch.factor = 1.0
        logger.warning(
            "steproute: the profile of %s has drifted: its calls take %.2f times the %s it says (seen after %d calls); "
            "forecasts follow; fit it anew with `steproute models profile`",
            model,
            watch.factor,
            "seconds" if resource == "seconds" else "joules",
            watch.calls,
        )


def _median(values: list[float]) -> float:
    # `statistics` takes longer to import than the rest of this file, and every import of the package would pay for it
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
