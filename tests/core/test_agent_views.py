"""Progress of conversations with tools and of changes to a repository."""

from __future__ import annotations

from typing import Any

from steproute.ledger import Evidence, Ledger, Outcome, Step, Subtask, Task, ToolCall
from steproute.progress import ProgressTracker, Regime, view_for


def tools(*steps: list[ToolCall] | str, **ledger: Any) -> list[Any]:
    return read(
        "tools",
        [
            Step(id=str(i), tool_calls=s) if isinstance(s, list) else Step(id=str(i), output=s)
            for i, s in enumerate(steps)
        ],
        **ledger,
    )


def swe(*steps: dict[str, float]) -> list[Any]:
    made = []
    for i, found in enumerate(steps):
        evidence = [Evidence(source=name, score=score) for name, score in found.items()]
        made.append(Step(id=str(i), output=f"command {i}", outcome=Outcome(evidence=evidence)))
    return read("swe", made)


def read(domain: str, steps: list[Step], **more: Any) -> list[Any]:
    """Progress after each step."""
    tracker = ProgressTracker(view_for(domain))
    ledger = Ledger(task=Task(id="t", domain=domain), **more)
    seen = []
    for step in steps:
        ledger.steps.append(step)
        seen.append(tracker.update(ledger))
    return seen


def call(name: str, ok: bool | None = True) -> ToolCall:
    return ToolCall(name=name, ok=ok, fingerprint=name)


def test_new_calls_that_work_move_the_task() -> None:
    first, second, third = tools([call("find")], [call("book")], [call("pay")])
    assert first.regime is Regime.PARTIAL
    assert first.r == 0.25
    assert second.r == 1 - 0.75**2
    assert first.g < second.g < third.g < 1


def test_a_repeated_call_and_an_error_do_not() -> None:
    found, again, failed, recovered = tools([call("find")], [call("find")], [call("book", False)], [call("other")])
    assert again.r == found.r
    assert again.e == 0
    assert failed.regime is Regime.RECOVERABLE
    assert failed.g < again.g < found.g
    assert recovered.g > failed.g


def test_words_alone_never_complete_a_conversation() -> None:
    assert all(item.regime is not Regime.COMPLETE for item in tools("hello", [call("find")], "anything else?", "done"))


def test_subtasks_or_the_known_end_state_do() -> None:
    done = [Subtask(id="a", status="done")]
    assert tools([call("book")], subtasks=done)[-1].g == 1
    half = [*done, Subtask(id="b")]
    assert tools([call("book")], subtasks=half)[-1].regime is Regime.PARTIAL
    step = Step(id="0", outcome=Outcome(evidence=[Evidence(source="goal", score=1)]))
    assert read("tools", [step])[-1].g == 1


def test_a_patch_is_partial_and_passing_tests_complete_it() -> None:
    looked, patched, half, right = swe(
        {"command": 1}, {"patch": 1, "command": 1}, {"tests": 0.5}, {"tests": 1, "regressions": 1}
    )
    assert looked.regime is Regime.RECOVERABLE
    assert patched.regime is Regime.PARTIAL
    assert looked.g < patched.g < half.g < right.g == 1


def test_a_regression_keeps_a_fix_from_being_complete() -> None:
    broke = swe({"tests": 1, "regressions": 0.5})[-1]
    assert broke.regime is Regime.PARTIAL
    assert broke.r == 0.5


def test_code_that_does_not_parse_falls_back() -> None:
    patched, broken = swe({"patch": 1}, {"patch": 1, "syntax": 0})
    assert broken.regime is Regime.RECOVERABLE
    assert broken.g < patched.g


def test_failing_commands_are_no_progress() -> None:
    first, second = swe({"command": 0}, {"command": 0})
    assert second.regime is first.regime is Regime.RECOVERABLE
    assert second.e == 0
