from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute import ConfigError, Evidence, Ledger, Outcome, Regime, Step, Subtask, Task, ToolCall
from steproute.progress import (
    DEFAULT_WEIGHTS,
    CodeView,
    GenericView,
    ProgressTracker,
    RegimeWeights,
    Weights,
    score,
    view_for,
)
from steproute.progress.tracker import KEPT
from steproute.progress.views import Memory

unit = st.floats(0, 1)
trend = st.floats(-1, 1)


@pytest.mark.parametrize(
    ("regime", "r", "d", "e", "g"),
    [
        (Regime.INVALID, 0, 0, 0, 0.05),
        (Regime.INVALID, 1, 1, 1, 0.19),
        (Regime.RECOVERABLE, 0.5, -1, 0, 0.25 + 0.05 - 0.05),
        (Regime.PARTIAL, 0.5, 0.5, 1, 0.50 + 0.17 + 0.025 + 0.09),
        (Regime.PARTIAL, 1, 1, 1, 0.98),
        (Regime.COMPLETE, 0, -1, 0, 1.0),
    ],
)
def test_g_by_hand(regime, r, d, e, g):
    assert score(regime, r, d, e).g == pytest.approx(g)


@given(st.sampled_from(Regime), st.floats(-5, 5), st.floats(-5, 5), st.floats(-5, 5))
def test_g_and_its_parts_stay_in_range(regime, r, d, e):
    progress = score(regime, r, d, e)
    assert 0 <= progress.g <= 1
    assert 0 <= progress.r <= 1
    assert -1 <= progress.d <= 1
    assert 0 <= progress.e <= 1


@given(unit, trend, unit, unit, trend, unit)
def test_regimes_never_overlap(r1, d1, e1, r2, d2, e2):
    for low, high in itertools.pairwise(Regime):
        assert score(low, r1, d1, e1).g < score(high, r2, d2, e2).g


@given(st.sampled_from(Regime), unit, trend, unit)
def test_g_rises_with_each_part(regime, r, d, e):
    g = score(regime, r, d, e).g
    assert score(regime, 1, d, e).g >= g - 1e-12
    assert score(regime, r, 1, e).g >= g - 1e-12
    assert score(regime, r, d, 1).g >= g - 1e-12


@given(st.lists(st.floats(0, 0.3), min_size=12, max_size=12), st.lists(st.floats(-0.2, 1.2), min_size=4, max_size=4))
def test_weights_that_are_accepted_keep_regimes_apart(parts, bases):
    """Whatever the numbers: either `Weights` refuses them, or no value of a lower regime exceeds one of a higher."""
    regimes = [RegimeWeights(base, *parts[3 * i : 3 * i + 3]) for i, base in enumerate(bases)]
    weights = None
    with suppress(ConfigError):
        weights = Weights(*regimes)
    for low, high in itertools.pairwise(Regime) if weights is not None else ():
        assert score(low, 1, 1, 1, weights).g <= score(high, 0, -1, 0, weights).g + 1e-9


def test_wrong_weights_name_the_field_and_the_order():
    with pytest.raises(ConfigError, match=r"^progress\.partial\.alpha: seen -0\.1; allowed: 0 or more$"):
        replace(DEFAULT_WEIGHTS, partial=RegimeWeights(0.5, -0.1, 0, 0))
    with pytest.raises(
        ConfigError, match=r"below the end 0.44 of 'recoverable'; regimes must be in the order invalid <"
    ):
        replace(DEFAULT_WEIGHTS, partial=RegimeWeights(0.4, 0.1, 0, 0))
    with pytest.raises(
        ConfigError, match=r"^progress\.complete: g would run from 1 to 1\.2; allowed: within \[0, 1\]$"
    ):
        replace(DEFAULT_WEIGHTS, complete=RegimeWeights(1.0, 0.2, 0, 0))
    with pytest.raises(ConfigError, match=r"^progress\.invalid"):
        replace(DEFAULT_WEIGHTS, invalid=RegimeWeights(float("nan"), 0, 0, 0))


def test_a_view_that_gives_no_numbers_is_found_out():
    with pytest.raises(ValueError, match="not finite: r=nan"):
        score(Regime.PARTIAL, float("nan"), 0, 0)


# --- views ---------------------------------------------------------------------------------------------------------


def test_numbers_of_numpy_become_plain_ones():
    found = score(Regime.PARTIAL, np.float32(0.5), np.float32(0.25), np.float32(1.0))
    assert [type(value) for value in (found.g, found.r, found.d, found.e)] == [float] * 4


def code_step(output: str = "code", **scores: tuple[float, int]) -> Step:
    evidence = [Evidence(source=source, score=value, count=count) for source, (value, count) in scores.items()]
    return Step(output=output, outcome=Outcome(evidence=evidence))


def read(view: CodeView | GenericView, *steps: Step, subtasks: list[Subtask] | None = None):
    ledger, memory = Ledger(steps=list(steps), subtasks=subtasks or []), Memory()
    signals = None
    for step in steps:
        signals = view.read(ledger, step, memory)
        memory.last = signals
    return signals


@pytest.mark.parametrize(
    ("evidence", "regime", "r"),
    [
        ({"syntax": (0, 1)}, Regime.INVALID, 0.0),
        ({"syntax": (1, 1), "execution": (0, 1)}, Regime.RECOVERABLE, 0.0),
        ({"syntax": (1, 1), "execution": (1, 1)}, Regime.PARTIAL, 0.5),
        ({"syntax": (1, 1), "execution": (1, 1), "examples": (1, 0)}, Regime.PARTIAL, 0.5),
        ({"syntax": (1, 1), "execution": (1, 1), "examples": (0, 3)}, Regime.RECOVERABLE, 0.0),
        ({"syntax": (1, 1), "execution": (1, 1), "examples": (0.25, 4)}, Regime.PARTIAL, 0.25),
        ({"syntax": (1, 1), "execution": (1, 1), "examples": (1, 3)}, Regime.COMPLETE, 1.0),
        ({"tests": (0.5, 4), "examples": (1, 3)}, Regime.PARTIAL, 0.5),
        ({}, Regime.INVALID, 0.0),
    ],
)
def test_code_view(evidence, regime, r):
    signals = read(CodeView(), code_step(**evidence))
    assert (signals.regime, signals.r) == (regime, r)


def test_code_view_counts_subtasks_and_is_not_complete_while_some_are_open():
    done, todo = Subtask(id="1", status="done"), Subtask(id="2")
    signals = read(CodeView(), code_step(examples=(1, 3)), subtasks=[done, todo])
    assert (signals.regime, signals.r) == (Regime.PARTIAL, 0.75)


def test_quality_of_the_change():
    half, full = code_step("a", examples=(0.5, 4)), code_step("b", examples=(1, 4))
    assert read(CodeView(), half).e == 1.0  # something from nothing
    assert read(CodeView(), half, full).e == 1.0
    assert read(CodeView(), full, half).e == 0.0
    assert read(CodeView(), half, code_step("c", examples=(0.5, 4))).e == 0.5  # a new attempt, no better
    assert read(CodeView(), half, code_step("a\n", examples=(0.5, 4))).e == 0.0  # the same attempt again


def test_generic_view():
    judged = GenericView()
    for value, regime in (
        (0.1, Regime.INVALID),
        (0.2, Regime.RECOVERABLE),
        (0.5, Regime.PARTIAL),
        (0.95, Regime.COMPLETE),
    ):
        signals = read(judged, Step(outcome=Outcome(evidence=[Evidence(source="judge", score=value)])))
        assert (signals.regime, signals.r) == (regime, value)
    assert read(judged, Step(output="words")).regime == Regime.RECOVERABLE
    assert read(judged, Step(output="words"), Step(output="more words")).r == 0.0
    assert read(judged, Step(tool_calls=[ToolCall(name="book", ok=False)])).regime == Regime.RECOVERABLE
    assert read(judged, Step(outcome=Outcome(error="HTTP 500"))).regime == Regime.INVALID
    tasks = [Subtask(id="1", status="done"), Subtask(id="2", status="doing")]
    assert read(judged, Step(output="x"), subtasks=tasks).r == 0.5
    assert read(judged, Step(output="x"), subtasks=tasks[:1]).regime == Regime.COMPLETE
    perfect = Step(outcome=Outcome(evidence=[Evidence(source="judge", score=1)]))
    assert read(judged, perfect, subtasks=tasks).regime == Regime.PARTIAL


@pytest.mark.parametrize("thresholds", [(0.5, 0.2, 0.6), (0.2, 0.2, 0.6), (0.2, 0.5, 1.2), (-0.1, 0.5, 0.6)])
def test_thresholds_out_of_order_are_refused_by_name(thresholds):
    with pytest.raises(ConfigError) as seen:
        GenericView(thresholds=thresholds)
    assert str(seen.value) == (
        f"thresholds: seen {thresholds}; needed in rising order: 0 <= recoverable < partial < complete <= 1"
    )


def test_an_unknown_domain_is_read_by_the_generic_view():
    assert view_for("code").domain == "code"
    assert view_for("cooking").domain == "generic"


def test_text_with_half_a_surrogate_pair_is_text():
    memory = Memory()
    assert memory.is_new("cut \ud83d here")
    assert not memory.is_new("cut  \ud83d here")


def test_memory_is_bounded_and_forgets_the_oldest():
    memory = Memory()
    assert all(memory.is_new(str(i)) for i in range(70))
    assert not memory.is_new("69")
    assert memory.is_new("0")
    assert len(memory.seen) == 64


# --- the tracker ---------------------------------------------------------------------------------------------------

steps = st.builds(
    lambda text, scores, error: Step(
        output=text,
        outcome=Outcome(
            call_id="c",
            error=error,
            evidence=[Evidence(source=source, score=value, count=count) for source, value, count in scores],
        ),
    ),
    st.sampled_from(["a", "b", "c", "d"]),
    st.lists(
        st.tuples(st.sampled_from(["syntax", "execution", "examples", "judge"]), unit, st.integers(0, 3)), max_size=3
    ),
    st.sampled_from([None, None, None, "HTTP 500"]),
)
views = st.sampled_from([GenericView(), CodeView()])


@given(views, st.lists(steps, max_size=12), st.lists(st.booleans(), min_size=12, max_size=12))
def test_incremental_progress_equals_reading_it_all_again(view, history, looks):
    tracker, ledger = ProgressTracker(view), Ledger()
    for step, look in zip(history, looks, strict=False):
        ledger.steps.append(step)
        if look:
            assert tracker.update(ledger) == ProgressTracker(view).update(ledger)
    assert tracker.update(ledger) == ProgressTracker(view).update(ledger)


@given(views, st.lists(steps, min_size=1, max_size=12), st.data())
def test_late_evidence_and_rewinding_equal_reading_it_all_again(view, history, data):
    tracker, ledger = ProgressTracker(view), Ledger(steps=history)
    tracker.update(ledger)
    for _ in range(3):
        index = data.draw(st.integers(0, len(history) - 1))
        history[index].outcome.evidence.append(Evidence(source="examples", score=data.draw(unit)))
        ledger.steps = list(history)
        tracker.rewind(index)
        assert tracker.update(ledger) == ProgressTracker(view).update(ledger)
        for position in range(len(history)):
            assert tracker.after(position) == ProgressTracker(view).update(Ledger(steps=history[: position + 1]))


@given(st.lists(steps, min_size=2, max_size=10), st.integers(0, 9), steps)
def test_a_trimmed_or_rewritten_ledger_is_read_anew(history, keep, other):
    tracker = ProgressTracker(CodeView())
    tracker.update(Ledger(steps=history))
    trimmed = Ledger(steps=history[: min(keep, len(history) - 1)])
    assert tracker.update(trimmed) == ProgressTracker(CodeView()).update(trimmed)
    tracker.update(Ledger(steps=history))
    rewritten = Ledger(steps=[*history[:-2], other, history[-1]])
    assert tracker.update(rewritten) == ProgressTracker(CodeView()).update(rewritten)


class Counting:
    """The generic view, counting how often it is asked."""

    domain = "generic"

    def __init__(self) -> None:
        self.reads = 0

    def read(self, ledger, step, memory):
        self.reads += 1
        return GenericView().read(ledger, step, memory)


@pytest.mark.parametrize("length", [10, 1000])
def test_a_step_costs_as_many_readings_in_a_long_ledger_as_in_a_short_one(length):
    view = Counting()
    tracker, ledger = ProgressTracker(view), Ledger(steps=[Step(output=str(i)) for i in range(length)])
    tracker.update(ledger)
    view.reads = 0
    ledger.steps.append(Step(output="new"))
    tracker.update(ledger)
    tracker.update(ledger)  # nothing changed: not read again
    assert view.reads == 1
    ledger.steps[-1].outcome.evidence.append(Evidence(source="tests", score=1.0))
    tracker.update(ledger)
    assert view.reads == 2
    tracker.rewind(length - 5)
    tracker.update(ledger)
    assert view.reads == 2 + 6
    if length > KEPT:
        tracker.rewind(length - KEPT - 5)
        tracker.update(ledger)
        assert view.reads == 2 + 6 + length + 1


def test_the_newest_step_is_read_again_where_a_view_may_see_something_new():
    view, call = Counting(), ToolCall(name="search")
    for ledger in (
        Ledger(steps=[Step(output="a")], subtasks=[Subtask(id="1")]),
        Ledger(steps=[Step(output="a")], notes={"expected": 1}),
        Ledger(steps=[Step(output="a", tool_calls=[call])]),
    ):
        tracker, view.reads = ProgressTracker(view), 0
        tracker.update(ledger)
        tracker.update(ledger)
        assert view.reads == 2


def test_what_later_steps_solve_is_not_credited_to_earlier_ones():
    ledger = Ledger(task=Task(), subtasks=[Subtask(id="1", status="done"), Subtask(id="2")], steps=[Step(output="a")])
    tracker = ProgressTracker(GenericView())
    first = tracker.update(ledger)
    ledger.subtasks[1].status = "done"
    ledger.steps.append(Step(output="b"))
    tracker.update(ledger)
    assert tracker.after(0) == first


def test_trend_looks_back_on_the_window():
    with pytest.raises(ConfigError, match="progress window: seen 0; allowed: 1 or more"):
        ProgressTracker(GenericView(), window=0)
    levels = [
        Step(output=str(i), outcome=Outcome(evidence=[Evidence(source="judge", score=s)]))
        for i, s in enumerate((0.5, 0.5, 0.9))
    ]
    progress = ProgressTracker(GenericView(), window=2).update(Ledger(steps=levels))
    assert progress.d == pytest.approx((2 + 0.9) - ((2 + 0.5) + (2 + 0.5)) / 2)
    assert ProgressTracker(GenericView()).update(Ledger(steps=levels[:1])).d == 1.0
