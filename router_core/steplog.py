"""The seam between the router and what outlasts it: told of every step, asked for tasks it may know from before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from steproute.decision import Decision
from steproute.errors import BudgetExceeded, NoEligibleModel
from steproute.ledger import Evidence, Outcome, Task
from steproute.policies.base import Feedback
from steproute.progress import Progress
from steproute.taskstate import Made, OpenStep, TaskState


class StepLog(Protocol):
    """Keeps what a router decides, sees and learns. The router's lock is held during every call."""

    def tick(self) -> None:
        """Called first in every `decide`: time to hear of other workers and to write what could not be written."""
        ...

    def recover(self, task: Task, known: TaskState | None) -> TaskState | None:
        """A task as the log has it, where that is newer than what the router knows; None = go on with that."""
        ...

    def may_end(self, task: str) -> bool:
        """Whether a task that is idle here is idle everywhere."""
        ...

    def finished(self, task: str) -> bool:
        """Whether a task the router does not know (any more) was ended by its host."""
        ...

    def heard(self, task: str, call_id: str) -> bool:
        """Whether a call was billed before the router started, or by another worker."""
        ...

    def opened(self, task: Task) -> None:
        """A task begins."""
        ...

    def decided(self, made: Made, pinned: bool) -> None:
        """A decision was made."""
        ...

    def refused(self, task: str, role: str, error: BudgetExceeded | NoEligibleModel) -> None:
        """No model could be chosen; the host is about to hear why."""
        ...

    def billed(self, decision: Decision, outcome: Outcome, model: str, spent: Mapping[str, float]) -> None:
        """A call was paid for; `observed` or `late` follows."""
        ...

    def observed(self, decision: Decision, outcome: Outcome, progress: Progress, output: str, answers: bool) -> None:
        """An outcome was taken in; `answers`: it became the step of the ledger."""
        ...

    def reported(self, task: str, decision: str, evidence: Sequence[Evidence]) -> None:
        """Evidence came after the call."""
        ...

    def learnt(self, item: OpenStep, feedback: Feedback) -> None:
        """Estimator and policy were handed the feedback of a step."""
        ...

    def ended(self, task: str, reward: float | None, idle: bool, spent: Mapping[str, float]) -> None:
        """A task ended."""
        ...

    def commit(self) -> None:
        """Everything told so far is to outlast the process from here on."""
        ...

    def close(self) -> None:
        """Write what is left and let go."""
        ...
