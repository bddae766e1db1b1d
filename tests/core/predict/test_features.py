from __future__ import annotations

import math

import numpy as np
import pytest
from predict_doubles import make_context, samples

from steproute import Evidence, Limit, Outcome, Step, Subtask, ToolCall
from steproute.policies import BudgetState
from steproute.predict.encode import Vocabulary, one_hot
from steproute.predict.features import LOOK_BACK, MODEL, STATE, step_facts
from steproute.predict.semantic import summarise


def wrote(model: str, output: str, score: float | None, role: str = "coder", **more: object) -> Step:
    evidence = [] if score is None else [Evidence(source="tests", score=score, detail=f"{model} missed a case")]
    return Step(role=role, model=model, output=output, outcome=Outcome(evidence=evidence), **more)


STEPS = [
    wrote("small", "x" * 30, 0.0),
    wrote("small", "x" * 30, 0.0, role="fixer"),
    wrote("large", "y" * 60, 0.8, tool_calls=[ToolCall(name="run", ok=False, error="no such file")]),
]


def state(**more: object) -> dict[str, float]:
    facts = step_facts(make_context(steps=STEPS, tried=["small", "small", "large", "large"], **more))
    return dict(zip(STATE, facts.state.numbers.tolist(), strict=True))


def model(name: str, **more: object) -> dict[str, float]:
    facts = step_facts(make_context(steps=STEPS, tried=["small", "small", "large", "large"], **more))
    return dict(zip(MODEL, facts.numbers[facts.models.index(name)].tolist(), strict=True))


def test_the_state_in_numbers():
    seen = state()
    assert seen["g"] == pytest.approx(0.3)
    assert (seen["regime"], seen["step"], seen["calls"], seen["failed_calls"]) == (1, 3, 4, 1)
    assert seen["steps_in_role"] == 2
    assert seen["recent_evidence"] == pytest.approx(0.8 / 3)
    assert seen["last_evidence"] == pytest.approx(0.8)
    assert seen["recent_errors"] == 2
    assert seen["recent_tool_errors"] == 1
    assert seen["repeats"] == 1
    assert seen["models_used"] == 2
    assert seen["output_chars"] == pytest.approx(math.log1p(120))


def test_who_wrote_what_is_in_the_context():
    prior = {name: model(name)["prior"] for name in ("small", "large")}
    seen = state()
    assert seen["context_bad_share"] == pytest.approx(0.5)
    assert seen["context_prior"] == pytest.approx((prior["small"] + prior["large"]) / 2)
    assert seen["last_author_prior"] == pytest.approx(prior["large"])
    small, large = model("small"), model("large")
    assert (small["own_calls"], large["own_calls"]) == (2, 2)
    assert (small["own_evidence"], large["own_evidence"]) == (0, pytest.approx(0.8))
    assert (small["own_context_share"], large["own_context_share"]) == (0.5, 0.5)
    assert (small["is_last_author"], large["is_last_author"]) == (0, 1)
    assert small["over_last_author"] == pytest.approx(prior["small"] - prior["large"])
    assert large["over_best_tried"] == 0
    facts = step_facts(make_context(steps=STEPS, tried=["small"]))
    assert facts.state.last_model == "large"
    assert facts.state.roles == {"coder": 2, "fixer": 1}


def test_subtasks_spending_and_queues():
    subtasks = [Subtask(id="1", status="done"), Subtask(id="2", status="failed"), Subtask(id="3"), Subtask(id="4")]
    limits = {"energy_j": Limit(limit=1000, target=400), "usd": Limit(target=2)}
    budget = BudgetState(limits, {"energy_j": 200, "usd": 1}, {"energy_j": 50}, {"energy_j": 800, "usd": 1})
    seen = state(subtasks=subtasks, budget=budget)
    assert (seen["subtasks"], seen["subtasks_done"], seen["subtasks_failed"]) == (4, 0.25, 0.25)
    assert seen["spent_share_energy"] == pytest.approx(0.25)
    assert seen["spent_share_usd"] == pytest.approx(0.5)
    assert (seen["queue_energy"], seen["queue_usd"]) == (2, 0.5)


def test_an_empty_ledger_has_no_author():
    facts = step_facts(make_context())
    numbers = dict(zip(STATE, facts.state.numbers.tolist(), strict=True))
    assert facts.state.last_model == ""
    assert math.isnan(numbers["last_author_prior"])
    assert math.isnan(numbers["last_evidence"])
    assert numbers["context_bad_share"] == 0
    assert math.isnan(facts.numbers[0][MODEL.index("over_best_tried")])


def test_facts_do_not_follow_the_ledger():
    context = make_context(steps=STEPS[:1])
    facts = step_facts(context)
    context.ledger.steps.append(STEPS[2])
    assert facts.state.last_model == "small"
    assert facts.state.numbers[STATE.index("step")] == 1


def test_a_long_ledger_is_read_to_a_fixed_depth():
    long = [wrote("small", "old", 0.0)] * 500 + [wrote("large", "new", 1.0)] * LOOK_BACK
    facts = step_facts(make_context(steps=long))
    assert facts.state.roles == {"coder": LOOK_BACK}
    assert facts.state.numbers[STATE.index("context_bad_share")] == 0


def test_columns_of_the_structured_path():
    rows = samples(40, lambda state, model, embedding: 0.1)
    vocabulary = Vocabulary.of(rows)
    assert vocabulary == Vocabulary(("large", "small"), ("coder",))
    facts = step_facts(make_context(steps=STEPS, tried=["small", "small", "other"]))
    table = vocabulary.structured([facts.state], facts.models, facts.numbers)
    assert table.shape == (2, vocabulary.structured_width)
    first = len(STATE) + len(MODEL)
    assert table[:, first : first + 2].tolist() == [[0, 1], [1, 0]]  # small, large
    assert table[0, first + 2 :].tolist() == [1, 0, 0, 2, 1, 2]  # last author, calls per model, role, steps per role
    assert np.array_equal(table[0, : len(STATE)], table[1, : len(STATE)], equal_nan=True)


def test_a_name_without_a_column_gives_zeros():
    assert one_hot(["new", "b"], ["a", "b"]).tolist() == [[0, 0], [0, 1]]


def test_the_summary_says_what_the_table_cannot():
    text = summarise(make_context("fix the parser", steps=STEPS, role="fixer"))
    assert text.splitlines()[0] == "fix the parser"
    assert "role fixer; recoverable" in text
    assert "tests: large missed a case" in text
    assert "tool run failed: no such file" in text
    assert "xxx" not in text


def test_the_coordinators_own_summary_comes_first():
    own = make_context(notes={"summary": "two of three parts are done"})
    assert summarise(own).splitlines()[0] == "two of three parts are done"
    assert "a goal" not in summarise(own)
    assert summarise(make_context()).splitlines()[0] == "a goal"
    assert len(summarise(make_context("z" * 10_000))) < 2_000
