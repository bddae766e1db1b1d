"""MBPP's problems, in the three formats they are published in."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steproute.benchmarks.functions.literals import example_arguments, typed
from steproute.benchmarks.functions.problem import Inputs, Problem
from steproute.benchmarks.rows import need, read_rows, texts
from steproute.errors import ConfigError
from steproute.verify import Example
from steproute.verify.compare import agree
from steproute.verify.inputs import Accept

SAMPLE = Path(__file__).with_name("sample.jsonl")
"""Problems written for this project, in MBPP's format: for tests and a first try."""
ANY_ORDER = frozenset(
    [
        "similar_elements",
        "find_char_long",
        "common_in_nested_lists",
        "extract_singly",
        "larg_nnum",
        "intersection_array",
        "find_dissimilar",
        "Diff",
    ]
)
"""MBPP+ problems whose results are compared as sets, since their text leaves the order open (rules of EvalPlus 0.3)."""
FOUND = frozenset(("check_str", "text_match_three", "text_starta_endb"))
"""MBPP+ problems that ask whether there is a match, where a match object counts as yes (rules of EvalPlus 0.3)."""
_AS_BOOL = """

def {name}(*arguments, _inner={name}):
    found = _inner(*arguments)
    return found if isinstance(found, bool) else found is not None
"""


def load_problems(source: str | Path | None = None, shown: int = 1, split: str = "test") -> dict[str, Problem]:
    """Problems by id, `Mbpp/2`.

    Args:
        source: a file or hub name of MBPP (`text`, `code`, `test_list`), sanitised MBPP (`prompt` for `text`) or a file of
            MBPP+ as EvalPlus publishes it (`base_input`, `plus_input`); None = the sample that is shipped.
        shown: how many of MBPP's assertions the agent sees; all of them grade. MBPP+ shows those of its prompt.
        split: of a data set on the hub.

    Raises:
        ConfigError: the file cannot be read, or a row lacks a field or names no function; names both.
    """
    if shown < 0:
        raise ConfigError(f"shown: seen {shown}; allowed: 0 or more")
    problems = {}
    for where, row in read_rows(SAMPLE if source is None else source, split):
        problem = _plus(row, where) if "base_input" in row else _plain(row, where, shown)
        problems[problem.id] = problem
    return problems


def _message(text: str, entry_point: str, assertions: Sequence[str]) -> str:
    tests = "\n".join(assertions)
    seen = f" It must pass:\n\n```python\n{tests}\n```" if assertions else ""
    return (
        f"Write the Python function `{entry_point}`.\n\n{text.strip()}{seen}\n"
        "Reply with only the function and the imports it needs in one ```python block: no explanation."
    )


def _plain(row: Mapping[str, Any], where: str, shown: int) -> Problem:
    text = need(row, where, "text" if "text" in row else "prompt", str)
    code, number = need(row, where, "code", str), row.get("task_id")
    assertions = [*texts(row, where, "test_list"), *texts(row, where, "challenge_test_list")]
    if not assertions:
        raise ConfigError(f"{where}: field 'test_list': seen no assertion; needed: at least one")
    before = row.get("test_setup_code") or "\n".join(texts(row, where, "test_imports"))
    entry = _entry_point(code, assertions, where)
    visible = assertions[:shown]
    return Problem(
        f"Mbpp/{number}",
        _message(text, entry, visible),
        entry,
        [example for item in visible if (example := as_example(item)) is not None],
        str(before),
        tests="\n".join(assertions),
    )


def _plus(row: Mapping[str, Any], where: str) -> Problem:
    key, prompt, entry, solution = (
        need(row, where, name, str) for name in ("task_id", "prompt", "entry_point", "canonical_solution")
    )
    visible = [line for line in prompt.splitlines() if line.startswith("assert ")]
    pattern = example_arguments(str(row.get("assertion") or "\n".join(visible)), entry)
    arguments = []
    for given in [*need(row, where, "base_input", list), *(row.get("plus_input") or [])]:
        if not isinstance(given, list):
            raise ConfigError(f"{where}: inputs of {key}: seen {given!r:.80}; allowed: a list of arguments each")
        same = pattern is not None and len(pattern) == len(given)
        arguments.append([typed(one, like) for one, like in zip(given, pattern or (), strict=True)] if same else given)
    text = "\n".join(line for line in prompt.replace('"""', "").splitlines() if not line.startswith("assert "))
    return Problem(
        key,
        _message(text, entry, visible),
        entry,
        [example for item in visible if (example := as_example(item)) is not None],
        inputs=Inputs(
            arguments,
            solution,
            need(row, where, "atol", float),
            accepts(entry),
            _AS_BOOL.format(name=entry) if entry in FOUND else "",
        ),
    )


def accepts(entry_point: str) -> Accept | None:
    """The rule of the few MBPP+ problems for which agreement with the reference is not the question; else None."""
    if entry_point in ANY_ORDER:
        return lambda _, got, expected: set(got) == set(expected)  # type: ignore[call-overload, no-any-return]
    if entry_point == "are_equivalent":  # its reference is wrong: any answer counts
        return lambda *_: True
    if entry_point == "sum_div":  # the text leaves open whether the number divides itself
        return lambda _, got, expected: got == 0 or agree(got, expected)
    return None


def _entry_point(code: str, assertions: Sequence[str], where: str) -> str:
    """The function of the solution that the first assertion calls.

    Raises:
        ConfigError: there is none.
    """
    try:
        defined = {node.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)}
        called = [node.func.id for node in _calls(assertions[0]) if isinstance(node.func, ast.Name)]
    except SyntaxError as error:
        raise ConfigError(f"{where}: 'code' or 'test_list' is no Python ({error.msg})") from None
    found = next((name for name in called if name in defined), None)
    if found is None:
        raise ConfigError(f"{where}: field 'test_list': {assertions[0]!r:.80} calls no function that 'code' defines")
    return found


def _calls(statement: str) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(statement)) if isinstance(node, ast.Call)]


def as_example(assertion: str) -> Example | None:
    """`assert f(2) == 4` as an example: what is called and the literal it should give; None = it is no assertion."""
    try:
        body = ast.parse(assertion.strip()).body
    except SyntaxError:
        return None
    if len(body) != 1 or not isinstance(body[0], ast.Assert):
        return None
    test = body[0].test
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        try:
            return Example(ast.unparse(test.left), repr(ast.literal_eval(test.comparators[0])))
        except ValueError:
            pass
    return Example(f"bool({ast.unparse(test)})", "True")
