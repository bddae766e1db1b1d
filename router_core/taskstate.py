"""What the router keeps about a task while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from steproute.decision import Decision
from steproute.ledger import Ledger, Outcome, Step
from steproute.models import Needs
from steproute.policies.base import StepContext
from steproute.progress import Progress, ProgressTracker, Regime

KEPT_DECISIONS = 1000
"""Decisions per task that stay idempotent; older ones are forgotten."""


NOTHING = Progress(0.0, Regime.INVALID, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class StepRequest:
    """What the host asked for, with its defaults filled in. Not to be changed; freezing it would cost more than to make it."""

    role: str
    key: str
    attempt: int
    prompt_tokens: int
    max_tokens: int | None
    timeout_s: float | None
    cached_tokens: Mapping[str, int]
    """Per model: part of the prompt it is expected to have in its cache."""
    needs: Needs
    exclude: Mapping[str, str]
    """Names not to use, each with the reason."""
    text: str | None
    pin: str | None
    can_stop: bool
    extra: Mapping[str, Any]


@dataclass(slots=True)
class Made:
    """A decision with what it was made from."""

    decision: Decision
    context: StepContext
    moment: int
    """Count of the task's events when it was made."""
    answered: bool = False
    """True once a call for it returned; what follows is billed, not learnt."""


@dataclass(slots=True)
class OpenStep:
    """A call that was made and has not been learnt from yet."""

    decision: Decision
    context: StepContext
    step: Step
    index: int
    """Which candidate answered; −1 when it was none of them."""
    spent: dict[str, float]
    position: int = 0
    """Index of the step in the ledger."""
    before: float = 0.0
    """Progress just before the step."""
    moment: int = 0
    """Count of the task's events when its call was observed."""
    due: bool = False
    """True once a step that was decided later has been observed: no evidence is awaited any more."""


@dataclass(slots=True)
class TaskState:
    """A task in progress: its ledger, its progress, and the keys that make decide and observe idempotent."""

    ledger: Ledger
    tracker: ProgressTracker
    touched: float
    nameless: bool = True
    """True while nothing but the task's id is known."""
    made: dict[tuple[str, int], Made] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    """Step → models not to use again, each with the reason."""
    billed: set[str] = field(default_factory=set)
    waiting: list[OpenStep] = field(default_factory=list)
    learnt: list[OpenStep] = field(default_factory=list)
    """Steps learnt from, for the credit at the end; the latest `KEPT_DECISIONS`."""
    models: list[str] = field(default_factory=list)
    recorded: dict[str, int] = field(default_factory=dict)
    """Decision id → index of its step in the ledger."""
    baseline: float = 0.0
    """g at the latest decide, observe or report: what the next outcome is measured from."""
    latest: Progress = NOTHING
    """Progress as it was last computed."""
    moments: int = 0

    def progress(self) -> Progress:
        """g(s) of the ledger now."""
        self.latest = self.tracker.update(self.ledger)
        return self.latest

    def default_key(self, role: str) -> str:
        """Key of a step the host did not name: the number of steps; a second role that asks before the first was
        answered gets a key of its own."""
        key = str(len(self.ledger.steps))
        made = self.made.get((key, self.attempts.get(key, 1)))
        return key if made is None or made.decision.role == role else f"{key}:{role}"

    def keep(self, made: Made) -> None:
        """Remember a decision under its step and attempt."""
        key = (made.decision.step, made.decision.attempt)
        self.made.pop(key, None)
        self.made[key] = made
        while len(self.made) > KEPT_DECISIONS:
            del self.made[next(iter(self.made))]

    def record(self, decision: Decision, outcome: Outcome, output: str, model: str) -> int:
        """Put the step into the ledger, or complete the one that stands there under the decision's id.

        Returns:
            Index of the step.
        """
        steps = self.ledger.steps
        index = self.find(decision)
        if index is None:
            steps.append(
                Step(id=decision.id, role=decision.role, model=model, output=printable(output), outcome=outcome)
            )
            index = len(steps) - 1
        else:
            step = steps[index]
            if step.outcome is not outcome:
                outcome.evidence[:0] = [item for item in step.outcome.evidence if item not in outcome.evidence]
            step.outcome, step.model = outcome, model
            step.output = printable(output) or step.output
            self.tracker.rewind(index)
        self.recorded[decision.id] = index
        return index

    def find(self, decision: Decision) -> int | None:
        """Index of a decision's step in the ledger; looks where it was recorded, then among the last 8."""
        steps = self.ledger.steps
        index = self.recorded.get(decision.id)
        if index is not None and index < len(steps) and steps[index].id == decision.id:
            return index
        for back, step in enumerate(reversed(steps[-8:]), start=1):
            if step.id == decision.id:
                return len(steps) - back
        return None

    def fail(self, step: str, attempt: int, model: str, reason: str) -> None:
        """Open the next attempt of a step, without that model."""
        self.failed.setdefault(step, {})[model] = reason
        self.attempts[step] = max(self.attempts.get(step, 1), attempt + 1)

    def succeed(self, made: Made) -> None:
        """A call for this attempt returned: it is the one that answers the step, unless a later one is under way."""
        made.answered = True
        key, attempt = made.decision.step, made.decision.attempt
        if self.attempts.get(key, 1) == attempt + 1 and (key, attempt + 1) not in self.made:
            self.attempts[key] = attempt

    def reservations(self) -> list[str]:
        """Keys of the reservations made for its calls, newest first; some are settled."""
        return [made.decision.reservation for made in reversed(self.made.values()) if made.decision.reservation]


def printable(text: str) -> str:
    """Text that JSON can carry: half of a surrogate pair, as a cut stream leaves it, becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
