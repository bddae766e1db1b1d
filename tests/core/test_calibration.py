from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute.calibration import Isotonic, Quality, brier, expected_calibration_error

pairs = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=40)


def test_isotonic_by_hand():
    """Of the outcomes 0 1 0 1 1 at rising inputs the middle pair violates the order and is pooled at 1/2."""
    found = Isotonic.fit([0.1, 0.3, 0.5, 0.7, 0.9], [0, 1, 0, 1, 1])
    assert found.inputs == pytest.approx((0.1, 0.4, 0.8))
    assert found.outputs == pytest.approx((1 / 7, 1 / 2, 6 / 7))
    assert found(0.4) == pytest.approx(0.5)
    assert found(0.6) == pytest.approx((1 / 2 + 6 / 7) / 2)
    assert (found(0.0), found(1.0)) == pytest.approx((1 / 7, 6 / 7))


def test_equal_inputs_share_one_output():
    found = Isotonic.fit([0.5] * 8, [1, 0, 1, 0, 1, 1, 1, 1])
    assert (found(0.5), found(0.0)) == pytest.approx((0.75, 0.75))


@given(pairs=pairs)
def test_isotonic_rises_and_stays_within_bounds(pairs):
    found = Isotonic.fit(*zip(*pairs, strict=True))
    values = [found(x) for x in np.linspace(0, 1, 21)]
    assert all(low <= high + 1e-12 for low, high in pairwise(values))
    assert 0 < min(values) <= max(values) < 1


@given(pairs=pairs)
def test_isotonic_is_the_best_rising_map_on_its_blocks(pairs):
    """No rising map has a smaller squared error than the pooled means: the max-min formula gives the same values."""
    x, y = (np.array(values, dtype=float) for values in zip(*pairs, strict=True))
    values = np.unique(x)
    sizes, hits = (np.array([f(x == v) for v in values]) for f in (np.sum, lambda mask: y[mask].sum()))
    n = len(values)
    best = [
        max(min(hits[i : j + 1].sum() / sizes[i : j + 1].sum() for j in range(k, n)) for i in range(k + 1))
        for k in range(n)
    ]
    found = Isotonic.fit(x, y)
    margin = 1 / (len(x) + 2)
    assert sorted({round(min(max(b, margin), 1 - margin), 9) for b in best}) == [
        pytest.approx(v, abs=1e-8) for v in sorted({round(v, 9) for v in found.outputs})
    ]


def test_scores_by_hand():
    assert brier([0.5, 0.5], [1, 0]) == 0.25
    assert brier([1.0, 0.0, 0.8], [1, 0, 0]) == pytest.approx(0.64 / 3)
    assert expected_calibration_error([0.72, 0.78], [1, 1]) == pytest.approx(0.25)
    assert expected_calibration_error([0.75, 0.75, 0.75, 0.75, 1.0], [1, 1, 1, 0, 0]) == pytest.approx(0.2)
    assert Quality.of([1.0], [1]) == Quality(0.0, 0.0)


@pytest.mark.parametrize("measure", [brier, expected_calibration_error, Isotonic.fit])
def test_no_data_and_unequal_lengths_are_refused(measure):
    with pytest.raises(ValueError, match="seen 0 probabilities and 0 outcomes"):
        measure([], [])
    with pytest.raises(ValueError, match="seen 2 probabilities and 1 outcomes"):
        measure([0.1, 0.2], [1])
