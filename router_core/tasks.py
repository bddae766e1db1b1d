"""The tasks a router is working on, and what stays of those that ended."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from steproute.accounts import Accounts
from steproute.ledger import Ledger, Task
from steproute.progress import ProgressTracker, View, Weights, view_for
from steproute.steplog import StepLog
from steproute.taskstate import TaskState

MOST_RUNNING = 10_000
"""Tasks on the table, some 13 kB each: beyond, those without a call for the longest end as if their time were up."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A task that ended: call ids already billed, and its state where it may go on."""

    billed: set[str]
    state: TaskState | None
    ran: bool = True
    """False = only a late call of it was ever heard of."""


class TaskTable:
    """Running tasks in the order of their last activity; the caller holds the lock."""

    def __init__(
        self,
        accounts: Accounts,
        views: Mapping[str, View],
        weights: Weights,
        clock: Callable[[], float],
        idle_timeout: float,
        remember: int = 1000,
    ):
        self._accounts, self._views, self._weights = accounts, views, weights
        self._clock, self.idle_timeout, self._remember = clock, idle_timeout, remember
        self._running: OrderedDict[str, TaskState] = OrderedDict()
        self._ended: OrderedDict[str, Ended] = OrderedDict()
        self.log: StepLog | None = None

    def get(self, task: str) -> TaskState | None:
        """A running task."""
        return self._running.get(task)

    def fetch(self, task: str) -> TaskState | None:
        """A running task, also where only the log knows it, or knows more."""
        state = self._running.get(task)
        if self.log is not None:
            found = self.log.recover(Task(id=task), state)
            if found is not None:
                return self.take_over(found)
        return state

    def open(self, ledger: Ledger | Task | str) -> TaskState:
        """The state of a task: the running one, that of a task which only ended by being idle, or a new one.

        A parent that is not running yet is opened too, so that its account sees what its children spend.
        """
        task = Task(id=ledger) if isinstance(ledger, str) else ledger.task if isinstance(ledger, Ledger) else ledger
        state = self._running.get(task.id) or self._resume(task)
        if self.log is not None:
            found = self.log.recover(task, state)
            if found is not None:
                state = self.take_over(found)
        state = state or self._new(task)
        if not isinstance(ledger, str):
            self._describe(state, ledger)
        if task.parent is not None and task.parent != task.id:
            if task.parent not in self._running:
                self.open(task.parent)
            self._accounts.open(task.id, task.parent)
            self.touch(task.parent)
        self.touch(task.id)
        return state

    def touch(self, task: str) -> None:
        """Note that something happened in a task."""
        self._running[task].touched = self._clock()
        self._running.move_to_end(task)

    def idle(self) -> list[str]:
        """Tasks in which nothing has happened for the idle timeout, or that are too many, and no call is in flight."""
        now = self._clock()
        found = []
        crowded = min(len(self._running) - MOST_RUNNING, 2)  # a decision brings one task at most
        for _ in range(len(self._running)):
            task, state = next(iter(self._running.items()))
            if now - state.touched <= self.idle_timeout and crowded <= 0:
                break
            crowded -= 1
            self._running.move_to_end(task)
            if not any(self._accounts.holds(key) for key in state.reservations()):
                found.append(task)
        return found

    def end(self, task: str, resumable: bool) -> TaskState | None:
        """Take a task off the table; None when it is not on it."""
        state = self._running.pop(task, None)
        if state is not None:
            self._ended.pop(task, None)
            self._ended[task] = Ended(state.billed, state if resumable else None)
            while len(self._ended) > self._remember:
                self._ended.popitem(last=False)
        return state

    def finished(self, task: str) -> bool:
        """Whether a task ran here and cannot go on."""
        ended = self._ended.get(task)
        if (ended is None or not ended.ran) and self.log is not None:
            return self.log.finished(task)
        return ended is not None and ended.ran and ended.state is None

    def bill(self, task: str, call_id: str) -> bool:
        """Whether a call is still to be billed; notes that it is. Works for tasks that ended or never ran here, too."""
        state = self._running.get(task)
        if state is not None:
            billed = state.billed
        else:
            billed = self._ended.setdefault(task, Ended(set(), None, ran=False)).billed
            while len(self._ended) > self._remember:
                self._ended.popitem(last=False)
        if call_id in billed or (state is None and self.log is not None and self.log.heard(task, call_id)):
            return False
        billed.add(call_id)
        return True

    def _describe(self, state: TaskState, ledger: Ledger | Task) -> None:
        """Take over the host's ledger, or the description of a task that was known by its id alone."""
        domain = state.ledger.task.domain
        if isinstance(ledger, Ledger):
            state.ledger = ledger
        elif state.nameless:
            state.ledger.task = ledger
        state.nameless = False
        if state.ledger.task.domain != domain:
            state.tracker = self._tracker(state.ledger.task.domain)

    def _resume(self, task: Task) -> TaskState | None:
        ended = self._ended.get(task.id)
        if ended is None or ended.state is None:
            return None
        del self._ended[task.id]
        self._accounts.open(task.id, task.parent, resume=True)
        self._running[task.id] = ended.state
        return ended.state

    def _new(self, task: Task) -> TaskState:
        self._ended.pop(task.id, None)
        self._accounts.open(task.id, task.parent)
        state = self.blank(task)
        self._running[task.id] = state
        if self.log is not None:
            self.log.opened(task)
        return state

    def take_over(self, state: TaskState) -> TaskState:
        """Go on with a task as a log has it."""
        task = state.ledger.task
        self._ended.pop(task.id, None)
        self._accounts.open(task.id, task.parent, resume=True)
        self._running[task.id] = state
        return state

    def adopt(self, state: TaskState, oldest: bool = False) -> None:
        """Put a task on the table whose account is open; `oldest`: nothing has happened in any other for longer."""
        self._running[state.ledger.task.id] = state
        if oldest:
            self._running.move_to_end(state.ledger.task.id, last=False)

    def heard(self, task: str, at: float) -> None:
        """Note that something happened in a task elsewhere."""
        self._running[task].touched = max(self._running[task].touched, at)

    def running(self) -> int:
        """How many tasks are running."""
        return len(self._running)

    def blank(self, task: Task) -> TaskState:
        """A state of a task that is not on the table."""
        return TaskState(Ledger(task=task), self._tracker(task.domain), self._clock())

    def _tracker(self, domain: str) -> ProgressTracker:
        return ProgressTracker(view_for(domain, self._views), self._weights)
