"""Who spent what: exact sums per task, reservations of calls in flight, and the long-run queues."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from steproute.budget import CALLS, Budget, advance_queue
from steproute.errors import BudgetExceeded

NANO = 10**9
"""Amounts are kept as integers in billionths of the unit, so that sums are exact."""


@dataclass(slots=True)
class Spending:
    """A task's spending per resource, in the resource's own unit."""

    spent: Mapping[str, float]
    reserved: Mapping[str, float]
    queues: Mapping[str, float]


@dataclass(slots=True)
class _Account:
    parent: str | None = None
    spent: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, int] = field(default_factory=dict)
    counted: dict[str, int] | None = None
    """Spending that is in the queues already, once the task has ended; None = it never has."""
    unused: dict[str, float] = field(default_factory=dict)
    """Part of the target that was not spent when the task ended, for spending that comes later."""


@dataclass(slots=True)
class _Reservation:
    task: str
    amounts: dict[str, int]
    expires: float
    charged: tuple[_Account, ...]


class Accounts:
    """Reservations are atomic, amounts exact, a child task's spending counts for its parents. Safe between threads."""

    def __init__(self, budget: Budget, clock: Callable[[], float], remember: int = 1000):
        """Open the books.

        Args:
            budget: limits and targets.
            clock: gives the time in seconds.
            remember: how many ended tasks are kept for outcomes that arrive late.
        """
        self.budget = budget
        self.limits = budget.limits()
        self.queues: dict[str, float] = {name: 0.0 for name, limit in self.limits.items() if limit.target is not None}
        self.hard: dict[str, int] = {
            name: round(limit.limit * NANO)
            for name, limit in self.limits.items()
            if limit.hard and limit.limit is not None
        }
        self._clock, self._remember = clock, remember
        self._open: dict[str, _Account] = {}
        self._closed: OrderedDict[str, _Account] = OrderedDict()
        self._reservations: dict[str, _Reservation] = {}
        self._keys = count(1)
        self._lock = threading.RLock()

    def open(self, task: str, parent: str | None = None, resume: bool = False) -> None:
        """Make the account of a task. Opening an open one changes nothing, but a parent it lacked is filled in.

        Args:
            task: its id.
            parent: id of the task that pays too; a link that would close a circle is ignored.
            resume: True = go on with what the task had spent when it ended.
        """
        with self._lock:
            account = self._open.get(task)
            if account is None:
                ended = self._closed.pop(task, None)
                account = ended if ended is not None and resume else _Account()
                self._open[task] = account
            if account.parent is None and parent is not None and task not in self._ancestry(parent):
                account.parent = parent
                for above in self._line(parent):
                    _add(above.spent, account.spent)

    def close(self, task: str) -> Mapping[str, float]:
        """End a task: free its reservations, advance the queues by what it spent, and return that spending."""
        with self._lock:
            for key in [key for key, item in self._reservations.items() if item.task == task]:
                self._release(key)
            account = self._open.pop(task, None)
            if account is None:
                return {}
            spent = _units(account.spent)
            if account.parent is None and account.counted is None:
                for name, queue in self.queues.items():
                    limit = self.limits[name]
                    target = (limit.target or 0.0) * (1.0 if limit.per == "task" else spent.get(CALLS, 0.0))
                    self.queues[name] = advance_queue(queue, spent.get(name, 0.0), target)
                    account.unused[name] = max(0.0, target - queue - spent.get(name, 0.0))
            elif account.parent is None:
                before = _units(account.counted or {})
                self._overrun(account, {name: amount - before.get(name, 0.0) for name, amount in spent.items()})
            account.counted = dict(account.spent)
            self._closed[task] = account
            while len(self._closed) > self._remember:
                self._closed.popitem(last=False)
            return spent

    def restore(self, task: str, parent: str | None, spent: Mapping[str, int]) -> None:
        """Open the account of a task that ran before, with what it and its children had spent, in nano-units."""
        with self._lock:
            self._open[task] = _Account(parent, dict(spent))

    def totals(self, task: str) -> list[tuple[str, Mapping[str, int]]]:
        """Spent nano-units of every open account that pays for a task, itself first."""
        with self._lock:
            return [(name, self._open[name].spent) for name in self._ancestry(task) if name in self._open]

    def spending(self, task: str) -> Spending:
        """What the task and its children spent and hold in reserve."""
        with self._lock:
            self._expire()
            return self._spending(self._open.get(task))

    def pressure(self, task: str) -> Spending:
        """Spending of the topmost task that pays for this one: what a limit per task is measured against."""
        with self._lock:
            self._expire()
            line = self._line(task)
            return self._spending(line[-1] if line else None)

    def refusals(self, task: str, worst: Sequence[Mapping[str, float]]) -> list[BudgetExceeded | None]:
        """Per worst case: None if it stays within every hard limit of the task and its parents, else the error to raise."""
        with self._lock:
            self._expire()
            line = self._line(task)
            found: list[BudgetExceeded | None] = [None] * len(worst)
            for name, limit in self.hard.items() if line else ():
                room = min(limit - account.spent.get(name, 0) - account.reserved.get(name, 0) for account in line)
                for i, amounts in enumerate(worst):
                    amount = amounts.get(name)
                    if amount is not None and amount * NANO < room - 1:  # the usual case, without the exact conversion
                        continue
                    if found[i] is None and not _fits_nano(None if amount is None else _nano(amount), room):
                        found[i] = self._refusal(task, line, self._held(amounts, amounts))
            return found

    def reserve(self, task: str, amounts: Mapping[str, float], worst: Mapping[str, float]) -> str:
        """Hold the amounts of a call in flight: the worst case of hard-limited resources, the expectation of others.

        Returns:
            The reservation's key, to be settled by `settle`.

        Raises:
            BudgetExceeded: it does not fit (any more).
        """
        held = self._held(amounts, worst)
        with self._lock:
            self._expire()
            line = self._line(task)
            refusal = self._refusal(task, line, held)
            if refusal is not None:
                raise refusal
            key = f"r{next(self._keys)}"
            charged = tuple(line)
            for account in charged:
                _add(account.reserved, held)
            self._reservations[key] = _Reservation(task, held, self._clock() + self.budget.lease_s, charged)
            return key

    def holds(self, key: str) -> bool:
        """Whether a reservation is still held: not settled, not released, not past its lease."""
        with self._lock:
            self._expire()
            return key in self._reservations

    def release(self, key: str | None) -> None:
        """Free a reservation without spending; an unknown or expired one is no error."""
        with self._lock:
            if key is not None:
                self._release(key)

    def settle(self, task: str, key: str | None, spent: Mapping[str, float]) -> None:
        """Replace a reservation by what was really spent. An expired or unknown reservation is settled all the same.

        Spending of a task that has ended still counts for its open parents, or else for the long-run queues.
        """
        amounts = {name: round(amount * NANO) for name, amount in spent.items()}
        with self._lock:
            if key is not None:
                self._release(key)
            for name in self._ancestry(task):
                account = self._open.get(name) or self._closed.get(name)
                if account is not None:
                    _add(account.spent, amounts)
                if account is None or (name not in self._open and account.parent is None):
                    self._overrun(account, spent)
                if account is not None and name not in self._open:
                    account.counted = dict(account.spent)

    def _spending(self, account: _Account | None) -> Spending:
        if account is None:
            return Spending({}, {}, dict(self.queues))
        return Spending(_units(account.spent), _units(account.reserved), dict(self.queues))

    def _line(self, task: str) -> list[_Account]:
        """The open accounts that pay for a task, itself first; an ended one in between is passed over."""
        account = self._open.get(task)
        if account is not None and account.parent is None:
            return [account]
        return [self._open[name] for name in self._ancestry(task) if name in self._open]

    def _ancestry(self, task: str) -> list[str]:
        names: list[str] = []
        name: str | None = task
        while name is not None and name not in names:
            names.append(name)
            account = self._open.get(name) or self._closed.get(name)
            name = account.parent if account is not None else None
        return names

    def _held(self, amounts: Mapping[str, float], worst: Mapping[str, float]) -> dict[str, int]:
        held = {}
        for name in self.limits:
            amount = (worst if name in self.hard else amounts).get(name)
            if amount is not None:
                held[name] = _nano(amount)
        return held

    def _refusal(self, task: str, line: Sequence[_Account], asked: Mapping[str, int]) -> BudgetExceeded | None:
        for account in line:
            for name, limit in self.hard.items():
                amount = asked.get(name)
                spent, reserved = account.spent.get(name, 0), account.reserved.get(name, 0)
                if not _fits_nano(amount, limit - spent - reserved):
                    payer = next(key for key in self._ancestry(task) if self._open.get(key) is account)
                    held = (limit / NANO, spent / NANO, reserved / NANO, (amount or 0) / NANO)
                    return BudgetExceeded(name, *held, task, payer)
        return None

    def _release(self, key: str) -> None:
        held = self._reservations.pop(key, None)
        if held is not None:
            for account in held.charged:
                _add(account.reserved, held.amounts, -1)

    def _expire(self) -> None:
        now = self._clock()
        while self._reservations:  # in order of expiry: the lease is the same for all
            key = next(iter(self._reservations))
            if self._reservations[key].expires > now:
                break
            self._release(key)

    def _overrun(self, account: _Account | None, spent: Mapping[str, float]) -> None:
        """Spending after the end: what the task's target left unused covers it first, the rest goes into the queues."""
        unused = account.unused if account is not None else {}
        for name in self.queues:
            amount = spent.get(name, 0.0)
            covered = min(unused.get(name, 0.0), amount)
            unused[name] = unused.get(name, 0.0) - covered
            self.queues[name] += amount - covered


def _nano(amount: float) -> int:
    return math.ceil(round(amount * NANO, 3))  # rounded first: .1 + .2 is no hair above .3


def _fits_nano(amount: int | None, room: int) -> bool:
    """Free is always within a limit; an amount nobody knows is at least something."""
    return amount == 0 or (room >= 1 if amount is None else amount <= room)


def _add(totals: dict[str, int], amounts: Mapping[str, int], sign: int = 1) -> None:
    for name, amount in amounts.items():
        totals[name] = totals.get(name, 0) + sign * amount


def _units(amounts: Mapping[str, int]) -> dict[str, float]:
    return {name: amount / NANO for name, amount in amounts.items()}
