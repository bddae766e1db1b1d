"""A repository of our own with one bug, as an instance of SWE-bench."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

BUGGY = "def middle(items):\n    return sorted(items)[len(items) / 2]\n"
FIXED = "def middle(items):\n    return sorted(items)[len(items) // 2]\n"
TESTS = """\
from stats import middle


def test_middle():
    assert middle([3, 1, 2]) == 2


def test_import():
    assert callable(middle)
"""
TEST_PATCH = """\
diff --git a/test_stats.py b/test_stats.py
new file mode 100644
--- /dev/null
+++ b/test_stats.py
@@ -0,0 +1,9 @@
""" + "".join(f"+{line}\n" for line in TESTS.splitlines())
EVAL = f"""\
#!/bin/bash
set -uxo pipefail
cd /testbed
git config --global --add safe.directory /testbed
git apply -v - <<'EOF_114329324912'
{TEST_PATCH}EOF_114329324912
: '>>>>> Start Test Output'
PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python -m pytest -rA -p no:cacheprovider test_stats.py
: '>>>>> End Test Output'
rm -f test_stats.py
"""


@dataclass
class Toy:
    """Where the instance file and the clones are."""

    data: Path
    repos: Path


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    repo = tmp_path / "repos" / "own__stats"
    repo.mkdir(parents=True)

    def git(*words: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
        return subprocess.run(["git", *identity, *words], cwd=repo, check=True, capture_output=True, text=True).stdout

    (repo / "stats.py").write_text(BUGGY)
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "start")
    base = git("rev-parse", "HEAD").strip()
    (repo / "stats.py").write_text(FIXED)
    git("commit", "-q", "-a", "-m", "the fix, which the agent must not find in the history")
    instance = {
        "instance_id": "own__stats-1",
        "repo": "own/stats",
        "version": "1",
        "base_commit": base,
        "problem_statement": "middle([3, 1, 2]) raises TypeError",
        "patch": "",
        "test_patch": TEST_PATCH,
        "FAIL_TO_PASS": json.dumps(["test_stats.py::test_middle"]),
        "PASS_TO_PASS": json.dumps(["test_stats.py::test_import"]),
        "image": "none",
        "eval_script": EVAL,
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
    }
    data = tmp_path / "instances.json"
    data.write_text(json.dumps([instance]))
    return Toy(data, tmp_path / "repos")
