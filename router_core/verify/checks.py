"""Judge code by what it returns: against a problem's examples, or a benchmark's test."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from steproute.verify.examples import Example
from steproute.verify.literals import NotALiteral
from steproute.verify.reader import loads
from steproute.verify.sandbox import CallResult, Sandbox, Session, Tester
from steproute.verify.verdict import BadTestError, Reason, Verdict, ended, judged, opaque


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

        return judged(code, entry_point, preamble, sandbox, run)


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
        over = ended(session)
        if over is not None:
            return over
        if result.opaque:
            return opaque(entry_point, result)
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
