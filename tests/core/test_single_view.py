from __future__ import annotations

import pytest

from steproute import Evidence, Ledger, Outcome, Regime, Step, Subtask, Task
from steproute.progress import ProgressTracker
from steproute.progress.single import SINGLE_VIEW_WEIGHTS, PassRateView


def g(*scores: float, done: int | None = None) -> tuple[float, Regime]:
    steps = [
        Step(output=str(i), outcome=Outcome(evidence=[Evidence(source="examples", score=score, count=4)]))
        for i, score in enumerate(scores)
    ]
    parts = [] if done is None else [Subtask(id=str(i), status="done" if i < done else "todo") for i in range(4)]
    progress = ProgressTracker(PassRateView(), SINGLE_VIEW_WEIGHTS).update(
        Ledger(task=Task(id="t"), steps=steps, subtasks=parts)
    )
    return progress.g, progress.regime


@pytest.mark.parametrize("score", [0.0, 0.25, 0.75])
def test_g_is_the_pass_rate_whatever_came_before(score: float):
    assert g(score) == (pytest.approx(score), Regime.PARTIAL)
    assert g(1.0, 0.5, score) == (pytest.approx(score), Regime.PARTIAL)


def test_subtasks_and_the_end():
    assert g(1.0) == (1.0, Regime.COMPLETE)
    assert g(1.0, done=2) == (pytest.approx(0.5), Regime.PARTIAL)
    assert g(1.0, done=4) == (1.0, Regime.COMPLETE)


def test_without_tests_there_is_no_progress():
    step = Step(output="text", outcome=Outcome(evidence=[Evidence(source="syntax", score=1.0)]))
    ledger = Ledger(task=Task(id="t"), steps=[step])
    assert ProgressTracker(PassRateView(), SINGLE_VIEW_WEIGHTS).update(ledger).g == 0.0
