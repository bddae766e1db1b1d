"""The program inside the sandbox: holds the candidate's code and answers requests, one line each.

Nothing it says is trusted. Its source, with that of `literals`, is handed to the sandboxed interpreter, which has no
access to this package; imports are few because each costs start-up time.
"""

import os
import sys

from steproute.verify._confine import confine
from steproute.verify.literals import NotALiteral, dumps


def failure(error: BaseException) -> str:
    """Name and text of an exception, as one literal."""
    return ascii((type(error).__name__, str(error)[:500]))


def syntax_failure(error: BaseException) -> str:
    """The same for code that does not compile, with its line."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return ascii((type(error).__name__, f"{text} (line {getattr(error, 'lineno', 0)})"))


# The loop stays at module level: a frame more would shift where a candidate's recursion fails, and so its message.
if __name__ == "__main__":
    answers, requests = os.dup(1), os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    confine(*eval(sys.argv[1]))
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    sys.path[:] = [folder for folder in sys.path if folder]
    owner = os.getpid()
    words = {"inf": float("inf"), "nan": float("nan")}
    space: dict[str, object] = {"__name__": "candidate"}
    for line in requests:
        number, verb, payload = line.decode("ascii").split(" ", 2)
        asked = eval(payload, words)
        kind, answer = "value", "None"
        try:
            if verb == "syntax":
                try:
                    compile(asked, "<candidate>", "exec", dont_inherit=True)
                except (SyntaxError, ValueError) as error:
                    kind, answer = "error", syntax_failure(error)
            elif verb == "load":
                exec(compile(asked, "<candidate>", "exec", dont_inherit=True), space)
            elif verb == "call":
                text = repr(eval(asked, space))
                kind, answer = "text", ascii(text)
            else:
                name, args, kwargs = asked
                if name not in space:
                    raise NameError(f"name {name!r} is not defined")
                result = space[name](*args, **kwargs)  # type: ignore[operator]
                try:
                    answer = dumps(result)
                except NotALiteral as error:
                    kind, answer = "opaque", ascii(str(error))
        except BaseException as error:  # noqa: BLE001 - whatever the candidate raises is its result
            kind, answer = "error", failure(error)
        if os.getpid() != owner:
            os._exit(0)  # a copy the candidate forked and forgot to end
        message = f"{number} {kind} {answer}\n".encode("ascii")
        while message:
            message = message[os.write(answers, message) :]
