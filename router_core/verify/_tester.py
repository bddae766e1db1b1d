"""The program that runs a benchmark's own test: trusted, and in another process than the candidate.

The test calls a stand-in; arguments and results cross as literals through the parent process, so that the test never
holds an object of the candidate's. Its source, with that of `literals`, `reader` and `_confine`, is handed to an
interpreter.
"""

import builtins
import io
import os
import sys

from steproute.verify._confine import confine
from steproute.verify.literals import NotALiteral, dumps
from steproute.verify.reader import loads


class CandidateError(Exception):
    """The candidate raised something that is no built-in exception."""


class BadTest(BaseException):
    """The test asks for something that cannot cross."""


class ForgedResult(BaseException):
    """The sandbox sent a result its own program never writes."""


class Candidate:
    """Stands for the candidate's function: every call is made in the sandbox."""

    def __init__(self, answers: int, requests: io.BufferedReader) -> None:
        self.answers = answers
        self.requests = requests
        self.calls = 0
        self.last = ""
        self.raised: BaseException | None = None

    def send(self, kind: str, payload: str) -> None:
        """Write one line to the parent."""
        message = f"0 {kind} {payload}\n".encode("ascii")
        while message:
            message = message[os.write(self.answers, message) :]

    def __call__(self, *args: object, **kwargs: object) -> object:
        self.calls += 1
        try:
            text = f"({dumps(args)}, {dumps(kwargs)})"
        except NotALiteral as error:
            raise BadTest(f"the test passes a value that is no literal: {error}") from None
        self.send("ask", text)
        _, kind, payload = self.requests.readline().decode("ascii").rstrip("\n").split(" ", 2)
        if kind == "value":
            self.last = payload
            try:
                return loads(payload)
            except NotALiteral as error:
                raise ForgedResult(str(error)) from None
        name, message = eval(payload)  # written by the parent
        known = getattr(builtins, name, None)
        if isinstance(known, type) and issubclass(known, Exception):
            try:
                self.raised = known(message)
            except TypeError:  # a few exceptions want more than a message
                self.raised = CandidateError(f"{name}: {message}")
        else:
            self.raised = CandidateError(f"{name}: {message}")
        raise self.raised


def failed_line(error: BaseException, source: str) -> str:
    """The test's line at which it failed."""
    lines, found, trace = source.splitlines(), "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<test>" and trace.tb_lineno <= len(lines):
            found = lines[trace.tb_lineno - 1].strip()
        trace = trace.tb_next
    return found


def run(candidate: Candidate, preamble: str, source: str, entry_point: str) -> tuple[str, str]:
    """Run the test against the stand-in.

    Returns:
        One of `passed`, `untested`, `wrong`, `raised`, `forged` and `bad-test`, and a detail.
    """
    try:
        program = compile(source, "<test>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return "bad-test", f"{type(error).__name__}: {error}"
    space: dict[str, object] = {"__name__": "test"}
    exec(compile(preamble, "<preamble>", "exec", dont_inherit=True), space)
    space[entry_point] = space["candidate"] = candidate
    try:
        exec(program, space)
        check = space.get("check")
        if callable(check):
            check(candidate)
    except BaseException as error:  # noqa: BLE001 - whatever a test raises is its outcome
        if error is candidate.raised:
            return "raised", ""
        if isinstance(error, (BadTest, ForgedResult)):
            return ("bad-test" if isinstance(error, BadTest) else "forged"), str(error)
        shown = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return "wrong", f"{failed_line(error, source)} ({shown}; last result {candidate.last[:120]})"
    if not candidate.calls:
        return "untested", "the test never calls the candidate"
    return "passed", f"{candidate.calls} calls"


if __name__ == "__main__":
    answers, requests = os.dup(1), os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    confine(*eval(sys.argv[1]))
    sys.path[:] = [folder for folder in sys.path if folder]
    _, _, job = requests.readline().decode("ascii").split(" ", 2)
    stand_in = Candidate(answers, requests)
    outcome, detail = run(stand_in, *eval(job))
    stand_in.send("verdict", ascii((outcome, detail[:500])))
