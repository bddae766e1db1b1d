"""What the capability model keeps about one context group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

NUMBERS = ("level", "spread", "freedom", "paired", "paired_freedom", "rows", "row_total")
PER_MODEL = ("seen", "total", "heard", "heard_mean", "said", "said_mean")
STORED = ("seen", "total", "said", "said_mean")
"""The lists in a node's state; what it heard follows from what its children said."""


class Node:
    """Sufficient statistics of one group: lists with one entry per column (model).

    Plain lists, since pools are small: below some twenty models Python's own floats are faster than arrays.
    """

    __slots__ = (*NUMBERS, *PER_MODEL, "prior")

    def __init__(self, n: int):
        self.seen = [0.0] * n
        """Own observations: Σ w."""
        self.total = [0.0] * n
        """Own observations: Σ w·z."""
        self.heard = [0.0] * n
        """From the children: Σ precision."""
        self.heard_mean = [0.0] * n
        """From the children: Σ precision·mean."""
        self.said = [0.0] * n
        """Last message to the parent: precision."""
        self.said_mean = [0.0] * n
        """Last message to the parent: precision·mean."""
        self.level = 0.0
        self.spread = self.freedom = 0.0
        """Sum of squares within models over the whole subtree, and its degrees of freedom."""
        self.paired = self.paired_freedom = 0.0
        """The same with each task's own level taken out, from tasks on which all models were seen."""
        self.rows = self.row_total = 0.0
        """Such tasks, and the sum of their mean gains."""
        self.prior: tuple[list[float], float] | None = None
        """Published means (NaN where there is none) and how many observations they are worth."""

    def grow(self, n: int) -> None:
        """Make room for n more models."""
        for name in PER_MODEL:
            getattr(self, name).extend([0.0] * n)
        if self.prior is not None:
            self.prior[0].extend([math.nan] * n)

    def clear(self, column: int) -> None:
        """Drop what is known about one model."""
        for name in PER_MODEL:
            getattr(self, name)[column] = 0.0
        if self.prior is not None:
            self.prior[0][column] = math.nan

    def hush(self, column: int) -> None:
        """Take back all messages about one model, so that they can be told anew."""
        for messages in (self.heard, self.heard_mean, self.said, self.said_mean):
            messages[column] = 0.0

    def state(self, columns: Sequence[int]) -> dict[str, Any]:
        """Plain JSON values, models in the order of `columns`."""
        entry: dict[str, Any] = {name: float(getattr(self, name)) for name in NUMBERS}
        for name in STORED:
            values = getattr(self, name)
            entry[name] = [values[column] for column in columns]
        if self.prior is not None:
            means = [self.prior[0][column] for column in columns]
            entry["prior"] = [None if math.isnan(mean) else mean for mean in means]
            entry["prior_strength"] = self.prior[1]
        return entry

    @classmethod
    def from_state(cls, entry: Mapping[str, Any], n: int) -> Node:
        """Read what `state` gave for n models.

        Raises:
            KeyError, TypeError, ValueError: the entry is malformed.
        """
        node = cls(n)
        for name in NUMBERS:
            setattr(node, name, float(entry[name]))
        for name in STORED:
            values = [float(value) for value in entry[name]]
            if len(values) != n or not all(map(math.isfinite, values)):
                raise ValueError(f"{name}: seen {entry[name]!r}; allowed: {n} finite numbers")
            setattr(node, name, values)
        if "prior" in entry:
            means = [math.nan if mean is None else float(mean) for mean in entry["prior"]]
            node.prior = (means, float(entry["prior_strength"]))
        return node
