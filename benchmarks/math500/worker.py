"""A process that reads and compares answers by math-verify: its time limits need a main thread, and sympy may need killing.

Reads one JSON list per line and answers with one JSON value: `["read", REPLY]` → the answer as text or null;
`["same", LATEX, LATEX]` → true or false.
"""

from __future__ import annotations

import json
import logging
import resource
import sys

SECONDS = 5
MEMORY = 4 << 30
"""Bytes of address space."""


def main() -> None:
    """Answer until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    logging.disable(logging.CRITICAL)
    from math_verify import parse, verify

    def boxed(text: str) -> str:
        return f"$\\boxed{{{text}}}$"

    answers, sys.stdout = sys.stdout, sys.stderr  # nothing but answers may reach the pipe
    for line in sys.stdin:
        request = json.loads(line)
        found: str | bool | None
        try:
            if request[0] == "read":
                read = parse(request[1], parsing_timeout=SECONDS)
                found = str(read[-1]) if read else None
            else:
                one, other = (parse(boxed(text), parsing_timeout=SECONDS) for text in request[1:])
                found = bool(one and other and verify(one, other, timeout_seconds=SECONDS))
        except (Exception, MemoryError):  # noqa: BLE001  # whatever a parser makes of a model's text: no answer
            found = None if request[0] == "read" else False
        answers.write(json.dumps(found) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
