"""Budgets: limits per task, long-run targets with virtual queues, and the formulas behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from steproute.settings import Settings

BUILT_IN = ("usd", "energy_j", "seconds", "tokens")
MAX_EXPONENT = 50.0


class Limit(Settings):
    """What one resource may cost: per task, in the long run, and what a unit is worth."""

    limit: float | None = Field(default=None, gt=0)
    """Most a task may spend; None = no limit."""
    hard: bool = True
    """Hard: never passed, filtered before scoring. Soft: a rising penalty."""
    target: float | None = Field(default=None, gt=0)
    """Long-run average per task, held by a virtual queue."""
    value: float = Field(default=0.0, ge=0)
    """Stated worth of one unit, in units of progress."""


def _as_limit(value: Any) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and value > 0 and math.isfinite(value):
        return Limit(limit=float(value))
    if value is not None and not isinstance(value, (Limit, Mapping)):
        raise ValueError(f"seen {value!r}; allowed: a number above 0, a Limit, or None for no limit")
    return value


class Budget(Settings):
    """Limits per resource. `Budget(usd=.05)` is a hard limit of $.05 per task; give a `Limit` for more.

    Besides `usd`, `energy_j`, `seconds` and `tokens`, any resource of the user's own may be named in `other`.
    """

    usd: Limit | None = None
    energy_j: Limit | None = None
    seconds: Limit | None = None
    tokens: Limit | None = None
    other: dict[str, Limit] = Field(default_factory=dict)
    lease_s: float = Field(default=900.0, gt=0)
    """A reservation nobody settles is freed after this many seconds."""

    def __init__(
        self,
        *,
        usd: Limit | float | None = None,
        energy_j: Limit | float | None = None,
        seconds: Limit | float | None = None,
        tokens: Limit | float | None = None,
        other: Mapping[str, Limit | float] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(usd=usd, energy_j=energy_j, seconds=seconds, tokens=tokens, other=other or {}, **more)

    @field_validator(*BUILT_IN, mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        return _as_limit(value)

    @field_validator("other", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        for name in value:
            if name in BUILT_IN:
                raise ValueError(f"{name} has a field of its own; allowed: names other than {', '.join(BUILT_IN)}")
        return {name: _as_limit(item) for name, item in value.items()}

    def limits(self) -> dict[str, Limit]:
        """Every resource that is limited, targeted or valued."""
        named = {name: getattr(self, name) for name in BUILT_IN}
        return {name: limit for name, limit in {**named, **self.other}.items() if limit is not None}


def penalty_weight(spent: float, cost: float, limit: float) -> float:
    """ProgRouter's per-task coefficient exp((cost + spent) / limit), its exponent clamped at 50."""
    return math.exp(min((cost + spent) / limit, MAX_EXPONENT))


def advance_queue(queue: float, spent: float, target: float) -> float:
    """ProgRouter's virtual queue: Q ← max(0, Q + spent − target)."""
    return max(0.0, queue + spent - target)
