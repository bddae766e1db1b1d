"""Careful readers of JSON values: a record of another benchmark may lack a field or hold something else in it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

Number = int | float


def number(value: object, digits: int = 5) -> Number | None:
    """A finite number rounded to significant digits; None for anything else, NaN and booleans included."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        exact = float(value)
    except OverflowError:  # an integer beyond what a float, and JavaScript, can hold
        return None
    if not math.isfinite(exact):
        return None
    rounded = float(f"{exact:.{digits}g}")
    if not math.isfinite(rounded):  # rounded up over the largest float
        return exact
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def truth(value: object) -> int | None:
    """1, 0, or None when it is not known."""
    return int(value) if isinstance(value, bool) else None


def text(value: object, longest: int = 400) -> str:
    """A string, cut with an ellipsis; the empty string for None."""
    if value is None:
        return ""
    words = value if isinstance(value, str) else str(value)
    return words if len(words) <= longest else words[: longest - 1] + "…"


def mapping(value: object) -> Mapping[str, Any]:
    """The mapping itself, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def records(value: object) -> list[Mapping[str, Any]]:
    """The mappings in a list; empty for anything else."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def names(value: object) -> list[str]:
    """The entries of a list as strings; empty for anything else."""
    return [text(item) for item in value] if isinstance(value, list) else []


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key under which `HumanEval/9` comes before `HumanEval/10`."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def in_order(found: Iterable[str], wanted: Iterable[str] = ()) -> list[str]:
    """Distinct names: those of `wanted` that were found in that order, then the rest in natural order."""
    seen = set(found)
    first = [name for name in dict.fromkeys(wanted) if name in seen]
    return first + sorted(seen.difference(first), key=natural)
