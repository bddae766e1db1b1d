"""Progress of texts: mathematical answers, and passages that cite what was retrieved."""

from __future__ import annotations

import pytest

from steproute.ledger import Evidence, Ledger, Outcome, Step, Task
from steproute.progress import MathView, Progress, ProgressTracker, Regime, RetrievalView, View, view_for


def after(view: View, *steps: list[Evidence]) -> Progress:
    ledger = Ledger(task=Task(id="t", domain=view.domain))
    tracker = ProgressTracker(view)
    progress = tracker.update(ledger)
    for number, evidence in enumerate(steps):
        ledger.steps.append(Step(id=str(number), output=f"try {number}", outcome=Outcome(evidence=evidence)))
        progress = tracker.update(ledger)
    return progress


def says(source: str, score: float, count: int = 1) -> Evidence:
    return Evidence(source=source, score=score, count=count)


def test_both_are_built_in() -> None:
    assert view_for("math") == MathView()
    assert view_for("retrieval") == RetrievalView()


@pytest.mark.parametrize(
    ("evidence", "regime", "r"),
    [
        ([says("form", 0)], Regime.INVALID, 0.0),
        ([says("form", 1), says("consistency", 1, 0)], Regime.PARTIAL, 0.5),
        ([says("form", 1), says("consistency", 0.25, 4)], Regime.PARTIAL, 0.25),
        ([says("form", 1), says("consistency", 1, 4)], Regime.PARTIAL, 1.0),  # they may all be wrong
        ([says("form", 1), says("match", 1)], Regime.COMPLETE, 1.0),
        ([says("form", 1), says("consistency", 1, 4), says("match", 0)], Regime.RECOVERABLE, 0.0),
    ],
)
def test_a_mathematical_answer(evidence: list[Evidence], regime: Regime, r: float) -> None:
    progress = after(MathView(), evidence)
    assert (progress.regime, progress.r) == (regime, r)


def test_attempts_that_agree_raise_progress() -> None:
    apart = after(MathView(), [says("form", 1)], [says("form", 1), says("consistency", 0, 1)])
    agreed = after(MathView(), [says("form", 1)], [says("form", 1), says("consistency", 1, 1)])
    assert agreed.g > apart.g


@pytest.mark.parametrize(
    ("coverage", "recall", "precision", "regime", "r"),
    [
        (1.0, 1.0, 1.0, Regime.COMPLETE, 1.0),
        (0.5, 1.0, 1.0, Regime.PARTIAL, 0.9 * 0.75 + 0.1),
        (1.0, 0.0, 0.0, Regime.RECOVERABLE, 0.45),
        (0.0, 0.0, 0.0, Regime.RECOVERABLE, 0.0),
    ],
)
def test_an_answer_with_citations(coverage: float, recall: float, precision: float, regime: Regime, r: float) -> None:
    progress = after(
        RetrievalView(),
        [says("coverage", coverage), says("citation_recall", recall), says("citation_precision", precision)],
    )
    assert progress.regime is regime
    assert progress.r == pytest.approx(r)


def test_words_without_evidence_leave_progress_where_it_was() -> None:
    said = [says("coverage", 0.5), says("citation_recall", 0.5)]
    assert after(RetrievalView(), said, []).r == after(RetrievalView(), said).r
    assert after(MathView(), [says("form", 1)], []).r == 0.5
