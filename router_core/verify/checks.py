"""Judge code by what it returns: against a problem's examples, a benchmark's test, or a trusted reference."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from steproute.errors import SteprouteError
from steproute.verify.compare import agree
from steproute.verify.examples import Example
from steproute.verify.literals import NotALiteral, dumps
from steproute.verify.reader import loads
from steproute.verify.sandbox import CallResult, Sandbox, Session, Tester

Reason = Literal[
    "passed", "wrong-answer", "error", "timeout", "crash", "output-limit", "forbidden", "syntax", "no-code", "untested"
]
"""`error`: the code raised; `crash`: its process ended; `output-limit`: a result too long; `forbidden`: it wrote
answers nobody asked for; `untested`: the test never called it."""

_ENDINGS: dict[str, tuple[Reason, str]] = {
    "timeout": ("timeout", "no answer in the time limit"),
    "crash": ("crash", "the process ended"),
    "flood": ("output-limit", "the result is longer than allowed"),
    "forged": ("forbidden", "an answer nobody asked for"),
}


class BadTestError(SteprouteError, ValueError):
    """The test or reference given is itself wrong; says how."""


@dataclass(frozen=True)
class ExampleFailure:
    """An example that failed: `got` is a `repr`, or `Error: message`."""

    call: str
    expected: str
    got: str
    raised: bool = False
    """The call raised, or never came back."""


@dataclass(frozen=True)
class ExamplesResult:
    """What the visible examples say about a piece of code."""

    error: str = ""
    """Why nothing was run: a syntax error or an exception while loading."""
    passed: int = 0
    failures: tuple[ExampleFailure, ...] = ()
    unsafe: bool = False
    """True when the code ran in a plain subprocess."""

    @property
    def total(self) -> int:
        """Examples that were run."""
        return self.passed + len(self.failures)

    @property
    def ok(self) -> bool:
        """No error and no failure; true as well where there was no example."""
        return not self.error and not self.failures


@dataclass(frozen=True)
class Verdict:
    """Whether code passes a test, and why not."""

    passed: bool
    reason: Reason
    detail: str = ""
    unsafe: bool = False
    """True when the code ran in a plain subprocess."""
    seconds: float = 0.0
    """Wall time of the check."""


def check_examples(code: str, examples: Sequence[Example], preamble: str = "", *, sandbox: Sandbox) -> ExamplesResult:
    """Run the examples a problem shows.

    Args:
        code: the candidate; compiled alone first, so that line numbers are its own.
        examples: calls and the literals they should give.
        preamble: what comes before the function in the problem (imports, given functions).
        sandbox: where the code runs.
    """
    unsafe = not sandbox.safe
    if not code.strip():
        return ExamplesResult("no code", unsafe=unsafe)
    with sandbox.session() as session:
        for result in (session.syntax(code), session.load(f"{preamble}\n{code}")):
            if result.error:
                return ExamplesResult(result.failure, unsafe=unsafe)
        passed = 0
        failures = []
        for example in examples:
            result = session.call(example.call)
            if not result.error and _gives(result, example.expected):
                passed += 1
            else:
                got = result.failure or result.text
                failures.append(ExampleFailure(example.call, example.expected, got, raised=bool(result.error)))
    return ExamplesResult("", passed, tuple(failures), unsafe)


def _gives(result: CallResult, expected: str) -> bool:
    try:
        return bool(result.value == ast.literal_eval(expected))
    except NotALiteral:
        return False


def check_tests(code: str, test_source: str, entry_point: str, preamble: str = "", *, sandbox: Sandbox) -> Verdict:
    """Run a benchmark's own test on code, in two processes: the test never shares one with the code it judges.

    Args:
        code: the candidate.
        test_source: Python that defines `check(candidate)` (HumanEval), or plain statements that call the function by
            its name (MBPP). Trusted. Only literals can be passed and returned.
        entry_point: name of the function under test. In the test this name is the candidate too.
        preamble: what comes before the function in the problem; run for the candidate, and for the test, which may use
            what it defines whatever the candidate redefines.
        sandbox: where both run.

    Raises:
        BadTestError: the test does not compile or passes something that is no literal.
        ValueError: `entry_point` is no identifier.
    """
    if not code.strip():
        return Verdict(False, "no-code", unsafe=not sandbox.safe)
    job = f"job {(preamble, test_source, entry_point)!a}"
    with sandbox.tester() as tester:  # both processes start at the same time

        def run(session: Session) -> Verdict:
            return _run_test(session, tester, job, entry_point)

        return _judged(code, entry_point, preamble, sandbox, run)


def check_inputs(
    code: str,
    entry_point: str,
    inputs: Sequence[Sequence[object]],
    reference_code: str,
    atol: float = 0.0,
    preamble: str = "",
    *,
    sandbox: Sandbox,
    accept: Callable[[Sequence[object], object, object], bool] | None = None,
) -> Verdict:
    """Compare the code's results with a reference's, input by input (HumanEval+, MBPP+).

    Args:
        code: the candidate.
        entry_point: name of the function in both.
        inputs: argument lists of literals. Each side gets its own copies.
        reference_code: the right solution, whole. Trusted, and run in a session of its own.
        atol: absolute tolerance for floats, as the data set states it (see `compare.agree`).
        preamble: what comes before the function in the problem.
        sandbox: where both run; both are held to its limits, for all inputs together.
        accept: `accept(arguments, result, expected)` decides instead, for problems with several right answers.

    Raises:
        BadTestError: the reference fails on an input.
        ValueError: `entry_point` is no identifier.
    """

    def run(session: Session) -> Verdict:
        with sandbox.session(f"{preamble}\n{reference_code}") as reference:
            if reference.loaded.error:
                raise BadTestError(f"reference_code: {reference.loaded.failure}")
            for arguments in inputs:
                text = f"({dumps(tuple(arguments))}, {{}})"
                expected = reference.invoke_text(entry_point, text)
                if not expected.ok:
                    raise BadTestError(f"reference_code fails on {text[:200]}: {expected.failure or expected.message}")
                verdict = _compared(session, entry_point, arguments, text, expected.value, atol, accept)
                if verdict is not None:
                    return verdict
        return Verdict(True, "passed", f"{len(inputs)} inputs") if inputs else Verdict(False, "untested", "no inputs")

    return _judged(code, entry_point, preamble, sandbox, run)


def _judged(code: str, entry_point: str, preamble: str, sandbox: Sandbox, run: Callable[[Session], Verdict]) -> Verdict:
    """Load the candidate and let `run` test it; what both kinds of test have in common."""
    if not entry_point.isidentifier():
        raise ValueError(f"entry_point must be the name of a function; seen {entry_point!r}")
    began = time.monotonic()
    unsafe = not sandbox.safe

    def done(verdict: Verdict) -> Verdict:
        return replace(verdict, unsafe=unsafe, seconds=time.monotonic() - began)

    if not code.strip():
        return done(Verdict(False, "no-code"))
    with sandbox.session() as session:
        syntax = session.syntax(code)
        if syntax.error:
            return done(_ended(session) or Verdict(False, "syntax", syntax.failure))
        loaded = session.load(f"{preamble}\n{code}")
        if loaded.error:
            return done(_ended(session) or Verdict(False, "error", loaded.failure))
        return done(run(session))


def _ended(session: Session) -> Verdict | None:
    """The verdict when the session answers no more."""
    return None if session.ending is None else Verdict(False, *_ENDINGS[session.ending])


def _run_test(session: Session, tester: Tester, job: str, entry_point: str) -> Verdict:
    """Carry the test's calls to the candidate and the results back until the test has decided."""
    result = CallResult()
    send = job
    while True:
        asked = tester.exchange(send)
        if asked is None:
            reason: Reason = "timeout" if tester.ending == "timeout" else "error"
            return Verdict(False, reason, "the test itself did not finish")
        kind, text = asked
        if kind == "verdict":
            return _decided(text, result)
        result = session.invoke_text(entry_point, text)
        ended = _ended(session)
        if ended is not None:
            return ended
        if result.opaque:
            return Verdict(False, "wrong-answer", f"{entry_point} returns a value of type {result.message}, no literal")
        send = f"value {result.text}" if result.ok else f"error {(result.error, result.message)!a}"


def _decided(text: str, last: CallResult) -> Verdict:
    """Turn the tester's word into a verdict; `last` is the result of the last call."""
    said = loads(text)
    assert isinstance(said, tuple)
    outcome, detail = str(said[0]), str(said[1])
    if outcome == "bad-test":
        raise BadTestError(f"test_source: {detail}")
    if outcome == "raised":
        return Verdict(False, "error", last.failure)
    if outcome == "forged":
        return Verdict(False, "forbidden", detail)
    if outcome == "untested":
        return Verdict(False, "untested", detail)
    return Verdict(True, "passed", detail) if outcome == "passed" else Verdict(False, "wrong-answer", detail)


def _compared(
    session: Session,
    entry_point: str,
    arguments: Sequence[object],
    text: str,
    expected: object,
    atol: float,
    accept: Callable[[Sequence[object], object, object], bool] | None,
) -> Verdict | None:
    """The verdict on one input, or None when it is right."""
    result = session.invoke_text(entry_point, text)
    ended = _ended(session)
    if ended is not None:
        return ended
    if result.error:
        return Verdict(False, "error", result.failure)
    if result.opaque:
        return Verdict(False, "wrong-answer", f"{entry_point} returns a value of type {result.message}, no literal")
    try:
        got = result.value
    except NotALiteral as error:
        return Verdict(False, "forbidden", str(error))
    try:
        right = accept(arguments, got, expected) if accept else agree(got, expected, atol)
    except (ArithmeticError, TypeError, ValueError):  # a result of the wrong kind
        right = False
    if right:
        return None
    given = ", ".join(dumps(argument) for argument in arguments)[:120]
    shown = f"{entry_point}({given}) gives {result.text[:120]}, expected {dumps(expected)[:120]}"
    return Verdict(False, "wrong-answer", shown)
