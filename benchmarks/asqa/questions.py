"""ASQA's questions with the passages that were retrieved for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steproute.benchmarks.rows import need, read_rows, texts
from steproute.errors import ConfigError

SAMPLE = Path(__file__).with_name("sample.jsonl")
"""Questions and passages written for this project, in ALCE's format: for tests and a first try."""


@dataclass(frozen=True)
class Passage:
    """One retrieved passage."""

    title: str
    text: str

    @property
    def whole(self) -> str:
        """Title and text, as a judge reads them."""
        return f"Title: {self.title}\n{self.text}"


@dataclass(frozen=True)
class Question:
    """One question. `short_answers` are hidden: they grade the end and are never shown to an agent."""

    id: str
    question: str
    passages: Sequence[Passage]
    short_answers: Sequence[Sequence[str]]
    """One list of equal answers for each reading of the question."""


def load_questions(source: str | Path | None = None, passages: int = 5, split: str = "test") -> dict[str, Question]:
    """Questions by id.

    Args:
        source: a file or hub name with ALCE's fields: `question`, `qa_pairs` (`short_answers` each), `docs` (`title`,
            `text`), and `sample_id` where there; None = the sample that is shipped.
        passages: how many of `docs` are taken, best first.
        split: of a data set on the hub.

    Raises:
        ConfigError: the file cannot be read, or a row lacks a field; names both.
    """
    if passages < 1:
        raise ConfigError(f"passages: seen {passages}; allowed: 1 or more")
    questions = {}
    for number, (where, row) in enumerate(read_rows(SAMPLE if source is None else source, split)):
        key = str(row.get("sample_id") or f"asqa/{number}")
        docs, pairs = _objects(row, where, "docs"), _objects(row, where, "qa_pairs")
        questions[key] = Question(
            key,
            need(row, where, "question", str),
            [Passage(str(doc.get("title") or ""), need(doc, f"{where} docs", "text", str)) for doc in docs[:passages]],
            [texts(pair, f"{where} qa_pairs", "short_answers") for pair in pairs],
        )
    return questions


def _objects(row: Mapping[str, Any], where: str, name: str) -> list[Mapping[str, Any]]:
    found = need(row, where, name, list)
    for item in found:
        if not isinstance(item, dict):
            raise ConfigError(f"{where}: field {name!r}: seen {item!r:.80}; allowed: a list of objects")
    if not found:
        raise ConfigError(f"{where}: field {name!r}: seen an empty list; needed: at least one")
    return found
