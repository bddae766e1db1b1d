from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute import Evidence, Ledger, LedgerError, Outcome, Step, Subtask, Task, ToolCall

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
amounts = st.floats(min_value=0, max_value=1e12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
evidence = st.builds(Evidence, source=words, score=st.floats(0, 1), count=st.integers(0, 10**6), detail=words)
outcomes = st.builds(
    Outcome,
    call_id=words,
    model=words,
    prompt_tokens=st.integers(0, 10**9),
    completion_tokens=st.integers(0, 10**9),
    usd=st.none() | amounts,
    seconds=amounts,
    energy_j=st.none() | amounts,
    amounts=st.dictionaries(words, amounts, max_size=2),
    error=st.none() | words,
    evidence=st.lists(evidence, max_size=3),
)
steps = st.builds(
    Step,
    id=words,
    role=words,
    model=words,
    output=words,
    outcome=outcomes,
    tool_calls=st.lists(st.builds(ToolCall, name=words, ok=st.none() | st.booleans()), max_size=2),
    g=st.none() | st.floats(0, 1),
)
ledgers = st.builds(
    Ledger,
    task=st.builds(Task, id=words, goal=words, domain=words, parent=st.none() | words),
    subtasks=st.lists(
        st.builds(Subtask, id=words, status=st.sampled_from(["todo", "doing", "done", "failed"])), max_size=3
    ),
    steps=st.lists(steps, max_size=4),
    notes=st.dictionaries(words, json_values, max_size=3),
)


@given(ledgers)
def test_json_round_trip(ledger):
    text = ledger.to_json()
    assert Ledger.from_json(text) == ledger
    assert Ledger.from_json(text.encode()) == ledger
    assert json.loads(text)["schema_version"] == 1


def message(text: str | bytes) -> str:
    with pytest.raises(LedgerError) as seen:
        Ledger.from_json(text)
    return str(seen.value)


def test_malformed_json_is_refused_by_what_is_wrong():
    assert message("{") == "ledger JSON: Invalid JSON: EOF while parsing an object at line 1 column 1"
    assert message("[]").startswith("ledger JSON: Input should be an object")
    assert message('{"task": {"id": 3}}') == "ledger JSON: task.id: Input should be a valid string"
    assert message('{"steps": [{"output": []}]}') == "ledger JSON: steps.0.output: Input should be a valid string"
    assert message('{"subtasks": [{}]}') == "ledger JSON: subtasks.0.id: Field required"
    assert (
        message('{"steps": [{"outcome": {"usd": -1}}]}')
        == "ledger JSON: steps.0.outcome.usd: Input should be greater than or equal to 0"
    )


def test_unknown_keys_name_the_nearest_right_one():
    assert message('{"stpes": []}') == (
        "ledger JSON: stpes: unknown name 'stpes'; did you mean 'steps'? "
        "allowed: notes, schema_version, steps, subtasks, task"
    )
    assert "steps.0.outcome.evidence.0.scor: unknown name 'scor'; did you mean 'score'?" in message(
        '{"steps": [{"outcome": {"evidence": [{"source": "x", "score": 1, "scor": 1}]}}]}'
    )


def test_several_problems_are_counted():
    assert message('{"subtasks": [{}, {}, {}]}') == "ledger JSON: subtasks.0.id: Field required (and 2 more)"


@pytest.mark.parametrize("version", [2, 17, 2.0])
def test_a_newer_schema_is_refused(version):
    data = {"schema_version": version, "field_of_the_future": 1}
    assert message(json.dumps(data)) == (
        f"ledger JSON: schema_version {version} is newer than 1; update steproute to read it"
    )


def test_errors_do_not_quote_the_ledger():
    assert "secret plan" not in message(json.dumps({"task": {"goal": ["secret plan"]}}))


def test_notes_hold_only_what_json_can_carry():
    with pytest.raises(LedgerError, match="finite number"):
        Ledger(notes={"x": {"y": [float("nan")]}})
    with pytest.raises(LedgerError, match=r"notes\.x"):
        Ledger(notes={"x": object()})


@pytest.mark.parametrize(
    "field",
    [{"usd": -1.0}, {"seconds": float("nan")}, {"amounts": {"gpu_h": -1.0}}, {"prompt_tokens": -1}, {"cost": 1}],
)
def test_outcomes_refuse_impossible_amounts(field):
    with pytest.raises(LedgerError, match=f"Outcome: {next(iter(field))}"):
        Outcome(**field)


def test_a_wrong_value_names_the_field_what_was_seen_and_what_is_allowed():
    with pytest.raises(LedgerError) as caught:
        Outcome(prompt_tokens=-1, usd=float("nan"), secondss=2)
    text = str(caught.value)
    assert "prompt_tokens: seen -1; allowed: greater than or equal to 0" in text
    assert "usd: seen nan; allowed: a finite number" in text
    assert "secondss: unknown name 'secondss'; did you mean 'seconds'?" in text
    with pytest.raises(LedgerError, match=r"^Evidence: source: missing; it is required; score: seen 2; allowed: less"):
        Evidence(score=2)
    with pytest.raises(LedgerError) as caught:
        Evidence(source="examples", score="the user's secret")
    assert "secret" not in str(caught.value)


def test_evidence_is_the_latest_of_its_source():
    ledger = Ledger(
        steps=[
            Step(outcome=Outcome(evidence=[Evidence(source="tests", score=0.1), Evidence(source="tests", score=0.2)])),
            Step(outcome=Outcome(evidence=[Evidence(source="judge", score=0.9)])),
        ]
    )
    found = ledger.evidence("tests")
    assert found is not None
    assert found.score == 0.2
    assert ledger.evidence("syntax") is None


def test_every_outcome_and_task_has_an_identity_of_its_own():
    assert Outcome().call_id != Outcome().call_id
    assert Task().id != Task().id
