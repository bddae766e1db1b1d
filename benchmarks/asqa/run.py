"""A writer and an editor answer from passages; the ledger shows what was retrieved, what is cited and what is open."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steproute.benchmarks.asqa.citations import Support, answers_found, sentences, support
from steproute.benchmarks.asqa.judges import Judge, content_words, make_judge
from steproute.benchmarks.asqa.questions import Passage, Question, load_questions
from steproute.benchmarks.options import RunOptions
from steproute.benchmarks.protocol import Benchmark
from steproute.benchmarks.seat import Played, Seat
from steproute.errors import ConfigError
from steproute.ledger import Evidence
from steproute.progress import RetrievalView

WRITER = (
    "You answer questions from numbered passages, in one paragraph of a few sentences. Questions may have several "
    "readings: answer each that the passages speak of. Say only what the passages say, and end every sentence with the "
    "numbers of those it rests on, like [1] or [1][3]; as few as needed, at most three."
)
EDITOR = f"{WRITER} You are given a draft and what is wrong with it: reply with the corrected paragraph alone."
ENOUGH = RetrievalView().complete
"""Coverage and citation recall that end a task."""


@dataclass
class Options(RunOptions):
    """The settings of a run."""

    data: str | None = None
    """File or hub name; None = the sample that is shipped."""
    split: str = "test"
    passages: int = 5
    judge: str = "lexical"
    judge_model: str | None = None
    judge_base_url: str | None = None
    """Server of the judge `llm`; None = its provider's."""
    attempts: int = 3
    """Calls per question at most."""
    max_tokens: int = 600
    temperature: float = 0.0

    def check(self) -> None:
        """See `RunOptions.check`."""
        super().check()
        for name in ("attempts", "max_tokens", "passages"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: seen {getattr(self, name)}; allowed: a whole number of 1 or more")


@dataclass
class _Draft:
    text: str
    held: Support
    coverage: float
    open: Sequence[int] = field(default_factory=list)
    """Passages that bear on the question and are not cited, counted from 1."""

    @property
    def worth(self) -> float:
        return self.coverage + self.held.recall + 0.1 * self.held.precision

    @property
    def ok(self) -> bool:
        return min(self.coverage, self.held.recall) >= ENOUGH


class Asqa(Benchmark):
    """Questions with passages."""

    name = "asqa"
    frameworks = ("plain",)

    def __init__(self, options: Options, judge: Judge | None = None):
        """Describe the benchmark.

        Args:
            options: the settings.
            judge: decides on entailment; None = the one the options name.
        """
        self.options: Options = options
        self._judge = judge
        self._questions: Mapping[str, Question] = {}

    def tasks(self) -> list[str]:
        """All questions, in the order of the file."""
        if self._judge is None:
            self._judge = make_judge(self.options.judge, self.options.judge_model, self.options.judge_base_url)
        self._questions = load_questions(self.options.data, self.options.passages, self.options.split)
        return list(self._questions)

    def play(self, seat: Seat) -> Played:
        """Drafts until everything is covered and supported, or the tries are used up; the best draft counts."""
        asked = self._questions[seat.id]
        ledger = seat.describe(asked.question, "retrieval", dimension="long answer", source=self.name)
        ledger.notes["retrieved"] = [passage.title for passage in asked.passages]
        best: _Draft | None = None
        for attempt in range(self.options.attempts):
            reply = seat.call(
                "editor" if attempt else "writer",
                _messages(asked, best),
                max_tokens=self.options.max_tokens,
                temperature=self.options.temperature,
            )
            draft = self._read(asked, reply.content)
            ledger.notes["open"] = list(draft.open)
            seat.report(_evidence(draft))
            if best is None or draft.worth >= best.worth:
                best = draft
            if draft.ok:
                break
        assert best is not None
        found = answers_found(best.text, asked.short_answers)
        return seat.played(
            found >= 1,
            found,
            visible_ok=best.ok,
            citation_recall=best.held.recall,
            citation_precision=best.held.precision,
            coverage=best.coverage,
            words=len(best.text.split()),
        )

    def _read(self, asked: Question, reply: str) -> _Draft:
        assert self._judge is not None
        found = sentences(reply)
        cited = {cite for sentence in found for cite in sentence.cites}
        bearing = bears_on(asked.question, asked.passages)
        left = [number for number in bearing if number not in cited]
        return _Draft(reply, support(found, asked.passages, self._judge), 1 - len(left) / len(bearing), left)


def bears_on(question: str, passages: Sequence[Passage]) -> list[int]:
    """Passages, counted from 1, that hold at least half of the question's words; the first one where none does.

    The evidence an answer should cover, as far as one can tell without knowing the right answers.
    """
    wanted = content_words(question)
    found = [
        number
        for number, passage in enumerate(passages, start=1)
        if wanted and len(wanted & content_words(passage.whole)) >= len(wanted) / 2
    ]
    return found or [1]


def quality(folder: Path) -> dict[str, dict[str, float]]:
    """Per policy of a run the means over questions of short answers found, citation recall and citation precision."""
    rows: dict[str, list[dict[str, float]]] = {}
    for line in (folder / "tasks.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if not row.get("error"):
            rows.setdefault(row["policy"], []).append(row)
    figures = {
        "short answers found": "reward",
        "citation recall": "citation_recall",
        "citation precision": "citation_precision",
    }
    return {
        policy: {title: sum(row.get(key, 0.0) for row in found) / len(found) for title, key in figures.items()}
        for policy, found in rows.items()
    }


def _messages(asked: Question, draft: _Draft | None) -> list[dict[str, str]]:
    shown = "\n\n".join(f"[{number}] {passage.whole}" for number, passage in enumerate(asked.passages, start=1))
    task = f"Question: {asked.question}\n\n{shown}"
    if draft is None:
        return [{"role": "system", "content": WRITER}, {"role": "user", "content": task}]
    wrong = [f"- no cited passage supports: {text}" for text in draft.held.unsupported]
    wrong += [f"- passage [{number}] bears on the question and is not used" for number in draft.open]
    said = "\n".join(wrong) or "- it may be shorter and cite less"
    return [
        {"role": "system", "content": EDITOR},
        {"role": "user", "content": f"{task}\n\nDraft:\n{draft.text}\n\nWhat is wrong:\n{said}"},
    ]


def _evidence(draft: _Draft) -> list[Evidence]:
    held = draft.held
    return [
        Evidence(source="coverage", score=draft.coverage),
        Evidence(source="citation_recall", score=held.recall),
        Evidence(source="citation_precision", score=held.precision, count=1 if held.citations else 0),
    ]
