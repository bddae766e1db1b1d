"""Numbers as a page may hold them."""

from __future__ import annotations

import math
import sys

import pytest

from steproute.report.values import number


@pytest.mark.parametrize(
    ("value", "right"),
    [
        (1.2345678, 1.2346),
        (3.0, 3),
        (True, None),
        ("3", None),
        (math.nan, None),
        (math.inf, None),
        (1.79769e308, 1.79769e308),  # rounds up to infinity at five digits: kept as it is
        (-sys.float_info.max, -sys.float_info.max),
        (10**400, None),
    ],
)
def test_number(value: object, right: float | None) -> None:
    assert number(value) == right
