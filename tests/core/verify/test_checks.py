"""Examples, tests and reference comparisons: who passes, who does not, and what is said."""

import pytest

from steproute.verify import (
    BadTestError,
    Example,
    ExampleFailure,
    ExamplesResult,
    check_examples,
    check_inputs,
    check_tests,
)
from steproute.verify.compare import agree

EXAMPLES = [Example("f(1)", "2"), Example("f(2)", "3"), Example("f(f(0))", "2")]


def test_examples_pass(any_sandbox):
    result = check_examples("def f(x): return x + 1", EXAMPLES, sandbox=any_sandbox)
    assert result == ExamplesResult("", 3, (), unsafe=not any_sandbox.safe)
    assert result.ok
    assert result.total == 3


def test_examples_fail(sandbox):
    code = "def f(x):\n    if x == 2: return None\n    if x == 0: raise KeyError('zero')\n    return x + 1"
    result = check_examples(code, EXAMPLES, sandbox=sandbox)
    assert result.passed == 1
    assert result.failures == (
        ExampleFailure("f(2)", "3", "None"),
        ExampleFailure("f(f(0))", "2", "KeyError: 'zero'", raised=True),
    )
    assert not result.ok


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("", "no code"),
        ("def f(x)\n  pass", "SyntaxError: expected ':' (line 1)"),
        ("def f(x):\n    return math.pi\nf(1)", ""),
        ("import nothing_here", "ModuleNotFoundError: No module named 'nothing_here'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("while True: pass", "TimeoutError: no answer in the time limit"),
    ],
)
def test_nothing_runs_after_an_error(sandbox, code, error):
    result = check_examples(code, EXAMPLES if error else [], "import math", sandbox=sandbox)
    assert result == ExamplesResult(error, unsafe=not sandbox.safe)


def test_after_a_hang_the_other_examples_fail_alike(sandbox):
    code = "def f(x):\n    while x == 2: pass\n    return x + 1"
    result = check_examples(code, [*EXAMPLES[:2], *EXAMPLES[:1]], sandbox=sandbox)
    gone = "TimeoutError: no answer in the time limit"
    assert result.failures == (
        ExampleFailure("f(2)", "3", gone, raised=True),
        ExampleFailure("f(1)", "2", gone, raised=True),
    )
    assert result.passed == 1


@pytest.mark.parametrize(
    ("returned", "expected", "right"),
    [
        ("[1, 2]", "[1, 2]", True),
        ("(1, 2)", "[1, 2]", False),
        ("1.0", "1", True),
        ("True", "1", True),
        ("{2, 1}", "{1, 2}", True),
        ("{'a': None}", "{'a':None}", True),
        ("'x'", '"x"', True),
        ("range(2)", "[0, 1]", False),
        ("float('inf')", "1", False),
        ("10**5000", "1", False),
        ("__import__('collections').Counter('a')", "{'a': 1}", False),  # shown as Counter(...): not what was asked
        ("object()", "None", False),
    ],
)
def test_an_example_compares_what_repr_shows(sandbox, returned, expected, right):
    result = check_examples(f"def f(): return {returned}", [Example("f()", expected)], sandbox=sandbox)
    assert result.passed == int(right)


def test_statement_tests_call_the_function_by_name(sandbox):
    """The form of MBPP."""
    test = "import math\nassert area(2) == 4\nassert math.isclose(area(0.1), 0.01, rel_tol=1e-9)"
    assert check_tests("def area(x): return x * x", test, "area", sandbox=sandbox).passed
    verdict = check_tests("def area(x): return 4", test, "area", sandbox=sandbox)
    assert verdict.detail.startswith("assert math.isclose(area(0.1)")


def test_keyword_arguments_cross(sandbox):
    test = "def check(candidate):\n    assert candidate(1, b=[2]) == (1, [2])"
    assert check_tests("def f(a, b): return a, b", test, "f", sandbox=sandbox).passed


def test_a_test_may_expect_an_exception(sandbox):
    test = "def check(candidate):\n    try: candidate(-1)\n    except ValueError: return\n    assert False"
    assert check_tests("def f(x): raise ValueError('negative')", test, "f", sandbox=sandbox).passed
    assert check_tests("def f(x): raise KeyError('negative')", test, "f", sandbox=sandbox).reason == "error"
    assert check_tests("def f(x): return 1", test, "f", sandbox=sandbox).reason == "wrong-answer"


def test_results_of_the_wrong_kind_are_wrong_answers(sandbox):
    test = "def check(candidate):\n    assert abs(candidate(1) - 1.0) < 1e-6"
    verdict = check_tests("def f(x): return None", test, "f", sandbox=sandbox)
    assert verdict.reason == "wrong-answer"
    assert "TypeError: unsupported operand" in verdict.detail
    assert check_tests("def f(x): return 10**5000", test, "f", sandbox=sandbox).reason == "wrong-answer"
    assert check_tests("def f(x): return float('nan')", test, "f", sandbox=sandbox).reason == "wrong-answer"


def test_literal_subclasses_pass_as_their_data(sandbox):
    test = "def check(candidate):\n    assert candidate('aab') == {'a': 2, 'b': 1}"
    code = "from collections import Counter\ndef f(x): return Counter(x)"
    assert check_tests(code, test, "f", sandbox=sandbox).passed


def test_a_test_that_never_calls_proves_nothing(sandbox):
    verdict = check_tests("def f(x): return 1", "def check(candidate):\n    assert True", "f", sandbox=sandbox)
    assert (verdict.passed, verdict.reason) == (False, "untested")


def test_a_test_that_hangs_is_stopped(sandbox):
    sandbox = type(sandbox)(sandbox.limits.model_copy(update={"test_cpu_seconds": 1}))
    verdict = check_tests("def f(x): return 1", "def check(c):\n    c(1)\n    while True: pass", "f", sandbox=sandbox)
    assert (verdict.passed, verdict.reason) == (False, "timeout")


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("def check(c)\n  pass", "test_source: SyntaxError: expected ':'"),
        ("def check(c):\n    c(len)", "test_source: the test passes a value that is no literal: builtin_function"),
    ],
)
def test_bad_tests_are_the_callers_mistake(sandbox, test, message):
    with pytest.raises(BadTestError, match=message):
        check_tests("def f(x): return 1", test, "f", sandbox=sandbox)


@pytest.mark.parametrize("name", ["", "f()", "a b", "1"])
def test_entry_point_must_be_a_name(sandbox, name):
    with pytest.raises(ValueError, match="entry_point must be the name of a function"):
        check_tests("def f(x): return 1", "assert f(1)", name, sandbox=sandbox)


REFERENCE = "def f(x): return [v / 3 for v in x]"


def test_inputs_agree_within_the_tolerance(sandbox):
    inputs = [[[1.0, 2.0]], [[]], [[1e300]]]
    assert check_inputs("def f(x): return [v * (1 / 3) for v in x]", "f", inputs, REFERENCE, sandbox=sandbox).passed
    verdict = check_inputs("def f(x): return [v / 3 + 1e-3 for v in x]", "f", inputs, REFERENCE, sandbox=sandbox)
    assert verdict.reason == "wrong-answer"
    assert verdict.detail.startswith("f([1.0, 2.0]) gives [0.334")
    loose = check_inputs("def f(x): return [v / 3 + 1e-3 for v in x]", "f", inputs, REFERENCE, 0.01, sandbox=sandbox)
    assert loose.passed
    assert loose.detail == "3 inputs"


def test_inputs_are_copies_for_each_side(sandbox):
    assert check_inputs(
        "def f(x):\n    x.sort()\n    return x", "f", [[[3, 1]]], "def f(x): return sorted(x)", sandbox=sandbox
    ).passed


def test_huge_integers_compare(sandbox):
    reference = "def f(n):\n    r = 1\n    for i in range(2, n): r *= i\n    return r"
    code = "import math\ndef f(n): return math.factorial(n - 1)"
    assert check_inputs(code, "f", [[3000]], reference, sandbox=sandbox).passed  # 9,128 digits
    assert check_inputs(code + " + 1", "f", [[3000]], reference, sandbox=sandbox).reason == "wrong-answer"


def test_several_right_answers(sandbox):
    def is_root(arguments, got, expected):
        return abs(got * got - arguments[0]) < 1e-6

    code = "def f(x): return -(x ** 0.5)"
    reference = "def f(x): return x ** 0.5"
    assert check_inputs(code, "f", [[4.0]], reference, sandbox=sandbox).reason == "wrong-answer"
    assert check_inputs(code, "f", [[4.0]], reference, sandbox=sandbox, accept=is_root).passed
    assert (
        check_inputs("def f(x): return 'a'", "f", [[4.0]], reference, sandbox=sandbox, accept=is_root).passed is False
    )


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def f(x): raise ValueError", "error"),
        ("def f(x):\n    while True: pass", "timeout"),
        ("def f(x): return (v for v in x)", "wrong-answer"),
        ("def f(x): return tuple(v / 3 for v in x)", "wrong-answer"),
        ("def f(x) return", "syntax"),
        ("import __main__\n__main__.dumps = lambda *a: 'x'\ndef f(x): return 1", "forbidden"),
        ("", "no-code"),
    ],
)
def test_inputs_verdicts(sandbox, code, reason):
    verdict = check_inputs(code, "f", [[[1.0]]], REFERENCE, sandbox=sandbox)
    assert (verdict.passed, verdict.reason) == (False, reason)


@pytest.mark.parametrize("reference", ["def f(x): return 1 / 0", "def f(x): return len", "1 / 0"])
def test_a_bad_reference_is_the_callers_mistake(sandbox, reference):
    with pytest.raises(BadTestError, match="reference_code"):
        check_inputs("def f(x): return 1", "f", [[1]], reference, sandbox=sandbox)


def test_no_inputs_prove_nothing(sandbox):
    assert check_inputs("def f(x): return 1", "f", [], "def f(x): return 1", sandbox=sandbox).reason == "untested"


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("got", "expected", "atol", "same"),
    [
        (1, 1, 0, True),
        (1, 2, 0, False),
        (1.0000009, 1.0, 0, True),  # all floats: 1e-6 even where the data set says 0
        (1.000002, 1.0, 0, False),
        (1, 1.0000005, 0, True),
        ([1.0, 2], [1.0000001, 2], 0, False),  # mixed: exact
        ([1.0, 2], [1.0000001, 2], 1e-6, True),
        ([1.0], (1.0,), 0, False),
        ([1.0], [1.0, 1.0], 0, False),
        ((1.0, [2.0]), (1.0, [2.0000005]), 0, True),
        ({"a": 1.0}, {"a": 1.05}, 0.1, True),
        ({"a": 1.0}, {"b": 1.0}, 0.1, False),
        (NAN, NAN, 0, True),
        (1.0, NAN, 0, False),
        (NAN, 1.0, 0, False),
        (INF, INF, 0, True),
        (-INF, INF, 0.1, False),
        (1.0, INF, 0.1, False),
        (10**400, 1.0, 0, False),
        ("1.0", 1.0, 0, False),
        (None, 1.0, 0, False),
        (1e9 + 50, 1e9, 0, True),  # within 1e-7 of the expected value
        (1e9 + 150, 1e9, 0, False),
        (3, 3.4, 0.5, True),
        (4, 3, 5, False),  # integers are never close
        (True, 1, 0, True),
    ],
)
def test_agree(got, expected, atol, same):
    assert agree(got, expected, atol) is same
