"""MBPP and MBPP+: formats, types that JSON lacks, special rules, and a run with scripted models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steproute.backend import ChatRequest
from steproute.benchmarks.functions.literals import example_arguments, typed
from steproute.benchmarks.functions.run import FunctionOptions, Functions
from steproute.benchmarks.mbpp.problems import as_example, load_problems
from steproute.benchmarks.runner import run
from steproute.errors import ConfigError
from steproute.integrations.scripted import ScriptedBackend
from steproute.models import Model, Price
from steproute.verify import Example, Sandbox, Verdict, VerdictCache

POOL = [Model("small", price=Price(input=1, output=1)), Model("large", price=Price(input=10, output=10))]


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def plus(**more: Any) -> dict[str, Any]:
    return {
        "task_id": "Mbpp/2",
        "prompt": '"""\nWrite a function to find the shared elements of two tuples.\nassert similar_elements((3, 4), (4, 5)) == (4,)\n"""\n',
        "entry_point": "similar_elements",
        "canonical_solution": "def similar_elements(a, b):\n    assert isinstance(a, tuple)\n    return tuple(set(a) & set(b))",
        "base_input": [[[3, 4, 5, 6], [5, 7, 4, 10]]],
        "plus_input": [[[], []]],
        "atol": 0,
        "contract": "",
        "assertion": "assert set(similar_elements((3, 4, 5, 6), (5, 7, 4, 10))) == {4, 5}",
        **more,
    }


def grade(path: Path, code: str, tmp_path: Path) -> Verdict:
    (problem,) = load_problems(path).values()
    return problem.grade(code, Sandbox(), VerdictCache(tmp_path / "verdicts.jsonl"))


@pytest.mark.parametrize(
    ("value", "example", "wanted"),
    [
        ([3, 4], (1, 2, 3), (3, 4)),
        ([[1, 2], [3, 4]], [(0, 0)], [(1, 2), (3, 4)]),
        ([[1], "a"], [(0,), "b"], [(1,), "a"]),
        ([1, 2], {5}, {1, 2}),
        ("1+2j", 1j, 1 + 2j),
        ({"1": [2]}, {7: (0,)}, {1: (2,)}),
        (["a", ["b", []]], ["x", ("y", ("z",))], ["a", ("b", ())]),
        (5, (1,), 5),
    ],
)
def test_types_follow_the_example(value: object, example: object, wanted: object) -> None:
    assert typed(value, example) == wanted


def test_arguments_of_the_example() -> None:
    assert example_arguments("assert f((1, 2), [3]) == 4", "f") == [(1, 2), [3]]
    assert example_arguments("assert g(1) == 4", "f") is None
    assert example_arguments("assert f(x) == 1\nassert f(2) == 1", "f") == [2]
    assert example_arguments("not python (", "f") is None


def test_assertions_as_examples() -> None:
    assert as_example("assert f([1]) == (2, 3)") == Example("f([1])", "(2, 3)")
    assert as_example("assert f(1) is None") == Example("bool(f(1) is None)", "True")
    assert as_example("assert set(f(1)) == set([2])") == Example("bool(set(f(1)) == set([2]))", "True")
    assert as_example("x = 1") is None
    assert as_example("assert (") is None


def test_the_order_of_shared_elements_is_open(tmp_path: Path) -> None:
    path = written(tmp_path / "plus.jsonl", plus())
    (problem,) = load_problems(path).values()
    assert problem.inputs is not None
    assert problem.inputs.arguments == [[(3, 4, 5, 6), (5, 7, 4, 10)], [(), ()]]
    assert problem.examples == [Example("similar_elements((3, 4), (4, 5))", "(4,)")]
    assert "assert similar_elements((3, 4), (4, 5)) == (4,)" in problem.task
    assert grade(path, "def similar_elements(a, b): return sorted(set(a) & set(b), reverse=True)", tmp_path).passed
    assert grade(path, "def similar_elements(a, b): return a", tmp_path).reason == "wrong-answer"


def test_a_match_object_counts_as_yes(tmp_path: Path) -> None:
    solution = "import re\ndef check_str(s):\n    return re.search('^[aeiou]', s)"
    path = written(
        tmp_path / "plus.jsonl",
        plus(
            entry_point="check_str",
            canonical_solution=solution,
            base_input=[["annie"], ["dawood"]],
            plus_input=[],
            assertion="assert check_str('annie')",
        ),
    )
    assert grade(path, solution, tmp_path).passed
    assert grade(path, "def check_str(s): return s[0] in 'aeiou'", tmp_path).passed
    assert grade(path, "def check_str(s): return True", tmp_path).reason == "wrong-answer"
    assert grade(path, "", tmp_path).reason == "no-code"


def test_all_three_formats_of_mbpp(tmp_path: Path) -> None:
    row = {"task_id": 7, "code": "def f(x): return x + 1", "test_list": ["assert f(1) == 2", "assert f(2) == 3"]}
    full = load_problems(written(tmp_path / "a.jsonl", {**row, "text": "Add one.", "test_setup_code": "import math"}))
    (tmp_path / "b.json").write_text(json.dumps([{**row, "prompt": "Add one.", "test_imports": ["import math"]}]))
    sanitised = load_problems(tmp_path / "b.json", shown=2)
    for problems in (full, sanitised):
        assert problems["Mbpp/7"].preamble == "import math"
        assert problems["Mbpp/7"].entry_point == "f"
        assert problems["Mbpp/7"].tests == "assert f(1) == 2\nassert f(2) == 3"
    assert [len(problems["Mbpp/7"].examples) for problems in (full, sanitised)] == [1, 2]
    assert "f(2)" not in full["Mbpp/7"].task


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "t", "task_id": 1, "test_list": ["assert f(1)"]}, "line 1: field 'code' is missing"),
        ({"text": "t", "code": "x=1", "test_list": []}, "field 'test_list': seen no assertion"),
        ({"text": "t", "code": "def g(): 1", "test_list": ["assert f(1)"]}, "calls no function that 'code' defines"),
        ({"text": "t", "code": "def g(", "test_list": ["assert g(1)"]}, "'code' or 'test_list' is no Python"),
        ({"text": "t", "code": "def g(): 1", "test_list": [1]}, "field 'test_list': seen 1; allowed: a list of texts"),
        (plus(base_input=[3]), "inputs of Mbpp/2: seen 3; allowed: a list of arguments each"),
        (plus(atol="x"), "field 'atol': seen 'x'; allowed: a number"),
    ],
)
def test_bad_rows_are_named(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        load_problems(written(tmp_path / "mbpp.jsonl", row))


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data: cannot read .*nowhere.jsonl: No such file"):
        load_problems(tmp_path / "nowhere.jsonl")
    with pytest.raises(ConfigError, match=r"data: seen mbpp; allowed: a \.jsonl"):
        load_problems("mbpp")
    (tmp_path / "x.jsonl").write_text("{}\n[1]\n")
    with pytest.raises(ConfigError, match="field 'prompt' is missing"):
        load_problems(tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").write_text("[1]\n")
    with pytest.raises(ConfigError, match=r"x.jsonl line 1: seen \[1\]; allowed: an object"):
        load_problems(tmp_path / "x.jsonl")


RIGHT = {
    "odd_square_sum": "def odd_square_sum(xs):\n    return sum(x * x for x in xs if x % 2)",
    "swap_ends": "def swap_ends(w):\n    return w if len(w) < 2 else w[-1] + w[1:-1] + w[0]",
    "mean_of": "def mean_of(v):\n    return sum(v) / len(v) if v else None",
    "product_to": "import math\ndef product_to(n):\n    return math.factorial(n)",
}


def test_the_sample_end_to_end(tmp_path: Path) -> None:
    def coder(request: ChatRequest) -> str:
        name = next(name for name in RIGHT if f"`{name}`" in request.messages[1]["content"])
        if name == "swap_ends":  # passes the shown assertion only
            return "```python\ndef swap_ends(w):\n    return w[-1] + w[1:-1] + w[0]\n```"
        if name == "mean_of" and request.extra["role"] == "coder":
            return "```python\ndef mean_of(v):\n    return 0\n```"
        return f"```python\n{RIGHT[name]}\n```"

    options = FunctionOptions(policies=["fixed:small"], out=tmp_path / "run")
    result = run(Functions("mbpp", options, load_problems), POOL, backend=ScriptedBackend(coder))
    assert result.errors == 0
    rows = {row["task"]: row for row in map(json.loads, (tmp_path / "run/tasks.jsonl").read_text().splitlines())}
    assert {key: (row["passed"], row["calls"]) for key, row in rows.items()} == {
        "Mbpp/900001": (True, 1),
        "Mbpp/900002": (False, 1),
        "Mbpp/900003": (True, 2),
        "Mbpp/900004": (True, 1),  # a result of 5,736 digits
    }
    assert rows["Mbpp/900002"]["visible_ok"] is True
    assert rows["Mbpp/900003"]["about"] == {"domain": "code", "dimension": "function", "source": "mbpp"}
