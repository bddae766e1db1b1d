"""MATH-500's problems."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steproute.benchmarks.rows import need, read_rows

SAMPLE = Path(__file__).with_name("sample.jsonl")
"""Problems written for this project, in MATH-500's format: for tests and a first try."""


@dataclass(frozen=True)
class Problem:
    """One problem. `answer` is hidden: it grades the end and is never shown to an agent."""

    id: str
    problem: str
    answer: str
    """LaTeX without a box around it."""
    subject: str


def load_problems(source: str | Path | None = None, split: str = "test") -> dict[str, Problem]:
    """Problems by id.

    Args:
        source: a file or hub name with the fields `problem`, `answer` and, where there, `unique_id`, `subject`, `level`;
            None = the sample that is shipped.
        split: of a data set on the hub.

    Raises:
        ConfigError: the file cannot be read, or a row lacks a field; names both.
    """
    problems = {}
    for number, (where, row) in enumerate(read_rows(SAMPLE if source is None else source, split)):
        key = str(row.get("unique_id") or f"math/{number}")
        text, answer = need(row, where, "problem", str), need(row, where, "answer", str)
        problems[key] = Problem(key, text, answer, str(row.get("subject") or ""))
    return problems
