"""ASQA: ALCE's measures by hand-made cases, the judges, and a run with scripted models."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from steproute.approval import ApprovalError
from steproute.backend import ChatRequest
from steproute.benchmarks.asqa.citations import Sentence, answers_found, sentences, support
from steproute.benchmarks.asqa.judges import LexicalJudge, LlmJudge, NliJudge, make_judge
from steproute.benchmarks.asqa.questions import Passage, load_questions
from steproute.benchmarks.asqa.run import Asqa, Options, bears_on, quality
from steproute.benchmarks.runner import run
from steproute.errors import ConfigError
from steproute.integrations.scripted import ScriptedBackend
from steproute.models import Model, Price

POOL = [Model("small", price=Price(input=1, output=1)), Model("large", price=Price(input=10, output=10))]
PASSAGES = [Passage("A", "one two"), Passage("B", "three"), Passage("C", "nine")]


class Words:
    """Entailment: every word of the claim is in the premise."""

    def entails(self, premise: str, claim: str) -> bool:
        return set(claim.split()) <= set(premise.replace("\n", " ").split())


def test_sentences_and_their_marks() -> None:
    assert sentences("It opened in 1931 [1]. Trains came later.[2][3] Mr. Quill saw it [2], too. J. Feld did not.") == [
        Sentence("It opened in 1931.", (1,)),
        Sentence("Trains came later.", (2, 3)),
        Sentence("Mr. Quill saw it, too.", (2,)),
        Sentence("J. Feld did not.", ()),
    ]
    assert sentences("Only the first paragraph [1].\nNot this [2].") == [Sentence("Only the first paragraph.", (1,))]
    assert sentences(" ") == []


@pytest.mark.parametrize(
    ("found", "recall", "precision", "citations"),
    [
        ([Sentence("one two", (1,))], 1.0, 1.0, 1),
        ([Sentence("one two", (1, 2))], 1.0, 0.5, 2),  # 2 alone does not, and 1 does without it
        ([Sentence("one three", (1, 2))], 1.0, 1.0, 2),  # neither alone, both together
        ([Sentence("one three", (1,))], 0.0, 0.0, 1),
        ([Sentence("one two", ())], 0.0, 0.0, 0),
        ([Sentence("one two", (1, 7))], 0.0, 0.0, 0),  # cites what does not exist: not counted
        ([Sentence("one two", (1,)), Sentence("three", (3,))], 0.5, 0.5, 2),
        ([Sentence("one three", (3, 3, 1, 2))], 0.0, 0.0, 3),  # only the first three are looked at
        ([], 0.0, 0.0, 0),
    ],
)
def test_citation_recall_and_precision(found: list[Sentence], recall: float, precision: float, citations: int) -> None:
    held = support(found, PASSAGES, Words())
    assert (held.recall, held.precision, held.citations) == (recall, precision, citations)


def test_short_answers_are_found_whatever_their_dress() -> None:
    pairs = [["the U.S."], ["Jonas Feld", "Feld"], ["1934"]]
    assert answers_found("In the US, by Jonas Feld [3].", pairs) == pytest.approx(2 / 3)
    assert answers_found("", pairs) == 0
    assert answers_found("see [1934]", [["1934"]]) == 0  # a mark is no answer


def test_the_lexical_judge() -> None:
    judge = LexicalJudge()
    assert judge.entails("The bridge was opened to walkers in 1931.", "The bridge opened to walkers in 1931") is True
    assert judge.entails("The bridge was opened to walkers in 1931.", "The bridge opened to walkers in 1932") is False
    assert judge.entails("The bridge was opened.", "Salmon live in the river") is False
    assert judge.entails("anything", "the of") is False
    with pytest.raises(ConfigError, match="share: seen 0"):
        LexicalJudge(0)


def test_a_model_as_judge() -> None:
    backend = ScriptedBackend(["Yes.", "No"])
    judge = LlmJudge(backend, "judge")
    assert [judge.entails("p", "c"), judge.entails("p", "d")] == [True, False]
    assert judge.calls == 2
    assert "p" in backend.requests[0].messages[0]["content"]


def _sentence_transformers(labels: dict[int, str], scores: list[float]) -> types.ModuleType:
    class CrossEncoder:
        def __init__(self, name: str):
            self.model = types.SimpleNamespace(config=types.SimpleNamespace(id2label=labels))

        def predict(self, pairs: list[tuple[str, str]]) -> list[list[float]]:
            return [scores for _ in pairs]

    module = types.ModuleType("sentence_transformers")
    module.CrossEncoder = CrossEncoder  # type: ignore[attr-defined]
    return module


def test_a_cross_encoder_as_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {0: "contradiction", 1: "entailment", 2: "neutral"}
    for scores, wanted in (([0.1, 2.0, 0.3], True), ([0.1, 0.2, 0.3], False)):
        monkeypatch.setitem(sys.modules, "sentence_transformers", _sentence_transformers(labels, scores))
        assert NliJudge("x").entails("p", "c") is wanted
    monkeypatch.setitem(sys.modules, "sentence_transformers", _sentence_transformers({0: "good", 1: "bad"}, [0, 1]))
    with pytest.raises(ConfigError, match="judge-model: x has the labels good, bad; needed: entailment"):
        NliJudge("x")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match="embed-torch"):
        NliJudge("x")


def test_judges_by_name() -> None:
    with pytest.raises(ConfigError, match="judge"):
        make_judge("lexicl")
    with pytest.raises(ConfigError, match="judge-model: --judge llm needs"):
        make_judge("llm")


def test_a_paid_judge_has_to_be_approved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("litellm")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPROUTE_APPROVAL", str(tmp_path / "none.yaml"))
    with pytest.raises(ApprovalError):
        make_judge("llm", "openai/gpt-4.1")


def test_the_evidence_to_cover() -> None:
    (first, _) = load_questions().values()
    assert bears_on(first.question, first.passages) == [1, 2]  # bridge and railway, not the river's salmon
    assert bears_on("Unknown matter?", first.passages) == [1]


GOOD = "The Lumen bridge was opened to walkers in 1931 [1]. Trains crossed the Lumen bridge in spring 1934 [2]."


def test_an_editor_gets_what_is_wrong(tmp_path: Path) -> None:
    def answer(request: ChatRequest) -> str:
        if request.extra["role"] == "writer":
            return "The Lumen bridge was opened to walkers in 1931 [1]. It is known for its salmon [1]."
        return GOOD

    backend = ScriptedBackend(answer)
    options = Options(policies=["fixed:small"], limit=1, out=tmp_path / "run")
    result = run(Asqa(options), POOL, backend=backend)
    (row,) = [json.loads(line) for line in (result.path / "tasks.jsonl").read_text().splitlines()]
    assert (row["passed"], row["reward"], row["calls"], row["visible_ok"]) == (True, 1.0, 2, True)
    assert (row["citation_recall"], row["citation_precision"], row["coverage"]) == (1.0, 1.0, 1.0)
    assert row["regime_path"] == ["invalid", "partial"]
    assert row["g_path"][0] < row["g_path"][1] == 1.0
    told = backend.requests[1].messages[1]["content"]
    assert "- no cited passage supports: It is known for its salmon." in told
    assert "- passage [2] bears on the question and is not used" in told
    assert "short_answers" not in told
    assert quality(result.path) == {
        "fixed:small": {"short answers found": 1.0, "citation recall": 1.0, "citation precision": 1.0}
    }


def test_the_best_draft_counts_and_half_is_no_pass(tmp_path: Path) -> None:
    backend = ScriptedBackend(["The Lumen bridge was opened to walkers in 1931 [1].", "Nothing is known.", "1934."])
    options = Options(policies=["fixed:small"], limit=1, out=tmp_path / "run")
    result = run(Asqa(options), POOL, backend=backend)
    (row,) = [json.loads(line) for line in (result.path / "tasks.jsonl").read_text().splitlines()]
    assert (row["passed"], row["reward"], row["citation_recall"], row["coverage"]) == (False, 0.5, 1.0, 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"docs": []}, "field 'docs': seen an empty list"),
        ({"docs": [{"title": "t"}]}, "docs: field 'text' is missing"),
        ({"qa_pairs": ["x"]}, "field 'qa_pairs': seen 'x'; allowed: a list of objects"),
        ({"qa_pairs": [{"short_answers": [3]}]}, "field 'short_answers': seen 3; allowed: a list of texts"),
    ],
)
def test_bad_rows_are_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    row = {"question": "q", "qa_pairs": [{"short_answers": ["a"]}], "docs": [{"text": "t"}], **change}
    path = tmp_path / "asqa.json"
    path.write_text(json.dumps([row]))
    with pytest.raises(ConfigError, match=f"asqa.json row 1.*{message}"):
        load_questions(path)
