"""A small regression tree (CART) per model, trained once on what was collected (static)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from steproute.policies.base import Floats
from steproute.policies.static import Predictor, StaticConfig, StaticPolicy


class DecisionTree(StaticPolicy):
    """Mean gain of the leaf a step falls into."""

    name = "decision-tree"

    class Config(StaticConfig):
        """Settings of `decision-tree`."""

        depth: int = Field(default=5, ge=1, le=20)
        """Most questions asked of a step."""
        leaf: int = Field(default=5, ge=1)
        """Fewest examples in a leaf."""

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()
        super().__init__(self.config)

    def _train(self, x: Floats, gains: Floats) -> Predictor:
        return grow(x, gains, self.config.depth, self.config.leaf)

    def _predictor(self, state: Any, width: int) -> Predictor:
        return _node(state, width)


@dataclass(frozen=True, slots=True)
class Node:
    """A leaf with its mean, or a question: entry `column` at most `threshold`?"""

    mean: float
    column: int = -1
    threshold: float = 0.0
    low: Node | None = None
    high: Node | None = None

    def __call__(self, x: Floats) -> float:
        """Mean of the leaf that x falls into."""
        node = self
        while node.low is not None and node.high is not None:
            node = node.low if x[node.column] <= node.threshold else node.high
        return node.mean

    def state(self) -> list[Any]:
        """`[mean]` of a leaf; `[mean, column, threshold, low, high]` of a question."""
        if self.low is None or self.high is None:
            return [self.mean]
        return [self.mean, self.column, self.threshold, self.low.state(), self.high.state()]


def _node(state: Any, width: int) -> Node:
    """Read what `Node.state` gave."""
    if len(state) == 1:
        return Node(float(state[0]))
    mean, column, threshold, low, high = state
    if not 0 <= int(column) < width:
        raise ValueError(f"column: seen {column!r}; allowed: 0 to {width - 1}")
    return Node(float(mean), int(column), float(threshold), _node(low, width), _node(high, width))


def grow(x: Floats, y: Floats, depth: int, leaf: int) -> Node:
    """Split where the squared error falls most, as long as it falls.

    Args:
        x: shape (n, d), n at least 1.
        y: shape (n,).
        depth: most splits above a leaf.
        leaf: fewest rows in a leaf.
    """
    mean = float(y.mean())
    found = _best_split(x, y, leaf) if depth > 0 and len(y) >= 2 * leaf else None
    if found is None:
        return Node(mean)
    column, threshold = found
    below = x[:, column] <= threshold
    low, high = grow(x[below], y[below], depth - 1, leaf), grow(x[~below], y[~below], depth - 1, leaf)
    return Node(mean, column, threshold, low, high)


def _best_split(x: Floats, y: Floats, leaf: int) -> tuple[int, float] | None:
    """Column and threshold with the largest fall of the squared error; None where nothing falls."""
    n = len(y)
    best, found = 1e-9, None
    sizes = np.arange(1, n)
    for column in range(x.shape[1]):
        order = np.argsort(x[:, column], kind="stable")
        values, sums = x[order, column], np.cumsum(y[order])
        total = sums[-1]
        fall = sums[:-1] ** 2 / sizes + (total - sums[:-1]) ** 2 / (n - sizes) - total**2 / n
        allowed = (values[:-1] < values[1:]) & (sizes >= leaf) & (n - sizes >= leaf)
        if not allowed.any():
            continue
        i = int(np.argmax(np.where(allowed, fall, -np.inf)))
        if fall[i] > best:
            best, found = float(fall[i]), (column, float(values[i] + values[i + 1]) / 2)
    return found
