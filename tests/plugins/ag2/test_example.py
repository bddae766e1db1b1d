from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from servers import OpenAIServer

pytest.importorskip("ag2.network")

EXAMPLE = Path(__file__).parents[3] / "examples" / "ag2_one_line.py"


def test_the_example_runs_and_shows_who_was_called(server: OpenAIServer) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE), server.base_url, "small-1b", "large-70b"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    called = [received.body["model"] for received in server.calls]
    assert len(called) == 2
    said, _, table = ran.stdout.rpartition("\n\n")
    assert said.splitlines()[::2] == [f"coder: {called[0]} speaking", f"critic: {called[1]} speaking"]
    rows = [line.split()[:4] for line in table.splitlines()]
    assert [row[0] for row in rows] == ["coder", "critic"]
    assert {row[1] for row in rows} <= {"small", "large"}
    assert [row[2:] for row in rows] == [["1", "call"]] * 2


def test_the_one_line_is_one_line() -> None:
    text = EXAMPLE.read_text()
    assert text.count("attach(") == 2  # the docstring's and the program's
