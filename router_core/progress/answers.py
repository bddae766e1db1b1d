"""Progress where the product is a text: a mathematical answer, or a passage that cites what was retrieved."""

from __future__ import annotations

from dataclasses import dataclass

from steproute.ledger import Evidence, Ledger, Step
from steproute.progress.score import Regime
from steproute.progress.views import Memory, Signals, change_quality, subtask_share


@dataclass(frozen=True)
class MathView:
    """Mathematics: is there an answer of the right form, do attempts agree on it, does it match a check.

    Reads evidence of the sources `form` (an answer could be read), `consistency` (share of the attempts that agree with
    the latest one; count 0 = only one so far) and `match` (a check a user has: a substitution, a known value). Agreement
    alone never completes a task: models also agree on wrong answers.
    """

    domain: str = "math"

    def read(self, ledger: Ledger, step: Step, memory: Memory) -> Signals:
        """See `View.read`."""
        found = _found(step)
        new = memory.is_new(step.output or step.outcome.error or "")
        form, consistency, match = found.get("form"), found.get("consistency"), found.get("match")
        regime, r = memory.last.regime, memory.last.r
        if step.outcome.error is None and found:
            if form is not None and form.score < 1:
                regime, r = Regime.INVALID, 0.0
            elif match is not None:
                right = match.score >= 1
                regime, r = (Regime.COMPLETE if right else Regime.RECOVERABLE), match.score
            elif consistency is not None:
                regime, r = Regime.PARTIAL, consistency.score
            else:
                regime, r = Regime.PARTIAL, 0.5
        return _with_subtasks(ledger, memory, regime, r, new)


@dataclass(frozen=True)
class RetrievalView:
    """Answers from retrieved passages: how much of the question the evidence covers, and do the citations hold.

    Reads evidence of the sources `coverage` (share of what must be answered that is), `citation_recall` (share of the
    sentences their passages support) and `citation_precision` (share of the citations that are needed).
    """

    domain: str = "retrieval"
    complete: float = 0.95
    """Coverage and citation recall from which the answer counts as complete."""

    def read(self, ledger: Ledger, step: Step, memory: Memory) -> Signals:
        """See `View.read`."""
        found = _found(step)
        new = memory.is_new(step.output or step.outcome.error or "")
        coverage, recall, precision = (
            found[name].score if name in found else None
            for name in ("coverage", "citation_recall", "citation_precision")
        )
        regime, r = memory.last.regime, memory.last.r
        if step.outcome.error is None and (coverage is not None or recall is not None):
            parts = [part for part in (coverage, recall) if part is not None]
            support = min(parts)
            r = 0.9 * sum(parts) / len(parts) + 0.1 * (precision if precision is not None else support)
            if support >= self.complete:
                regime = Regime.COMPLETE
            else:
                regime = Regime.PARTIAL if support > 0 else Regime.RECOVERABLE
        elif step.outcome.error is None:
            regime = Regime(max(regime, Regime.RECOVERABLE))
        return _with_subtasks(ledger, memory, regime, r, new)


def _found(step: Step) -> dict[str, Evidence]:
    return {item.source: item for item in step.outcome.evidence if item.count > 0}


def _with_subtasks(ledger: Ledger, memory: Memory, regime: Regime, r: float, new: bool) -> Signals:
    share = subtask_share(ledger)
    if share is not None:
        r = (r + share) / 2
        if share < 1:
            regime = Regime(min(regime, Regime.PARTIAL))
    return Signals(regime, r, change_quality(memory.last, regime, r, new))
