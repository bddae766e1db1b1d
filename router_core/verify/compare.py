"""When two results count as the same."""

from __future__ import annotations

import math

RTOL = 1e-7
FLOAT_ATOL = 1e-6


def agree(got: object, expected: object, atol: float = 0.0) -> bool:
    """Equal, or as close as floats can be asked to be.

    The rule of the HumanEval+ and MBPP+ graders: |got − expected| ≤ atol + 1e-7·|expected| wherever the expected value
    is a float; an `atol` of 0 means 1e-6 when the whole expected value is made of floats, and exact equality otherwise.
    Containers must have the same type and length. NaN agrees with NaN.
    """
    if atol == 0 and _all_floats(expected):
        atol = FLOAT_ATOL
    return _agree(got, expected, atol)


def _all_floats(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(_all_floats(item) for item in value)
    return isinstance(value, float)


def _agree(got: object, expected: object, atol: float) -> bool:
    if isinstance(expected, (list, tuple)):
        return (
            type(got) is type(expected)
            and len(got) == len(expected)
            and all(_agree(one, other, atol) for one, other in zip(got, expected, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and got.keys() == expected.keys()
            and all(_agree(got[key], expected[key], atol) for key in expected)
        )
    if isinstance(expected, float) and atol > 0:
        return isinstance(got, (int, float)) and _close(got, expected, atol)
    return got == expected


def _close(got: float, expected: float, atol: float) -> bool:
    if got == expected or (math.isnan(expected) and got != got):
        return True
    try:
        return abs(got - expected) <= atol + RTOL * abs(expected) < math.inf
    except OverflowError:  # an integer too large for a float
        return False
