"""Compare code with a trusted reference, input by input (HumanEval+, MBPP+)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from steproute.verify.compare import agree
from steproute.verify.literals import NotALiteral, dumps
from steproute.verify.sandbox import CallResult, Sandbox, Session
from steproute.verify.verdict import BadTestError, Verdict, ended, judged, opaque

Accept: TypeAlias = "Callable[[Sequence[object], object, object], bool]"
"""`accept(arguments, result, expected)`: whether a result is right."""


def check_inputs(
    code: str,
    entry_point: str,
    inputs: Sequence[Sequence[object]],
    reference_code: str,
    atol: float = 0.0,
    preamble: str = "",
    *,
    sandbox: Sandbox,
    accept: Accept | None = None,
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
                    why = reference.ending or expected.failure or f"a value of type {expected.message}"
                    raise BadTestError(f"reference_code fails on {text[:200]}: {why}")
                result = session.invoke_text(entry_point, text)
                failed = ended(session) or _judge(entry_point, arguments, result, expected, atol, accept)
                if failed is not None:
                    return failed
        return Verdict(True, "passed", f"{len(inputs)} inputs") if inputs else Verdict(False, "untested", "no inputs")

    return judged(code, entry_point, preamble, sandbox, run)


def _judge(
    entry_point: str,
    arguments: Sequence[object],
    result: CallResult,
    expected: CallResult,
    atol: float,
    accept: Accept | None,
) -> Verdict | None:
    """The verdict on one result, or None when it is right."""
    if result.error:
        return Verdict(False, "error", result.failure)
    if result.opaque:
        return opaque(entry_point, result)
    if accept is None and result.text == expected.text:  # the common case needs no reading
        return None
    try:
        got = result.value
    except NotALiteral as error:  # written by other hands than the guest's
        return Verdict(False, "forbidden", str(error))
    try:
        right = accept(arguments, got, expected.value) if accept else agree(got, expected.value, atol)
    except (ArithmeticError, TypeError, ValueError):  # a result of the wrong kind
        right = False
    if right:
        return None
    given = ", ".join(dumps(argument) for argument in arguments)[:120]
    shown = f"{entry_point}({given}) gives {result.text[:120]}, expected {expected.text[:120]}"
    return Verdict(False, "wrong-answer", shown)
