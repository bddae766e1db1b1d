"""What the team of agents says: the prompts, the tester's report and the rules of the loop.

These texts are part of every recorded request: changing one makes the recordings stale.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_ATTEMPTS = 3
MAX_TOKENS = 288
STOP = ["\n```\n"]

CODER = "You are an expert Python programmer."
FIXER = "You are an expert Python programmer who reviews and corrects code."
_RULES = "Reply with only the function in one ```python block: no docstring, no comments, no explanation."
_CORRECT = f"Correct it. {_RULES}"
_REVIEW = f"Check it against the whole description and correct it if needed. {_RULES}"


@dataclass(frozen=True)
class Failure:
    """One thing that went wrong: `call` gave `got` (a literal, or `Error: message`) where `expected` was right."""

    call: str
    expected: str
    got: str


@dataclass(frozen=True)
class VisibleReport:
    """What the tester can honestly know: the code, a syntax or start-up error, the examples that passed or failed."""

    code: str
    error: str = ""
    passed: int = 0
    failures: Sequence[Failure] = ()

    @property
    def total(self) -> int:
        """Examples that were run."""
        return self.passed + len(self.failures)

    @property
    def ok(self) -> bool:
        """There is code, no error and no failing example; true as well where the problem shows no example at all."""
        return bool(self.code) and not self.error and not self.failures


def problem_message(prompt: str) -> str:
    """The task as the group chat's first message."""
    return f"Complete this function:\n\n```python\n{prompt.strip()}\n```\n{_RULES}"


def report_message(report: VisibleReport) -> str:
    """The tester's message: what was run and what came out, at most three failures."""
    if not report.code:
        return f"There is no Python code in the last reply. {_RULES}"
    head = f"I ran this code:\n\n```python\n{report.code}\n```\n\n"
    if report.error:
        return f"{head}It fails before any test: {normalise(report.error)}\n{_CORRECT}"
    if report.failures:
        lines = [f"It fails {len(report.failures)} of {report.total} examples:"]
        for failure in report.failures[:3]:
            lines.append(
                f"- {normalise(failure.call)} gives {normalise(failure.got)}, expected {normalise(failure.expected)}"
            )
        return head + "\n".join([*lines, _CORRECT])
    shown = (
        f"It passes all {report.total} examples of the problem."
        if report.total
        else "It starts without an error; the problem shows no example to test."
    )
    return f"{head}{shown}\n{_REVIEW}"


def normalise(text: str, width: int = 160) -> str:
    """One short line without addresses, so that the same result always gives the same message."""
    text = re.sub(r"0x[0-9a-fA-F]{4,}", "0x", " ".join(text.split()))
    return text if len(text) <= width else text[: width - 1] + "…"


def first_messages(prompt: str) -> list[dict[str, str]]:
    """Roles and contents of the coder's request."""
    return [{"role": "system", "content": CODER}, {"role": "user", "content": problem_message(prompt)}]


def next_messages(prompt: str, report: VisibleReport) -> list[dict[str, str]]:
    """Roles and contents of the fixer's request: the task and the tester's last report, nothing older."""
    return [
        {"role": "system", "content": FIXER},
        {"role": "user", "content": problem_message(prompt)},
        {"role": "user", "content": report_message(report)},
    ]
