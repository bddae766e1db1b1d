"""What the capability model keeps about one context group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steproute.policies.base import Floats

NUMBERS = ("level", "spread", "freedom", "paired", "paired_freedom", "rows", "row_total")
STORED = {"seen": ("own", 0), "total": ("own", 1), "said": ("said", 0), "said_mean": ("said", 1)}
"""The rows of a node's state, by name; what it heard follows from what its children said."""


class Node:
    """Sufficient statistics of one group: arrays of two rows, with one entry per column (model)."""

    __slots__ = (
        "freedom",
        "heard",
        "level",
        "own",
        "paired",
        "paired_freedom",
        "prior",
        "row_total",
        "rows",
        "said",
        "spread",
    )

    def __init__(self, n: int):
        self.own: Floats = np.zeros((2, n))
        """Own observations: Σ w and Σ w·z."""
        self.heard: Floats = np.zeros((2, n))
        """From the children: Σ precision and Σ precision·mean."""
        self.said: Floats = np.zeros((2, n))
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
        self.own, self.heard, self.said = (np.pad(rows, ((0, 0), (0, n))) for rows in (self.own, self.heard, self.said))
        if self.prior is not None:
            self.prior = (np.pad(self.prior[0], (0, n), constant_values=np.nan), self.prior[1])

    def clear(self, column: int) -> None:
        """Drop what is known about one model."""
        for rows in (self.own, self.heard, self.said):
            rows[:, column] = 0.0
        if self.prior is not None:
            self.prior[0][column] = np.nan

    def state(self, columns: Sequence[int]) -> dict[str, Any]:
        """Plain JSON values, models in the order of `columns`."""
        entry: dict[str, Any] = {name: float(getattr(self, name)) for name in NUMBERS}
        for name, (rows, row) in STORED.items():
            entry[name] = [float(getattr(self, rows)[row, column]) for column in columns]
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
        for name, (rows, row) in STORED.items():
            values = np.array(entry[name], dtype=np.float64)
            if values.shape != (n,) or not np.isfinite(values).all():
                raise ValueError(f"{name}: seen {entry[name]!r}; allowed: {n} finite numbers")
            getattr(node, rows)[row] = values
        if "prior" in entry:
            node.prior = (np.array(entry["prior"], dtype=np.float64), float(entry["prior_strength"]))
        return node
