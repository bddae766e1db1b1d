"""What the capability model keeps about one context group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steproute.policies.base import Floats

ARRAYS = ("seen", "total", "heard", "heard_mean", "said", "said_mean")
NUMBERS = ("level", "spread", "freedom", "paired", "paired_freedom", "rows", "row_total")
STORED = ("seen", "total", "said", "said_mean")
"""The arrays of a node's state; what it heard follows from what its children said."""


class Node:
    """Sufficient statistics of one group; every array has one entry per column (model)."""

    __slots__ = (
        "freedom",
        "heard",
        "heard_mean",
        "level",
        "paired",
        "paired_freedom",
        "prior",
        "row_total",
        "rows",
        "said",
        "said_mean",
        "seen",
        "spread",
        "total",
    )

    def __init__(self, n: int):
        self.seen, self.total = np.zeros(n), np.zeros(n)
        """Own observations: Σ w and Σ w·z."""
        self.heard, self.heard_mean = np.zeros(n), np.zeros(n)
        """From the children: Σ precision and Σ precision·mean."""
        self.said, self.said_mean = np.zeros(n), np.zeros(n)
        """Last message to the parent."""
        self.level = 0.0
        self.spread = self.freedom = 0.0
        """Sum of squares within models over the whole subtree, and its degrees of freedom."""
        self.paired = self.paired_freedom = 0.0
        """The same with each task's own level taken out, from tasks on which all models were seen."""
        self.rows = self.row_total = 0.0
        """Such tasks, and the sum of their mean gains."""
        self.prior: tuple[Floats, float] | None = None
        """Published means (NaN where there is none) and how many observations they are worth."""

    def grow(self, n: int) -> None:
        """Make room for n more models."""
        for name in ARRAYS:
            setattr(self, name, np.pad(getattr(self, name), (0, n)))
        if self.prior is not None:
            self.prior = (np.pad(self.prior[0], (0, n), constant_values=np.nan), self.prior[1])

    def clear(self, column: int) -> None:
        """Drop what is known about one model."""
        for name in ARRAYS:
            getattr(self, name)[column] = 0.0
        if self.prior is not None:
            self.prior[0][column] = np.nan

    def state(self, columns: Sequence[int]) -> dict[str, Any]:
        """Plain JSON values, models in the order of `columns`."""
        entry: dict[str, Any] = {name: float(getattr(self, name)) for name in NUMBERS}
        for name in STORED:
            entry[name] = [float(getattr(self, name)[column]) for column in columns]
        if self.prior is not None:
            values = [float(self.prior[0][column]) for column in columns]
            entry["prior"] = [None if value != value else value for value in values]
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
            values = np.array(entry[name], dtype=np.float64)
            if values.shape != (n,) or not np.isfinite(values).all():
                raise ValueError(f"{name}: seen {entry[name]!r}; allowed: {n} finite numbers")
            setattr(node, name, values)
        if "prior" in entry:
            node.prior = (np.array(entry["prior"], dtype=np.float64), float(entry["prior_strength"]))
        return node
