"""What can be said of code that was tested."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from steproute.errors import SteprouteError
from steproute.verify.sandbox import CallResult, Sandbox, Session

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
class Verdict:
    """Whether code passes a test, and why not."""

    passed: bool
    reason: Reason
    detail: str = ""
    unsafe: bool = False
    """True when the code ran in a plain subprocess."""
    seconds: float = 0.0
    """Wall time of the check."""


def judged(code: str, entry_point: str, preamble: str, sandbox: Sandbox, run: Callable[[Session], Verdict]) -> Verdict:
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
            return done(ended(session) or Verdict(False, "syntax", syntax.failure))
        loaded = session.load(f"{preamble}\n{code}")
        if loaded.error:
            return done(ended(session) or Verdict(False, "error", loaded.failure))
        return done(run(session))


def ended(session: Session) -> Verdict | None:
    """The verdict when the session answers no more."""
    return None if session.ending is None else Verdict(False, *_ENDINGS[session.ending])


def opaque(entry_point: str, result: CallResult) -> Verdict:
    """The verdict on a result that is no literal."""
    return Verdict(False, "wrong-answer", f"{entry_point} returns a value of type {result.message}, no literal")
