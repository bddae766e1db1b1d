"""What the router keeps about a task while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from steproute.decision import Decision
from steproute.ledger import Ledger, Outcome, Step
from steproute.policies.base import StepContext
from steproute.progress import Progress, ProgressTracker


@dataclass(slots=True)
class OpenStep:
    """A call that was made and has not been learnt from yet."""

    decision: Decision
    context: StepContext
    step: Step
    index: int
    """Which candidate answered; −1 when it was none of them."""
    spent: dict[str, float]


@dataclass(slots=True)
class TaskState:
    """A task in progress: its ledger, its progress, and the keys that make decide and observe idempotent."""

    ledger: Ledger
    tracker: ProgressTracker
    touched: float
    decisions: dict[tuple[str, int], tuple[Decision, StepContext]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    failed: dict[str, list[str]] = field(default_factory=dict)
    billed: set[str] = field(default_factory=set)
    waiting: list[OpenStep] = field(default_factory=list)
    learnt: list[OpenStep] = field(default_factory=list)
    models: list[str] = field(default_factory=list)

    def progress(self) -> Progress:
        """g(s) of the ledger now."""
        return self.tracker.update(self.ledger)

    def record(self, decision: Decision, outcome: Outcome, output: str, model: str) -> Step:
        """Put the step into the ledger, or complete the one the host put there under the decision's id."""
        for step in reversed(self.ledger.steps[-8:]):
            if step.id == decision.id:
                step.outcome, step.model = outcome, model
                step.output = output or step.output
                return step
        step = Step(id=decision.id, role=decision.role, model=model, output=output, outcome=outcome)
        self.ledger.steps.append(step)
        return step

    def fail(self, decision: Decision, model: str) -> None:
        """Open the next attempt of a step, without the model that failed."""
        names: Sequence[str] = self.failed.setdefault(decision.step, [])
        if model not in names:
            self.failed[decision.step].append(model)
        self.attempts[decision.step] = max(self.attempts.get(decision.step, 1), decision.attempt + 1)
