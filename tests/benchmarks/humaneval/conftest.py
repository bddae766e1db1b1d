from __future__ import annotations

from pathlib import Path

import pytest

from steproute.benchmarks.humaneval.problems import Problem
from steproute.benchmarks.humaneval.tester import Tester
from steproute.verify.cache import VerdictCache
from steproute.verify.sandbox import Sandbox


@pytest.fixture
def problem() -> Problem:
    prompt = 'def inc(x):\n    """Add one.\n    >>> inc(1)\n    2\n    """\n'
    return Problem(
        "Own/0",
        prompt,
        "inc",
        "    return x + 1\n",
        "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(5) == 6\n",
    )


@pytest.fixture
def tester(tmp_path: Path) -> Tester:
    cache = VerdictCache(tmp_path / "verdicts.jsonl")
    return Tester(Sandbox(), cache, cache)
