"""Ablation of the multi-view scorer: progress is the share of checks that pass, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from steproute.ledger import Ledger, Step
from steproute.progress.score import Regime, RegimeWeights, Weights
from steproute.progress.views import Memory, Signals, subtask_share

SINGLE_VIEW_WEIGHTS = Weights(
    invalid=RegimeWeights(0.0, 0.0, 0.0, 0.0),
    recoverable=RegimeWeights(0.0, 0.0, 0.0, 0.0),
    partial=RegimeWeights(0.0, 1.0, 0.0, 0.0),
    complete=RegimeWeights(1.0, 0.0, 0.0, 0.0),
)
"""g = r: one regime until everything passes, no trend, no quality of the change."""


@dataclass(frozen=True)
class PassRateView:
    """Reads the tests' pass rate alone, times the share of subtasks done where there are any.

    Use it with `SINGLE_VIEW_WEIGHTS`. `sources` are the kinds of evidence that count as tests.
    """

    domain: str = "generic"
    sources: tuple[str, ...] = ("tests", "examples")

    def read(self, ledger: Ledger, step: Step, memory: Memory) -> Signals:
        """See `View.read`. A step without tests scores 0."""
        tests = [item for item in step.outcome.evidence if item.source in self.sources and item.count > 0]
        rate = sum(item.score for item in tests) / len(tests) if tests else 0.0
        share = subtask_share(ledger)
        r = rate if share is None else rate * share
        return Signals(Regime.COMPLETE if r >= 1 else Regime.PARTIAL, r, 0.0)
