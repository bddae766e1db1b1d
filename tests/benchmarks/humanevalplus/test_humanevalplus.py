"""HumanEval+ in its published format: residuals, huge integers, floats, hidden inputs."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from steproute.benchmarks.functions.run import FunctionOptions, Functions
from steproute.benchmarks.humanevalplus.problems import is_root, load_problems
from steproute.benchmarks.runner import run
from steproute.errors import ConfigError
from steproute.integrations.scripted import ScriptedBackend
from steproute.models import Model, Price
from steproute.verify import Sandbox, VerdictCache

POOL = [Model("small", price=Price(input=1, output=1)), Model("large", price=Price(input=10, output=10))]
ROOT = {
    "task_id": "HumanEval/32",
    "prompt": 'def find_zero(xs: list):\n    """ A zero of the polynomial.\n    >>> round(find_zero([1, 2]), 2)\n    -0.5\n    """\n',
    "entry_point": "find_zero",
    "canonical_solution": "    return (-xs[1] + (xs[1] ** 2 - 4 * xs[0] * xs[2]) ** 0.5) / (2 * xs[2]) if len(xs) > 2 else -xs[0] / xs[1]\n",
    "contract": "",
    "base_input": [[[-1, 0, 1]]],
    "plus_input": [[[6, -5, 1]]],
    "atol": 0.0001,
}
BIG = {
    "task_id": "HumanEval/83",
    "prompt": 'def starts(n):\n    """ How many.\n    >>> starts(1)\n    1\n    """\n',
    "entry_point": "starts",
    "canonical_solution": "    return 1 if n == 1 else 18 * 10 ** (n - 2)\n",
    "base_input": [[1], [2]],
    "plus_input": [[20000]],
    "atol": 0,
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "plus.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.write("".join(json.dumps(row) + "\n" for row in (ROOT, BIG)))
    return path


def passes(path: Path, key: str, code: str, tmp_path: Path) -> bool:
    problem = load_problems(path)[key]
    return problem.grade(code, Sandbox(), VerdictCache(tmp_path / "verdicts.jsonl")).passed


def test_any_root_is_right(data: Path, tmp_path: Path) -> None:
    other = "def find_zero(xs):\n    return (-xs[1] - (xs[1] ** 2 - 4 * xs[0] * xs[2]) ** 0.5) / (2 * xs[2])"
    assert passes(data, "HumanEval/32", other, tmp_path)
    assert not passes(data, "HumanEval/32", "def find_zero(xs):\n    return 0.5", tmp_path)
    assert not passes(data, "HumanEval/32", "def find_zero(xs):\n    return 'root'", tmp_path)


def test_a_residual_is_judged_with_the_rounding_of_its_terms() -> None:
    accept = is_root(1e-4)
    assert accept([[-6, 11, -6, 1]], 2.00001, None)
    assert not accept([[-6, 11, -6, 1]], 2.001, None)
    assert accept([[-(10**20), 0, 1]], 1e10, None)
    assert not accept([[-1, 1]], float("nan"), None)


def test_integers_of_20_000_digits(data: Path, tmp_path: Path) -> None:
    right = "def starts(n):\n    return 1 if n == 1 else int('18' + '0' * 3) * 10 ** (n - 5) if n > 5 else 18"
    assert passes(data, "HumanEval/83", right, tmp_path)
    off_by_one = "def starts(n):\n    return 1 if n == 1 else 18 * 10 ** (n - 2) + (n > 9)"
    assert not passes(data, "HumanEval/83", off_by_one, tmp_path)


def test_a_run_is_graded_by_what_is_hidden(data: Path, tmp_path: Path) -> None:
    said = {
        "find_zero": "```python\ndef find_zero(xs):\n    return -xs[0] / xs[1]\n```",  # right for the example alone
        "starts": "```python\ndef starts(n):\n    return 1 if n == 1 else 18 * 10 ** (n - 2)\n```",
    }
    backend = ScriptedBackend(
        lambda request: next(text for name, text in said.items() if name in request.messages[1]["content"])
    )
    options = FunctionOptions(policies=["fixed:small"], out=tmp_path / "run")
    run(Functions("humanevalplus", options, lambda: load_problems(data)), POOL, backend=backend)
    rows = {row["task"]: row for row in map(json.loads, (tmp_path / "run/tasks.jsonl").read_text().splitlines())}
    assert {key: (row["passed"], row["visible_ok"], row["verdict"]) for key, row in rows.items()} == {
        "HumanEval/32": (False, True, "error"),
        "HumanEval/83": (True, True, "passed"),
    }
    assert not any("20000" in str(request.messages) for request in backend.requests)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"atol": None}, "field 'atol'"), ({"base_input": 3}, "field 'base_input': seen 3; allowed: a list")],
)
def test_bad_rows_are_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "plus.jsonl"
    path.write_text(json.dumps({**BIG, **change}) + "\n")
    with pytest.raises(ConfigError, match=f"plus.jsonl line 1: {message}"):
        load_problems(path)


@pytest.mark.skipif("STEPROUTE_HUMANEVALPLUS" not in os.environ, reason="STEPROUTE_HUMANEVALPLUS names no file")
@pytest.mark.parametrize("key", ["HumanEval/0", "HumanEval/32", "HumanEval/83", "HumanEval/139"])
def test_the_published_solutions_pass(key: str, tmp_path: Path) -> None:
    path = Path(os.environ["STEPROUTE_HUMANEVALPLUS"])
    problem = load_problems(path)[key]
    assert problem.inputs is not None
    assert passes(path, key, problem.inputs.reference, tmp_path)
