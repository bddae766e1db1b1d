"""Run untrusted Python where it can do no harm; values come back as literals, verdicts are made by the caller."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType

from steproute.verify.channel import Channel, Ended, Ending
from steproute.verify.launcher import Launcher, discard, guest_program, tester_program
from steproute.verify.limits import SandboxLimits
from steproute.verify.literals import NotALiteral, dumps
from steproute.verify.probe import Kind, find_launcher
from steproute.verify.reader import loads


@dataclass(frozen=True)
class CallResult:
    """What one request to a session gave: a literal as text, or an error."""

    text: str = ""
    """The result: what `repr` says of it (`call`), or the literal itself (`invoke`)."""
    error: str = ""
    """Name of the exception; empty when there was none."""
    message: str = ""
    """Its text, at most 500 characters; for an `opaque` result, the name of its type."""
    opaque: bool = False
    """True when `invoke` gave a value that is no literal and stayed inside."""

    @property
    def ok(self) -> bool:
        """A literal came back."""
        return not self.error and not self.opaque

    @property
    def value(self) -> object:
        """The result as a Python value.

        Raises:
            NotALiteral: there is none, or its text is no literal.
        """
        if not self.ok:
            raise NotALiteral(self.message or self.error)
        return loads(self.text)

    @property
    def failure(self) -> str:
        """`Name: message` of the error, or an empty string."""
        return f"{self.error}: {self.message}" if self.error else ""


# after a candidate hangs or dies, whatever the cause: part of the tester's messages, so never reworded
_GONE = CallResult(error="TimeoutError", message="no answer in the time limit")


class Process:
    """An isolated process that answers lines, killed at the end of the `with` block. Not shared between threads."""

    def __init__(self, channel: Channel, folder: str | None, limits: SandboxLimits) -> None:
        self._channel = channel
        self._folder = folder
        self._limits = limits
        self._end = time.monotonic() + limits.session_seconds
        self.ending: Ending | None = None
        """Why it answers no more, once it does not."""

    def ask(self, line: str, seconds: float) -> str | None:
        """One line there and one back; None once the process has ended, and then for ever."""
        if self.ending is not None:
            return None
        try:
            deadline = min(time.monotonic() + seconds, self._end)
            return self._channel.exchange(line.encode("ascii"), deadline).decode("ascii")
        except Ended as ended:
            self.end(ended.ending)
        except UnicodeDecodeError:
            self.end("forged")
        return None

    def end(self, ending: Ending) -> None:
        """Kill it, for this reason."""
        self.ending = ending
        self.close()

    def close(self) -> None:
        """Kill it and delete its files; may be called twice."""
        self._channel.close()
        discard(self._folder)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Session(Process):
    """One sandboxed interpreter holding a candidate's code."""

    def __init__(self, channel: Channel, folder: str | None, limits: SandboxLimits) -> None:
        super().__init__(channel, folder, limits)
        self._number = 0
        self.loaded = CallResult("None")
        """What running the code given at the start led to."""

    def __enter__(self) -> Session:
        return self

    def syntax(self, code: str) -> CallResult:
        """Compile without running. An error's message ends in `(line N)`."""
        return self._request("syntax", ascii(code))

    def load(self, code: str) -> CallResult:
        """Run statements in the candidate's namespace."""
        return self._request("load", ascii(code))

    def call(self, expression: str) -> CallResult:
        """Evaluate an expression there; `text` is the result's `repr`."""
        return self._request("call", ascii(expression))

    def invoke(self, name: str, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None) -> CallResult:
        """Call a function there with copies of literal arguments; the result must be a literal.

        Raises:
            NotALiteral: an argument is no literal.
        """
        return self.invoke_text(name, f"({dumps(args)}, {dumps(kwargs or {})})")

    def invoke_text(self, name: str, arguments: str) -> CallResult:
        """The same, with the pair (args, kwargs) already written by `dumps`."""
        return self._request("invoke", f"({name!a}, *{arguments})")

    def _request(self, verb: str, payload: str) -> CallResult:
        self._number += 1
        answer = self.ask(f"{self._number} {verb} {payload}", self._limits.wall_seconds)
        if answer is None:
            return _GONE
        number, _, rest = answer.partition(" ")
        kind, _, text = rest.partition(" ")
        try:
            if number != str(self._number):
                raise NotALiteral("an answer to another request")
            if kind == "value":
                return CallResult(text)
            if kind == "text":
                return CallResult(_string(loads(text)))
            if kind == "opaque":
                return CallResult(message=_string(loads(text)), opaque=True)
            if kind == "error" and isinstance(pair := loads(text), tuple) and len(pair) == 2:
                return CallResult(error=_string(pair[0]), message=_string(pair[1])[:500])
        except NotALiteral:
            pass
        self.end("forged")
        return _GONE


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise NotALiteral(type(value).__name__)
    return value


class Tester(Process):
    """A separate process that runs a benchmark's test; it asks for each call of the candidate."""

    def __enter__(self) -> Tester:
        return self

    def exchange(self, payload: str) -> tuple[str, str] | None:
        """Send a job or a call's result; returns (`ask` | `verdict`, text), or None when the test did not finish."""
        answer = self.ask(f"0 {payload}", self._limits.session_seconds)
        if answer is None:
            return None
        _, kind, text = answer.split(" ", 2)
        return kind, text


class Sandbox:
    """Starts sessions. May be shared between threads; sessions may not."""

    def __init__(self, limits: SandboxLimits | None = None, kind: Kind = "auto", python: str | None = None) -> None:
        """Describe the sandbox; nothing is started yet.

        Args:
            limits: what one candidate may use.
            kind: `bwrap` insists on bubblewrap, `subprocess` does without it, `auto` takes what works.
            python: interpreter for the candidate; by default the one that runs this program.
        """
        self.limits = limits or SandboxLimits()
        self.kind: Kind = kind
        self._python = python

    @property
    def launcher(self) -> Launcher:
        """How sessions are started here.

        Raises:
            SandboxUnavailable: nothing of the kind asked for works on this machine.
        """
        return find_launcher(self.kind, self._python)

    @property
    def safe(self) -> bool:
        """True when the candidate is walled off; false for a plain subprocess, whose results are marked `unsafe`."""
        return self.launcher.safe

    def session(self, code: str = "") -> Session:
        """Start an interpreter; with `code`, run it there (see `Session.loaded`)."""
        session = Session(*self.launcher.start(guest_program(), self.limits, self.limits.cpu_seconds), self.limits)
        if code:
            session.loaded = session.load(code)
        return session

    def tester(self) -> Tester:
        """Start a process for a trusted test."""
        return Tester(*self.launcher.start(tester_program(), self.limits, self.limits.test_cpu_seconds), self.limits)
