"""The tester's messages are part of every recorded request."""

from __future__ import annotations

import pytest
from servers.scripted_team import BAD, GOOD

from steproute.benchmarks.humaneval import team
from steproute.benchmarks.humaneval.problems import Problem, load_problems, recording_order
from steproute.benchmarks.humaneval.team import Failure, VisibleReport
from steproute.benchmarks.humaneval.tester import Tester, evidence_of
from steproute.errors import ConfigError


def test_the_tester_sees_only_the_examples(problem: Problem, tester: Tester) -> None:
    assert tester.visible(problem, GOOD).ok
    bad = tester.visible(problem, BAD)
    assert bad.failures == (Failure("inc(1)", "2", "1"),)
    assert "inc(1) gives 1, expected 2" in team.report_message(bad)
    assert "candidate(5)" not in team.report_message(bad)


def test_messages_of_the_three_kinds_of_failure(problem: Problem, tester: Tester) -> None:
    assert team.report_message(tester.visible(problem, "I cannot do that.")).startswith("There is no Python code")
    syntax = tester.visible(problem, "```python\ndef inc(x:\n    return x\n```")
    assert "It fails before any test: SyntaxError" in team.report_message(syntax)
    assert [item.source for item in evidence_of(syntax)] == ["syntax"]
    loading = tester.visible(problem, "```python\nimport no_such_module\ndef inc(x):\n    return x\n```")
    assert "ModuleNotFoundError" in team.report_message(loading)
    assert [(item.source, item.score) for item in evidence_of(loading)] == [("syntax", 1), ("execution", 0)]


def test_no_example_is_said_and_counts_nothing() -> None:
    report = VisibleReport("def f(): pass")
    assert "shows no example to test" in team.report_message(report)
    assert evidence_of(report)[-1].count == 0


def test_addresses_and_length_do_not_change_a_message() -> None:
    assert team.normalise("<f at 0x7f0012ab>") == team.normalise("<f at 0x7fffffff>")
    assert len(team.normalise("x" * 500)) == 160


def test_the_subset_depends_on_lengths_alone() -> None:
    problems = load_problems()
    order = recording_order(problems)
    assert len(problems) == 164
    assert order[:3] == ["HumanEval/27", "HumanEval/9", "HumanEval/13"]
    assert all(len(problems[key].prompt) <= 450 and len(problems[key].canonical_solution) <= 400 for key in order)


def test_the_examples_of_150_problems_are_found_and_four_are_wrong_in_the_data_set(tester: Tester) -> None:
    shown = [problem for problem in load_problems().values() if problem.examples]
    assert len(shown) == 150
    wrong = []
    for problem in shown:
        code = problem.prompt[problem.prompt.rfind(f"def {problem.entry_point}(") :] + problem.canonical_solution
        if not tester.visible(problem, f"```python\n{code}\n```").ok:
            wrong.append(problem.id)
    # their docstrings contradict their own reference solutions
    assert wrong == ["HumanEval/47", "HumanEval/116", "HumanEval/130", "HumanEval/148"]


def test_a_problem_file_without_a_field_is_refused(tmp_path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"task_id": "a", "prompt": "", "entry_point": "f", "test": ""}\n')
    with pytest.raises(ConfigError, match=r"own.jsonl line 1: field 'canonical_solution' is missing"):
        load_problems(path)
