"""A reply's score, from what can be checked without the answer."""

import math

import pytest

from steproute.errors import ConfigError
from steproute.verify import CodeVerifier, VerdictCache
from steproute.verify.prompts import read_request

PROMPT = '''Complete this function:

```python
import math

def helper(x):
    return 2 * x

def root(x: float) -> float:
    """ The square root.
    >>> root(4.0)
    2.0
    >>> root(9.0)
    3.0
    """
```'''


def reply(body: str) -> str:
    return f"Here it is.\n```python\n{body}\n```\n"


def by_source(result):
    return {item.source: (round(item.score, 3), item.count) for item in result.evidence}


@pytest.mark.parametrize(
    ("text", "score", "syntax", "execution", "examples"),
    [
        (reply("def root(x): return math.sqrt(x)"), 1.0, (1, 1), (1, 3), (1, 2)),
        (reply("def root(x): return 2.0"), 0.7, (1, 1), (1, 3), (0.5, 2)),
        (reply("def root(x): return 7.0"), 0.4, (1, 1), (1, 3), (0, 2)),
        (reply("def root(x): return helper(x) / 0"), 0.15 + 0.25 / 3, (1, 1), (0.333, 3), (0, 2)),
        (reply("def toor(x): return 2.0"), 0.15 + 0.25 / 3, (1, 1), (0.333, 3), (0, 2)),
        (reply("import nothing_here"), 0.15 / 0.4, (1, 1), (0, 1), (0, 0)),
        (reply("def root(x) return"), 0.0, (0, 1), (0, 0), (0, 0)),
        ("I cannot do that.", 0.0, (0, 1), (0, 0), (0, 0)),
        ("", 0.0, (0, 1), (0, 0), (0, 0)),
    ],
)
def test_score(sandbox, text, score, syntax, execution, examples):
    result = CodeVerifier(sandbox).verify(PROMPT, text)
    assert math.isclose(result.score, score, abs_tol=1e-9)
    assert by_source(result) == {"syntax": syntax, "execution": execution, "examples": examples}
    assert result.unsafe is (bool(result.code) and not sandbox.safe)


def test_details_say_what_happened(sandbox):
    verifier = CodeVerifier(sandbox)
    wrong = verifier.verify(PROMPT, reply("def root(x): return 7.0"))
    assert wrong.evidence[2].detail == "root(4.0) gives 7.0, expected 2.0"
    broken = verifier.verify(PROMPT, reply("def root(x): return 1 / 0"))
    assert broken.evidence[1].detail == "ZeroDivisionError: division by zero"
    assert verifier.verify(PROMPT, "no").evidence[0].detail == "no code"


def test_without_examples_their_weight_goes_to_the_rest(sandbox):
    result = CodeVerifier(sandbox).verify(
        "Write a function that adds two numbers.", reply("def add(a, b): return a + b")
    )
    assert result.score == 1.0
    assert by_source(result) == {"syntax": (1, 1), "execution": (1, 1), "examples": (0, 0)}


def test_kinds_of_task(sandbox):
    verifier = CodeVerifier(sandbox)
    broken = reply("x = undefined_here")
    assert math.isclose(verifier.verify("Write a program.", broken, "program").score, 0.3)
    assert verifier.verify("Change this line.", broken, "fragment").score == 1.0
    assert verifier.verify("Change this line.", reply("x ="), "fragment").score == 0.0
    with pytest.raises(ConfigError, match="kind: unknown name 'functon'; did you mean 'function'"):
        verifier.verify("", "", "functon")


@pytest.mark.parametrize("bad", [{"syntax": -1.0, "execution": 2.0}, {"syntax": 0.0}, {"syntax": float("nan")}, {}])
def test_weights_must_make_sense(bad):
    with pytest.raises(ConfigError, match=r"weights\.mine"):
        CodeVerifier(weights={"mine": bad})


def test_own_weights(sandbox):
    verifier = CodeVerifier(sandbox, weights={"mine": {"examples": 2.0}})
    assert verifier.verify(PROMPT, reply("def root(x): return 2.0"), "mine").score == 0.5


def test_a_plain_subprocess_is_marked(any_sandbox):
    assert CodeVerifier(any_sandbox).verify(PROMPT, reply("def root(x): return x")).unsafe is not any_sandbox.safe


def test_equal_code_is_run_once(sandbox, tmp_path):
    verifier = CodeVerifier(sandbox, VerdictCache(tmp_path / "v"))
    first = verifier.verify(PROMPT, reply("def root(x): return math.sqrt(x)"))
    assert verifier.verify(PROMPT, "Again:\n" + reply("def root(x): return math.sqrt(x)")) == first
    assert len((tmp_path / "v").read_text().splitlines()) == 1


def test_requests_read_from_prompts():
    request = read_request(PROMPT, "")
    assert request.entry_point == "root"
    assert request.preamble.strip().startswith("import math")
    assert [(example.call, example.expected) for example in request.examples] == [
        ("root(4.0)", "2.0"),
        ("root(9.0)", "3.0"),
    ]

    mbpp = "Write a function to add. Your code should pass these tests:\nassert add(1, 2) == 3\nassert add(0, 0) == 0"
    request = read_request(mbpp, "def helper(): pass\ndef add(a, b): return a + b\ndef main(): pass")
    assert (request.entry_point, len(request.examples)) == ("add", 2)

    assert read_request("Write something.", "def one(): pass\ndef two(): pass").entry_point == "two"
    assert read_request("Write something.", "x = 1").entry_point == ""
    prose = read_request("Complete:\ndef f(x):\n    '''f(1) == 2'''", "")
    assert (prose.entry_point, prose.preamble, len(prose.examples)) == ("f", "", 1)
