"""What a command's output says about the work: return codes and the tests an agent chose to run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from steproute.ledger import Evidence

_COUNTS = re.compile(r"(\d+) (passed|failed|errors?)\b")
_UNITTEST = re.compile(r"^Ran (\d+) tests?\b", re.MULTILINE)
_FAULTS = re.compile(r"(?:failures|errors)=(\d+)")


def evidence_of(output: Mapping[str, Any]) -> list[Evidence]:
    """A command's return code, and the tests it ran, if it ran any: those the agent chose, not the hidden ones.

    Args:
        output: `output` (text), `returncode` and perhaps `exception_info`, as mini-swe-agent's environments give them.
    """
    text, code = str(output.get("output", "")), output.get("returncode")
    detail = "" if code == 0 else (output.get("exception_info") or f"return code {code}")
    found = [Evidence(source="command", score=float(code == 0), detail=str(detail)[:200])]
    passed, total = _tests(text)
    if total:
        found.append(Evidence(source="own_tests", score=passed / total, count=total))
    return found


def _tests(text: str) -> tuple[int, int]:
    """Tests passed and run, from the summary line of pytest or unittest; 0 of 0 when there is none."""
    tail = text[-4000:]
    for line in reversed(tail.splitlines()):
        counts = {word: int(number) for number, word in _COUNTS.findall(line)} if " in " in line else {}
        if counts:
            passed = counts.get("passed", 0)
            return passed, sum(counts.values())
    ran = _UNITTEST.search(tail)
    if ran is None:
        return 0, 0
    total = int(ran.group(1))
    return max(0, total - sum(map(int, _FAULTS.findall(tail)))), total
