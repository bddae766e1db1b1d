"""Verdicts are found again, but never for other code, tests, limits or a better sandbox."""

import json
import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import pytest

from steproute.verify import Example, ExampleFailure, Sandbox, SandboxLimits, Verdict, VerdictCache

CODE, TEST = "def f(x): return x + 1", "def check(candidate):\n    assert candidate(1) == 2"


class Counted:
    """A check that counts its runs."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.runs = 0

    def __call__(self) -> Verdict:
        self.runs += 1
        return self.verdict


GOOD = Verdict(True, "passed", "1 calls", False, 0.25)


def test_a_verdict_is_made_once_and_survives_the_process(any_sandbox, tmp_path):
    check = Counted(GOOD)
    path = tmp_path / "new" / "verdicts.jsonl"
    cache = VerdictCache(path)
    assert cache.get_or_check(CODE, TEST, any_sandbox, check) == GOOD
    assert cache.get_or_check(CODE, TEST, any_sandbox, check) == GOOD
    assert VerdictCache(path).get_or_check(CODE, TEST, any_sandbox, check) == GOOD
    assert check.runs == 1


def test_anything_else_is_checked_again(any_sandbox, tmp_path):
    check = Counted(GOOD)
    cache = VerdictCache(tmp_path / "v")
    cache.get_or_check(CODE, TEST, any_sandbox, check)
    cache.get_or_check(CODE + " ", TEST, any_sandbox, check)
    cache.get_or_check(CODE, TEST + " ", any_sandbox, check)
    cache.get_or_check(CODE + TEST[:1], TEST[1:], any_sandbox, check)
    assert check.runs == 4
    for field, value in {"cpu_seconds": 9, "memory_bytes": 1 << 30, "wall_seconds": 2.5, "processes": 3}.items():
        other = Sandbox(SandboxLimits(**{field: value}), kind=any_sandbox.kind)
        cache.get_or_check(CODE, TEST, other, check)
    assert check.runs == 8


def test_a_better_sandbox_does_not_trust_a_plain_subprocess(walled, tmp_path):
    plain = Sandbox(walled.limits, kind="subprocess", python=walled.launcher.interpreter)
    cache = VerdictCache(tmp_path / "v")
    unsafe = cache.tests(CODE, TEST, "f", sandbox=plain)
    assert (unsafe.passed, unsafe.unsafe) == (True, True)
    safe = cache.tests(CODE, TEST, "f", sandbox=walled)
    assert (safe.passed, safe.unsafe) == (True, False)
    assert VerdictCache(tmp_path / "v").tests(CODE, TEST, "f", sandbox=plain) == safe


def test_examples_are_kept_too(any_sandbox, tmp_path):
    examples = [Example("f(1)", "2"), Example("f(1)", "3")]
    first = VerdictCache(tmp_path / "v").examples(CODE, examples, sandbox=any_sandbox)
    assert first.failures == (ExampleFailure("f(1)", "3", "2"),)
    (tmp_path / "v").rename(tmp_path / "w")
    (entry,) = map(json.loads, (tmp_path / "w").read_text().splitlines())
    entry["result"]["passed"] = 7  # to see that it is read, not run
    (tmp_path / "w").write_text(json.dumps(entry) + "\n")
    again = VerdictCache(tmp_path / "w").examples(CODE, examples, sandbox=any_sandbox)
    assert (again.passed, again.failures) == (7, first.failures)


def test_recorded_verdicts_of_another_python_are_found_when_asked_for(any_sandbox, tmp_path):
    path = tmp_path / "v"
    check = Counted(GOOD)
    VerdictCache(path).get_or_check(CODE, TEST, any_sandbox, check)
    here = any_sandbox.launcher.version
    assert json.loads(path.read_text())["python"] == here
    VerdictCache(path, python=here, readonly=True).get_or_check(CODE, TEST, any_sandbox, check)
    assert check.runs == 1
    VerdictCache(path, python="2.7", readonly=True).get_or_check(CODE, TEST, any_sandbox, check)
    assert check.runs == 2


def test_a_readonly_cache_writes_nothing(any_sandbox, tmp_path):
    check = Counted(GOOD)
    cache = VerdictCache(tmp_path / "v", readonly=True)
    cache.get_or_check(CODE, TEST, any_sandbox, check)
    cache.get_or_check(CODE, TEST, any_sandbox, check)
    assert check.runs == 1
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize(
    "damage",
    [
        b'{"key": "tests:',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b'{"key": 1}\n',
        b'{"key": "tests:x", "kind": "tests", "result": {"passed": "perhaps", "reason": "passed"}}\n',
        b'{"key": "tests:x", "kind": "other", "result": {}}\n',
        b"null\n\n",
    ],
)
def test_torn_and_malformed_lines_are_skipped(any_sandbox, tmp_path, damage):
    path = tmp_path / "v"
    path.write_bytes(damage)
    check = Counted(GOOD)
    VerdictCache(path).get_or_check(CODE, TEST, any_sandbox, check)
    assert VerdictCache(path).get_or_check(CODE, TEST, any_sandbox, check) == GOOD
    assert check.runs == 1
    assert path.read_bytes().startswith(damage)


def test_one_process_sees_what_another_wrote(any_sandbox, tmp_path):
    check = Counted(GOOD)
    one, other = VerdictCache(tmp_path / "v"), VerdictCache(tmp_path / "v")
    one.get_or_check("a", TEST, any_sandbox, check)
    other.get_or_check("b", TEST, any_sandbox, check)
    one.get_or_check("b", TEST, any_sandbox, check)
    other.get_or_check("a", TEST, any_sandbox, check)
    assert check.runs == 2


def _fill(path, name):
    cache = VerdictCache(path)
    sandbox = Sandbox(kind="subprocess")
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(cache.get_or_check, f"{name}{n}", "t" * 5000, sandbox, lambda: GOOD) for n in range(100)]
        for job in jobs:
            job.result()


def test_two_processes_may_write_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    path = tmp_path / "v"
    writers = [context.Process(target=_fill, args=(path, name)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0]
    keys = [json.loads(line)["key"] for line in path.read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 200
