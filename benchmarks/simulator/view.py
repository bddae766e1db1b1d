"""The progress view of the simulated domain: its milestones are the parts of the task."""

from __future__ import annotations

from dataclasses import dataclass

from steproute.ledger import Ledger, Step
from steproute.progress import Regime, Signals
from steproute.progress.views import Memory, change_quality, subtask_share

DOMAIN = "simulated"


@dataclass(frozen=True)
class PartsView:
    """Does the last attempt parse, did it succeed, how many parts are done."""

    domain: str = DOMAIN

    def read(self, ledger: Ledger, step: Step, memory: Memory) -> Signals:
        """See `View.read`."""
        new = memory.is_new(step.output)
        share = subtask_share(ledger) or 0.0
        parses = all(item.score >= 1 for item in step.outcome.evidence if item.source == "syntax")
        if share >= 1:
            regime = Regime.COMPLETE
        elif not parses:
            regime = Regime.INVALID
        elif any(item.status == "failed" for item in ledger.subtasks):
            regime = Regime.RECOVERABLE
        else:
            regime = Regime.PARTIAL
        return Signals(regime, share, change_quality(memory.last, regime, share, new))
