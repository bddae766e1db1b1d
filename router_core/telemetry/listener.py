"""A step log that passes everything on to the one behind it and tells spans, metrics and log lines of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from steproute.accounts import Accounts
from steproute.decision import Decision
from steproute.errors import BudgetExceeded, NoEligibleModel
from steproute.faults import Faults
from steproute.ledger import Evidence, Outcome, Task
from steproute.policies.base import Feedback
from steproute.progress import Progress
from steproute.steplog import StepLog
from steproute.taskstate import Made, OpenStep, TaskState
from steproute.telemetry import Telemetry


class Channel(Protocol):
    """One kind of signal."""

    def decided(self, made: Made, pinned: bool, began_ns: int, seconds: float) -> None:
        """A decision was made; it began at that Unix time in nanoseconds and took so long."""
        ...

    def observed(
        self,
        decision: Decision,
        outcome: Outcome,
        model: str,
        spent: Mapping[str, float],
        progress: Progress,
        output: str,
        answers: bool,
    ) -> None:
        """A call was paid for and taken in."""
        ...

    def ended(
        self, task: str, reward: float | None, idle: bool, spent: Mapping[str, float], accounts: Accounts
    ) -> None:
        """A task ended."""
        ...

    def refused(self, task: str, role: str, error: BudgetExceeded | NoEligibleModel) -> None:
        """No model could be chosen."""
        ...

    def failed(self, where: str, error: Exception) -> None:
        """The router failed inside and its host went on."""
        ...

    def close(self) -> None:
        """Give the last signals and let go."""
        ...


class Listener:
    """See `steproute.steplog.StepLog`. One per router; without a log behind it, nothing is known from before."""

    def __init__(self, settings: Telemetry, told: StepLog | None, accounts: Accounts, faults: Faults):
        """Open the channels.

        Raises:
            ConfigError: a port is taken, or a file cannot be written.
            ImportError: the extra `telemetry` is missing.
        """
        self._told, self._accounts, self._faults = told, accounts, faults
        self.channels: list[Channel] = []
        try:
            if settings.spans:
                from steproute.telemetry.spans import Spans

                self.channels.append(Spans(settings.tracer_provider, settings.prompts))
            if settings.metrics:
                from steproute.telemetry.metrics import Metrics

                self.channels.append(Metrics(settings.registry, settings.address, settings.port))
            if settings.logs:
                from steproute.telemetry.events import Events

                self.channels.append(Events(settings.logs, settings.prompts))
        except BaseException:
            for channel in self.channels:
                channel.close()
            raise
        faults.listener = self.failed
        self._began = self._began_ns = 0
        self._paid: tuple[str, str, Mapping[str, float]] | None = None
        """Call id, model and spending of the outcome that is being taken in."""

    def _tell(self, tell: Callable[[Channel], None]) -> None:
        for channel in self.channels:
            with self._faults.kept("telemetry"):
                tell(channel)

    # --- what is told ----------------------------------------------------------------------------------------

    def start(self, parts: tuple[Any, ...]) -> None:
        """Pass the router's parts on to a store."""
        if self._told is not None and hasattr(self._told, "start"):
            self._told.start(parts)

    def tick(self) -> None:
        """See `StepLog.tick`; a decision's time counts from here."""
        self._began, self._began_ns = time.perf_counter_ns(), time.time_ns()
        if self._told is not None:
            self._told.tick()

    def opened(self, task: Task) -> None:
        """See `StepLog.opened`."""
        if self._told is not None:
            self._told.opened(task)

    def decided(self, made: Made, pinned: bool) -> None:
        """See `StepLog.decided`."""
        try:
            if self._told is not None:
                self._told.decided(made, pinned)
        finally:
            seconds = (time.perf_counter_ns() - self._began) / 1e9
            self._tell(lambda channel: channel.decided(made, pinned, self._began_ns, seconds))

    def refused(self, task: str, role: str, error: BudgetExceeded | NoEligibleModel) -> None:
        """See `StepLog.refused`."""
        try:
            if self._told is not None:
                self._told.refused(task, role, error)
        finally:
            self._tell(lambda channel: channel.refused(task, role, error))

    def billed(self, decision: Decision, outcome: Outcome, model: str, spent: Mapping[str, float]) -> None:
        """See `StepLog.billed`."""
        self._paid = (outcome.call_id, model, dict(spent))
        if self._told is not None:
            self._told.billed(decision, outcome, model, spent)

    def observed(self, decision: Decision, outcome: Outcome, progress: Progress, output: str, answers: bool) -> None:
        """See `StepLog.observed`."""
        try:
            if self._told is not None:
                self._told.observed(decision, outcome, progress, output, answers)
        finally:
            model = decision.model.name
            spent: Mapping[str, float] = {}
            if self._paid is not None and self._paid[0] == outcome.call_id:
                _, model, spent = self._paid
            self._tell(lambda channel: channel.observed(decision, outcome, model, spent, progress, output, answers))

    def reported(self, task: str, decision: str, evidence: Sequence[Evidence]) -> None:
        """See `StepLog.reported`."""
        if self._told is not None:
            self._told.reported(task, decision, evidence)

    def learnt(self, item: OpenStep, feedback: Feedback) -> None:
        """See `StepLog.learnt`."""
        if self._told is not None:
            self._told.learnt(item, feedback)

    def ended(self, task: str, reward: float | None, idle: bool, spent: Mapping[str, float]) -> None:
        """See `StepLog.ended`."""
        try:
            if self._told is not None:
                self._told.ended(task, reward, idle, spent)
        finally:
            self._tell(lambda channel: channel.ended(task, reward, idle, spent, self._accounts))

    def failed(self, error: Exception, where: str) -> None:
        """A fault was kept from the host; see `Faults.listener`."""
        for channel in self.channels:
            channel.failed(where, error)

    def commit(self) -> None:
        """See `StepLog.commit`."""
        if self._told is not None:
            self._told.commit()

    def close(self) -> None:
        """See `StepLog.close`."""
        try:
            if self._told is not None:
                self._told.close()
        finally:
            self._tell(lambda channel: channel.close())
            self._faults.listener = None

    # --- what is asked ---------------------------------------------------------------------------------------

    def recover(self, task: Task, known: TaskState | None) -> TaskState | None:
        """See `StepLog.recover`."""
        return None if self._told is None else self._told.recover(task, known)

    def may_end(self, task: str) -> bool:
        """See `StepLog.may_end`."""
        return True if self._told is None else self._told.may_end(task)

    def finished(self, task: str) -> bool:
        """See `StepLog.finished`."""
        return False if self._told is None else self._told.finished(task)

    def heard(self, task: str, call_id: str) -> bool:
        """See `StepLog.heard`."""
        return False if self._told is None else self._told.heard(task, call_id)
