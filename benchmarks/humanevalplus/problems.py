"""HumanEval+'s problems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from steproute.benchmarks.functions.problem import Inputs, Problem
from steproute.benchmarks.humaneval.problems import Problem as Shown
from steproute.benchmarks.humaneval.team import problem_message
from steproute.benchmarks.rows import need, read_rows
from steproute.verify.inputs import Accept

ROUNDING = 1e-12
"""Relative to the sum of the terms' sizes: what floats lose when a polynomial is evaluated."""


def load_problems(path: Path) -> dict[str, Problem]:
    """Problems by id, from `HumanEvalPlus.jsonl.gz` or `HumanEvalPlus-Mini.jsonl.gz` as EvalPlus publishes them.

    Raises:
        ConfigError: the file cannot be read, or a row lacks a field; names both.
    """
    problems = {}
    for where, row in read_rows(path):
        key, prompt, entry, solution = (
            need(row, where, name, str) for name in ("task_id", "prompt", "entry_point", "canonical_solution")
        )
        arguments = [*need(row, where, "base_input", list), *_list(row.get("plus_input"))]
        shown = Shown(key, prompt, entry, solution, "")
        problems[key] = Problem(
            key,
            problem_message(prompt),
            entry,
            shown.examples,
            shown.preamble,
            inputs=Inputs(
                arguments, prompt + solution, need(row, where, "atol", float), _accept(entry, float(row["atol"]))
            ),
        )
    return problems


def _list(found: object) -> list[object]:
    return found if isinstance(found, list) else []


def _accept(entry_point: str, atol: float) -> Accept | None:
    """Problem 32 asks for any root of a polynomial: the residual decides, not the root the reference found."""
    return is_root(atol) if entry_point == "find_zero" else None


def is_root(atol: float) -> Accept:
    """Accepts a number at which the polynomial of the first argument is 0 within `atol`, rounding apart."""

    def accept(arguments: Sequence[object], got: object, expected: object) -> bool:
        coefficients = arguments[0]
        if not isinstance(got, (int, float)) or not isinstance(coefficients, list):
            return False
        terms = [coefficient * float(got) ** power for power, coefficient in enumerate(coefficients)]
        return bool(abs(sum(terms)) <= atol + ROUNDING * sum(map(abs, terms)))

    return accept
