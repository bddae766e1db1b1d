"""Whatever a host hands in, its call goes on; what was wrong is counted and, in tests, raised with the field's name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubles import free, router
from hypothesis import given
from hypothesis import strategies as st

from steproute import Budget, ConfigError, Evidence, Ledger, Model, Needs, NoEligibleModel, Outcome, Price, Router, Task

JUNK: list[Any] = [math.nan, math.inf, -math.inf, "many", b"x", [1], {"a": 1}, object(), 10**400, 1e300, -5, 2.5, True]


def quiet(**options: Any) -> Router:
    return Router([Model("a", price=Price(input=1, output=2), tools=False), Model("b", price="free")], **options)


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(
    "field", ["prompt_tokens", "max_tokens", "timeout_s", "cached_tokens", "needs", "text", "exclude"]
)
def test_nonsense_never_stops_a_decision(field: str, junk: Any) -> None:
    for budget in (None, Budget(usd=1.0)):
        made = quiet(budget=budget).decide("t", **{field: junk})
        assert made.model.name in ("a", "b")
        assert made.prompt_tokens >= 0


@pytest.mark.parametrize(
    ("field", "seen", "message"),
    [
        ("prompt_tokens", math.nan, "prompt_tokens: seen nan; allowed: a finite number"),
        ("prompt_tokens", "secret", "prompt_tokens: seen a str; allowed: a finite number"),
        ("max_tokens", math.inf, "max_tokens: seen inf"),
        ("timeout_s", "soon", "timeout_s: seen a str"),
        ("cached_tokens", {"a": math.nan}, "cached_tokens: seen nan"),
        ("needs", ["tool"], "needs: unknown name 'tool'; did you mean 'tools'"),
        ("needs", 3, "needs: seen 3; allowed: Needs"),
    ],
)
def test_in_tests_it_is_an_error_that_names_the_field(field: str, seen: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        quiet(on_error="raise").decide("t", **{field: seen})
    kind = quiet()
    kind.decide("t", **{field: seen})
    assert kind.errors == 1


@pytest.mark.parametrize("needs", [["tools"], ("tools",), {"tools"}, {"tools": True}, Needs(tools=True)])
def test_needs_may_be_names(needs: Any) -> None:
    assert quiet(on_error="raise").decide("t", needs=needs).model.name == "b"
    with pytest.raises(NoEligibleModel, match="no vision"):
        quiet().decide("t", needs=["vision"])


def test_one_name_to_exclude_needs_no_list() -> None:
    assert quiet(on_error="raise").decide("t", exclude="a").model.name == "b"
    with pytest.raises(NoEligibleModel, match="pinned"):
        quiet().decide("t", pin=3)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers() -> None:
    made = quiet(on_error="raise").decide(
        "t", prompt_tokens=np.int64(7), max_tokens=np.float32(9), timeout_s=np.float64(3)
    )
    assert made.prompt_tokens == 7


def test_a_task_is_a_ledger_a_task_or_an_id() -> None:
    assert quiet().decide(7).task == "7"  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ledger: seen a dict; allowed: a Ledger, a Task, or the task's id"):
        quiet().decide({"id": "t"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "name"),
    [(7, "7"), ("\ud83d", "?"), ("a\x00b", "a�b"), (Task(id="t"), "t"), (Ledger(task=Task(id="l")), "l")],
)
@pytest.mark.parametrize("stored", [False, True])
def test_a_task_is_the_same_for_every_call(task: Any, name: str, stored: bool, tmp_path: Path) -> None:
    target = str(tmp_path / "a.db") if stored else None
    routed = quiet(on_error="raise", budget=Budget(usd=1.0), store=target)
    decision = routed.decide(task, pin="a")
    assert decision.task == name
    routed.observe(decision, Outcome(usd=0.25), output="x")
    routed.observe(routed.book(task, "a"), Outcome(usd=0.125))
    assert routed.spent(task)["usd"] == 0.375
    ledger = routed.ledger(task)
    assert ledger is not None
    assert ledger.task.id == name
    progress = routed.report(task, [Evidence(source="tests", score=1.0)])
    assert progress is not None
    assert progress == routed.progress(task)
    assert [made.id for made in routed.decisions(task)] == [decision.id]
    if stored:
        routed.close()
        routed = quiet(on_error="raise", budget=Budget(usd=1.0), store=target)
    assert not routed.ended(task)
    assert routed.finish(task, success=True)["usd"] == 0.375
    assert routed.ended(task)
    routed.close()


@pytest.mark.parametrize("junk", [math.nan, math.inf, -1.0, "x"])
@pytest.mark.parametrize("field", ["usd", "seconds", "energy_j", "prompt_tokens", "completion_tokens", "cached_tokens"])
def test_an_outcome_that_was_spoilt_is_still_billed(field: str, junk: Any) -> None:
    routed = quiet(budget=Budget(usd=1.0))
    decision = routed.decide("t", pin="a")
    outcome = Outcome(prompt_tokens=1000, completion_tokens=1000, seconds=2.0)
    setattr(outcome, field, junk)
    outcome.amounts["gpu_h"] = math.nan
    routed.observe(decision, outcome, output="x")
    assert routed.errors == 2
    spent = routed.spent("t")
    usd = {"prompt_tokens": 0.002, "completion_tokens": 0.001}.get(field, 0.003)
    assert spent["usd"] == pytest.approx(usd)
    assert spent["seconds"] == (0.0 if field == "seconds" else 2.0)
    assert "gpu_h" not in spent
    assert len(routed.ledger("t").steps) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("junk", [0.5, "good", [0.5], [None], {"score": 1}, None])
def test_evidence_that_is_none_is_left_out(junk: Any) -> None:
    routed = quiet()
    decision = routed.decide("t")
    sound = Evidence(source="examples", score=0.5)
    routed.observe(decision, Outcome(), evidence=[*(junk if isinstance(junk, list) else []), sound])
    routed.report("t", junk)
    (step,) = routed.ledger("t").steps  # type: ignore[union-attr]
    assert step.outcome.evidence == [sound]
    before = routed.errors
    assert routed.decide("t").progress.g > 0
    assert routed.errors == before


def test_one_piece_of_evidence_needs_no_list() -> None:
    routed = router(free("a"))
    routed.observe(routed.decide("t"), Outcome())
    routed.report("t", Evidence(source="examples", score=1.0))  # type: ignore[arg-type]
    assert routed.ledger("t").steps[0].outcome.evidence[0].score == 1.0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given_", "reward"), [(True, 1.0), (0, 0.0), (math.nan, None), ("yes", None), (7, None), (None, None)]
)
def test_a_final_result_that_is_none_counts_as_unknown(given_: Any, reward: float | None) -> None:
    seen = []
    routed = quiet()
    routed.policy.finish = lambda ledger, steps, reward: seen.append(reward)  # type: ignore[attr-defined]
    for how in ("success", "reward"):
        routed.observe(routed.decide(Task(id=how)), Outcome())
        routed.finish(how, **{how: given_})
    assert seen == [reward, reward]


@given(
    st.dictionaries(
        st.sampled_from(["prompt_tokens", "max_tokens", "timeout_s", "needs", "text", "role", "step", "cached_tokens"]),
        st.one_of(
            st.none(), st.floats(), st.integers(), st.text(max_size=5), st.lists(st.text(max_size=5)), st.booleans()
        ),
    )
)
def test_any_mixture_ends_in_a_decision(mixture: dict[str, Any]) -> None:
    if mixture.get("needs") and "vision" in str(mixture["needs"]):
        return
    routed = quiet(budget=Budget(usd=1e9))
    routed.observe(routed.decide("t", **mixture), Outcome(), output="x")
    routed.finish("t")
