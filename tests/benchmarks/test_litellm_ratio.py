import math

import pytest

pytest.importorskip("aiohttp")

from steproute.benchmarks.speed.litellm_proxy import ratio


def test_neighbouring_rounds_are_compared():
    assert ratio([([2.0, 8.0], [1.0, 2.0])])[0] == pytest.approx(math.sqrt(2 * 4))


def test_equal_rounds_leave_no_doubt():
    assert ratio([([3.0, 6.0], [2.0, 4.0])]) == (pytest.approx(1.5), pytest.approx(0.0, abs=1e-12))


def test_rounds_widen_the_interval():
    logs = [0.0, 0.2]
    mean, half = ratio([([math.exp(value) for value in logs], [1.0, 1.0])])
    assert half == pytest.approx(mean * 1.96 * 0.2 / math.sqrt(2) / math.sqrt(2))


def test_starts_that_differ_widen_it_further():
    starts = [([math.exp(value)] * 50, [1.0] * 50) for value in (-0.1, 0.0, 0.1)]
    mean, half = ratio(starts)
    assert mean == pytest.approx(1.0)
    assert half == pytest.approx(4.30 * 0.1 / math.sqrt(3))


def test_where_the_system_does_not_say_the_cpu_time_there_is_no_ratio():
    assert all(map(math.isnan, ratio([([0.0, 0.0], [0.0, 0.0])])))
