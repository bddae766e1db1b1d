"""MATH-500 through math-verify, with scripted models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steproute.backend import ChatRequest
from steproute.benchmarks.math500.problems import load_problems
from steproute.benchmarks.math500.run import REVIEWER, Math500, Options
from steproute.benchmarks.runner import run
from steproute.errors import ConfigError
from steproute.integrations.scripted import ScriptedBackend
from steproute.models import Model, Price

pytest.importorskip("math_verify", reason="needs the extra math")

from steproute.benchmarks.math500.answers import Answers

POOL = [Model("small", price=Price(input=1, output=1)), Model("large", price=Price(input=10, output=10))]


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    found = Answers()
    yield found
    found.close()


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (r"Half of it: $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        ("So x = 5", "5"),
        ("I cannot tell.", None),
        ("", None),
    ],
)
def test_the_answer_of_a_reply(answers: Answers, reply: str, answer: str | None) -> None:
    assert answers.read(reply) == answer


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (r"\frac12", "0.5", True),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3, \frac{\pi}{2})", True),
        ("x^2+2x", "x(x+2)", True),
        (r"\text{(B)}", "B", True),
        ("5", "6", False),
        ("5", "", False),
    ],
)
def test_when_answers_are_the_same(answers: Answers, one: str, other: str, same: bool) -> None:
    assert answers.same(one, other) is same


def test_a_process_that_died_is_replaced(answers: Answers) -> None:
    assert answers.read("x = 1") == "1"
    assert answers._process is not None
    answers._process.kill()
    answers._process.wait()
    assert answers.read("x = 2") == "2"


def play(script: Any, tmp_path: Path, **more: Any) -> list[dict[str, Any]]:
    options = Options(policies=["fixed:small"], limit=1, out=tmp_path / "run", **more)
    result = run(Math500(options), POOL, backend=ScriptedBackend(script))
    assert result.errors == 0
    return [json.loads(line) for line in (result.path / "tasks.jsonl").read_text().splitlines()]


def test_two_that_agree_end_a_problem(tmp_path: Path) -> None:
    asked: list[ChatRequest] = []

    def answer(request: ChatRequest) -> str:
        asked.append(request)
        return r"It is \boxed{5}." if len(asked) == 1 else "x = 10/2"

    (row,) = play(answer, tmp_path)
    assert (row["passed"], row["calls"], row["visible_ok"], row["answers"]) == (True, 2, True, [["5", 2]])
    assert row["regime_path"] == ["invalid", "partial"]
    assert asked[1].messages[0]["content"] == REVIEWER
    assert all("answer" not in message["content"].partition("final")[0] for message in asked[0].messages)


def test_two_that_agree_may_be_wrong(tmp_path: Path) -> None:
    (row,) = play([r"\boxed{4}", r"\boxed{4}"], tmp_path)
    assert (row["passed"], row["visible_ok"], row["reward"]) == (False, True, 0.0)
    assert row["g_path"][-1] < 1


def test_the_most_frequent_answer_counts(tmp_path: Path) -> None:
    (row,) = play([r"\boxed{4}", "no idea at all", r"\boxed{5}"], tmp_path)
    assert (row["passed"], row["calls"], row["answer"]) == (True, 3, "5")  # the later of two that are equally frequent
    steps = [json.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    assert steps[1]["evidence"] == [{"source": "form", "score": 0.0, "count": 1, "detail": "no answer found"}]
    assert steps[2]["evidence"][1]["score"] == 0.0


def test_bad_data_is_named(tmp_path: Path) -> None:
    file = tmp_path / "math.jsonl"
    file.write_text('{"problem": "1+1", "answer": "2"}\n{"problem": "1+2"}\n')
    with pytest.raises(ConfigError, match=r"math.jsonl line 2: field 'answer' is missing"):
        load_problems(file)
    file.write_text('{"problem": "1+1", "answer": 2}\n')
    with pytest.raises(ConfigError, match=r"line 1: field 'answer': seen 2; allowed: text"):
        load_problems(file)
