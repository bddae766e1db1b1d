"""What a run says about the checks its router went by."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from steproute import Evidence, Model, Outcome, Router
from steproute.benchmarks.summary import WIDTH, judged, summarise, tables


def played(policy: str, told: bool) -> Router:
    router = Router([Model("a", price="free")], policy=policy)
    for i in range(300):
        task = f"t{i}"
        passed = i % 5 > 0  # four in five pass; one in four of those is wrong all the same
        evidence = [Evidence(source="examples", score=float(passed), count=2)]
        router.observe(router.decide(task), Outcome(), output=task, evidence=evidence)
        router.finish(task, success=i % 5 > 1 if told else None)
    return router


def test_checks_are_judged_on_held_out_tasks() -> None:
    found = judged(played("pacer", told=True))
    held = sum(played("pacer", told=False).reliability.holds_out(f"t{i}") for i in range(300))  # type: ignore[union-attr]
    assert found["tasks"] == held
    assert found["brier_before"] == pytest.approx(0.2, abs=0.07)
    assert found["brier_after"] < found["brier_before"]
    assert found["ece_after"] < found["ece_before"]


def test_nothing_is_said_where_no_result_was_told_or_nothing_judges() -> None:
    assert judged(played("pacer", told=False)) == {}
    assert judged(played("random", told=True)) == {}


def test_the_table_has_a_line_for_it() -> None:
    row = {
        "policy": "pacer",
        "task": "t",
        "passed": True,
        "models": ["a"],
        "choices": 1,
        "energy_j": None,
        "seconds": 1.0,
        "tokens": 5,
        "usd": 0.0,
        "regret": 0.0,
        "visible_ok": True,
    }
    (summary,) = summarise([row], [Model("a", price="free")], 0.0, None)
    summary["evidence"] = judged(played("pacer", told=True))
    text = StringIO()
    Console(file=text, width=WIDTH).print(tables([summary], "x"))
    assert "pacer: visible checks taken for the truth → as learnt, on " in text.getvalue()
