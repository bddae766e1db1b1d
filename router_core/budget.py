"""Budgets: limits per task, long-run targets with virtual queues, and reservations of calls in flight."""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from steproute.errors import BudgetExceeded, ConfigError

NANO = 10**9
"""Amounts are kept as integers in billionths of the unit, so that sums are exact."""
BUILT_IN = ("usd", "energy_j", "seconds", "tokens")
MAX_EXPONENT = 50.0


class Limit(BaseModel):
    """What one resource may cost: per task, in the long run, and what a unit is worth."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    limit: float | None = Field(default=None, gt=0)
    """Most a task may spend; None = no limit."""
    hard: bool = True
    """Hard: never passed, filtered before scoring. Soft: a rising penalty."""
    target: float | None = Field(default=None, gt=0)
    """Long-run average per task, held by a virtual queue."""
    value: float = Field(default=0.0, ge=0)
    """Stated worth of one unit, in units of progress."""


class Budget(BaseModel):
    """Limits per resource. `Budget(usd=.05)` is a hard limit of $.05 per task; give a `Limit` for more.

    Besides `usd`, `energy_j`, `seconds` and `tokens`, any resource of the user's own may be named in `other`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    usd: Limit | None = None
    energy_j: Limit | None = None
    seconds: Limit | None = None
    tokens: Limit | None = None
    other: dict[str, Limit] = Field(default_factory=dict)
    lease_s: float = Field(default=900.0, gt=0)
    """A reservation nobody settles is freed after this many seconds."""

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            allowed = {"": list(type(self).model_fields), **{name: list(Limit.model_fields) for name in BUILT_IN}}
            raise ConfigError.from_validation("Budget", error, allowed) from None

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_limits(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        data = dict(data)
        for name in BUILT_IN:
            value = data.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                if not value > 0 or not math.isfinite(value):
                    raise ValueError(f"{name}: seen {value!r}; allowed: a number above 0, or None for no limit")
                data[name] = Limit(limit=float(value))
        return data

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


@dataclass
class _Account:
    spent: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, int] = field(default_factory=dict)
    parent: str | None = None


@dataclass(frozen=True)
class _Reservation:
    task: str
    amounts: dict[str, int]
    expires: float


@dataclass(frozen=True, slots=True)
class Spending:
    """A task's spending per resource, in the resource's own unit."""

    spent: Mapping[str, float]
    reserved: Mapping[str, float]
    queues: Mapping[str, float]


class Accounts:
    """Who spent what: reservations are atomic, amounts exact, a child task's spending counts for its parents."""

    def __init__(self, budget: Budget, clock: Callable[[], float]):
        self.budget = budget
        self.limits = budget.limits()
        self.queues: dict[str, float] = {name: 0.0 for name, limit in self.limits.items() if limit.target is not None}
        self._hard = {
            name: round(limit.limit * NANO)
            for name, limit in self.limits.items()
            if limit.hard and limit.limit is not None
        }
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._reservations: dict[str, _Reservation] = {}
        self._lock = threading.RLock()

    def open(self, task: str, parent: str | None = None) -> None:
        """Make the account of a task; a second call changes nothing."""
        with self._lock:
            self._accounts.setdefault(task, _Account(parent=parent))

    def close(self, task: str) -> Mapping[str, float]:
        """End a task: advance the queues by what it spent itself, forget it, and return that spending."""
        with self._lock:
            account = self._accounts.pop(task, _Account())
            for key in [key for key, item in self._reservations.items() if item.task == task]:
                self._release(key)
            spent = {name: amount / NANO for name, amount in account.spent.items()}
            if account.parent is None:
                for name in self.queues:
                    target = self.limits[name].target
                    assert target is not None
                    self.queues[name] = advance_queue(self.queues[name], spent.get(name, 0.0), target)
            return spent

    def spending(self, task: str) -> Spending:
        """What the task and its children spent and hold in reserve."""
        with self._lock:
            self._expire()
            account = self._accounts.get(task, _Account())
            return Spending(
                {name: amount / NANO for name, amount in account.spent.items()},
                {name: amount / NANO for name, amount in account.reserved.items()},
                dict(self.queues),
            )

    def fits(self, task: str, worst: Mapping[str, float]) -> BudgetExceeded | None:
        """None if the worst case stays within every hard limit of the task and its parents, else the error to raise."""
        with self._lock:
            self._expire()
            return self._refusal(task, {name: round(amount * NANO) for name, amount in worst.items()})

    def reserve(self, task: str, amounts: Mapping[str, float], worst: Mapping[str, float]) -> str:
        """Hold the amounts of a call in flight: the worst case of hard-limited resources, the expectation of others.

        Returns:
            The reservation's id, to be settled by `settle`.

        Raises:
            BudgetExceeded: it does not fit (any more).
        """
        held = {
            name: math.ceil(round((worst if name in self._hard else amounts).get(name, 0.0) * NANO, 3))
            for name in {*amounts, *worst}
        }
        with self._lock:
            self._expire()
            refusal = self._refusal(task, held)
            if refusal is not None:
                raise refusal
            key = uuid.uuid4().hex
            for account in self._lineage(task):
                for name, amount in held.items():
                    account.reserved[name] = account.reserved.get(name, 0) + amount
            self._reservations[key] = _Reservation(task, held, self._clock() + self.budget.lease_s)
            return key

    def settle(self, task: str, key: str | None, spent: Mapping[str, float]) -> None:
        """Replace a reservation by what was really spent. An expired or unknown reservation is settled all the same."""
        with self._lock:
            if key is not None:
                self._release(key)
            self._accounts.setdefault(task, _Account())
            for account in self._lineage(task):
                for name, amount in spent.items():
                    account.spent[name] = account.spent.get(name, 0) + round(amount * NANO)

    def _lineage(self, task: str) -> list[_Account]:
        found, seen = [], set()
        name: str | None = task
        while name is not None and name not in seen and name in self._accounts:
            seen.add(name)
            found.append(self._accounts[name])
            name = self._accounts[name].parent
        return found

    def _refusal(self, task: str, asked: Mapping[str, int]) -> BudgetExceeded | None:
        for account in self._lineage(task):
            for name, limit in self._hard.items():
                spent, reserved = account.spent.get(name, 0), account.reserved.get(name, 0)
                if spent + reserved + asked.get(name, 0) > limit or spent >= limit:
                    return BudgetExceeded(
                        name, limit / NANO, spent / NANO, reserved / NANO, asked.get(name, 0) / NANO, task
                    )
        return None

    def _release(self, key: str) -> None:
        held = self._reservations.pop(key, None)
        if held is None:
            return
        for account in self._lineage(held.task):
            for name, amount in held.amounts.items():
                account.reserved[name] = account.reserved.get(name, 0) - amount

    def _expire(self) -> None:
        now = self._clock()
        for key, held in list(self._reservations.items()):
            if held.expires > now:
                break  # inserted in order of expiry: the lease is the same for all
            self._release(key)
