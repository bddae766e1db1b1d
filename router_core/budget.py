"""Budgets: limits per task, long-run targets with virtual queues, and the formulas behind them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator

from steproute.errors import ConfigError
from steproute.settings import Settings

BUILT_IN = ("usd", "energy_j", "seconds", "tokens", "carbon_g")
LATE = "late"
"""Resource of a `Tail`: 1 for what took too long."""
CALLS = "calls"
"""Count of calls, kept where a target is an average per call."""
MAX_EXPONENT = 50.0


class Limit(Settings):
    """What one resource may cost: per task, in the long run, and what a unit is worth."""

    limit: float | None = Field(default=None, gt=0)
    """Most a task may spend; None = no limit."""
    hard: bool = True
    """Hard: never passed, filtered before scoring. Soft: a rising penalty."""
    target: float | None = Field(default=None, gt=0)
    """Long-run average per task, held by a virtual queue."""
    per: Literal["task", "call"] = "task"
    """What the target is an average over."""
    value: float = Field(default=0.0, ge=0)
    """Stated worth of one unit, in units of progress."""
    scale: float | None = Field(default=None, gt=0)
    """Amount that counts as one in the queue's price, which is Q·c/scale²; None = the target."""

    @property
    def unit(self) -> float:
        """Amount that counts as one in the queue's price."""
        return self.scale or self.target or 1.0


class Tail(Settings):
    """A bound on how often latency may pass an objective: `share` 0.05 holds the 95th percentile at `slo_s`.

    It is a resource like any other, `late`: its target is the share, its queue advances by 1[latency > slo_s] − share.
    """

    slo_s: float = Field(gt=0)
    """Service level objective in seconds."""
    share: float = Field(default=0.05, gt=0, lt=1)
    per: Literal["task", "call"] = "call"
    """Whose latency: of one call, or the seconds of a task's calls together."""
    spread: float = Field(default=0.5, gt=0)
    """Standard deviation of log(latency) around its expectation before calls have shown it."""

    @property
    def limit(self) -> Limit:
        """The resource `late`."""
        return Limit(target=self.share, per=self.per, scale=1.0)


class Grid(Settings):
    """Carbon intensity of the electricity over time, in grams per kilowatt-hour."""

    g_per_kwh: float | list[tuple[float, float]]
    """One number, or pairs (Unix time in seconds, g/kWh) in rising order: each holds until the next, the first before, the
    last for ever."""

    @field_validator("g_per_kwh")
    @classmethod
    def _series(cls, value: Any) -> Any:
        points = [(0.0, value)] if isinstance(value, float) else value
        moments = [moment for moment, _ in points]
        if not points or any(grams < 0 for _, grams in points) or moments != sorted(set(moments)):
            raise ValueError("allowed: a number of 0 or more, or pairs (time, number) in rising order of time")
        return value

    def at(self, moment: float) -> float:
        """Grams per kilowatt-hour at a moment (Unix time)."""
        if isinstance(self.g_per_kwh, float):
            return self.g_per_kwh
        index = bisect_right(self.g_per_kwh, moment, key=lambda point: point[0])
        return self.g_per_kwh[max(index - 1, 0)][1]

    def grams(self, joules: float, moment: float) -> float:
        """Grams of CO₂ for so many joules at a moment."""
        return joules / 3.6e6 * self.at(moment)


def _as_limit(value: Any) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and value > 0 and math.isfinite(value):
        return Limit(limit=float(value))
    if value is not None and not isinstance(value, (Limit, Mapping)):
        raise ValueError(f"seen {value!r}; allowed: a number above 0, a Limit, or None for no limit")
    return value


class Budget(Settings):
    """Limits per resource. `Budget(usd=.05)` is a hard limit of $.05 per task; give a `Limit` for more.

    Besides `usd`, `energy_j`, `seconds`, `tokens` and `carbon_g`, any resource of the user's own may be named in `other`.
    """

    usd: Limit | None = None
    energy_j: Limit | None = None
    seconds: Limit | None = None
    tokens: Limit | None = None
    carbon_g: Limit | None = None
    """Grams of CO₂, which follow from joules; needs `grid`."""
    grid: Grid | None = None
    tail: Tail | None = None
    """How often latency may pass an objective."""
    vram_gb: float | dict[str, float] | None = None
    """Memory for models' weights, of all together or per server: a capacity, not a budget. None = no bound is known."""
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
        carbon_g: Limit | float | None = None,
        other: Mapping[str, Limit | float] | None = None,
        **more: Any,
    ) -> None:
        given = {"usd": usd, "energy_j": energy_j, "seconds": seconds, "tokens": tokens, "carbon_g": carbon_g}
        super().__init__(**given, other=other or {}, **more)
        if self.carbon_g is not None and self.grid is None:
            raise ConfigError("Budget: carbon_g: needs `grid`, the grams of CO₂ per kilowatt-hour")

    @field_validator("grid", mode="before")
    @classmethod
    def _grid(cls, value: Any) -> Any:
        return value if value is None or isinstance(value, (Grid, Mapping)) else Grid(g_per_kwh=value)

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
            if name in (LATE, CALLS):
                raise ValueError(f"{name} is counted by the router itself; for latency see `tail`")
            if name in BUILT_IN:
                raise ValueError(f"{name} has a field of its own; allowed: names other than {', '.join(BUILT_IN)}")
        return {name: _as_limit(item) for name, item in value.items()}

    def limits(self) -> dict[str, Limit]:
        """Every resource that is limited, targeted or valued."""
        named = {name: getattr(self, name) for name in BUILT_IN}
        named[LATE] = None if self.tail is None else self.tail.limit
        return {name: limit for name, limit in {**named, **self.other}.items() if limit is not None}


def penalty_weight(spent: float, cost: float, limit: float) -> float:
    """ProgRouter's per-task coefficient exp((cost + spent) / limit), its exponent clamped at 50."""
    return math.exp(min((cost + spent) / limit, MAX_EXPONENT))


def advance_queue(queue: float, spent: float, target: float) -> float:
    """ProgRouter's virtual queue: Q ← max(0, Q + spent − target)."""
    return max(0.0, queue + spent - target)
