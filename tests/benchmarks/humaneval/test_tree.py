"""Values by backward induction against hand computation."""

from __future__ import annotations

import pytest
from servers.scripted_team import BAD, GOOD, LUCKY, team_backend

from steproute.benchmarks.humaneval.problems import Problem
from steproute.benchmarks.humaneval.tester import Tester
from steproute.benchmarks.humaneval.tree import build_tree

MODELS = {"weak": "weak", "strong": "strong"}
PRICE = 0.01


def test_a_lucky_pass_is_worth_a_review(problem: Problem, tester: Tester) -> None:
    root = build_tree(problem, team_backend(LUCKY, LUCKY), MODELS, tester)
    lucky = root.edges["weak"].child
    assert lucky.report is not None
    assert lucky.report.ok
    assert not lucky.hidden
    # strong reviews it: right, 10 s; weak reviews it: still wrong, 1 s; ending: wrong
    assert lucky.q(PRICE) == pytest.approx({"stop": 0.0, "weak": -0.01, "strong": 0.9})
    assert root.q(PRICE) == pytest.approx({"weak": 0.89, "strong": 0.9})
    assert root.value(PRICE) == pytest.approx(0.9)


def test_cheap_repair_beats_the_strong_model(problem: Problem, tester: Tester) -> None:
    root = build_tree(problem, team_backend(BAD, GOOD), MODELS, tester)
    # weak fails (1 s), then weak repairs it (1 s): 1 - 2 s; strong at once: 1 - 10 s
    assert root.q(PRICE) == pytest.approx({"weak": 0.98, "strong": 0.9})


def test_three_failures_end_a_history(problem: Problem, tester: Tester) -> None:
    root = build_tree(problem, team_backend(BAD, BAD), MODELS, tester)
    end = root.edges["weak"].child.edges["weak"].child.edges["weak"].child
    assert end.final
    assert end.q(PRICE) == {"stop": 0.0}
    # nobody but the strong model ever helps: the value of a weak start is strong's after one second lost
    assert root.q(PRICE)["weak"] == pytest.approx(0.89)


def test_a_review_that_breaks_the_code_keeps_the_passing_attempt(problem: Problem, tester: Tester) -> None:
    root = build_tree(problem, team_backend(GOOD, BAD), MODELS, tester)
    reviewed = root.edges["weak"].child.edges["weak"].child
    assert reviewed.report is not None
    assert not reviewed.report.ok
    assert reviewed.final
    assert reviewed.hidden
    assert reviewed.answer == root.edges["weak"].child.answer


def test_a_reply_without_code_is_a_failure_and_not_a_pass_to_review(problem: Problem, tester: Tester) -> None:
    root = build_tree(problem, team_backend("I cannot do that.", GOOD), MODELS, tester)
    empty = root.edges["weak"].child
    assert empty.report is not None
    assert not empty.report.ok
    # a further attempt counts even where its examples fail, and two are left
    assert not empty.edges["weak"].child.final
    assert empty.after(tester.visible(problem, BAD)).answer == tester.visible(problem, BAD).code
    assert root.q(PRICE) == pytest.approx({"weak": 0.98, "strong": 0.9})
