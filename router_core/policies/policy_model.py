"""A small policy model: which model for which request, learnt online from what was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic_core import from_json, to_json

from steproute.blocks import Blocks, pack, unpack
from steproute.embed import Vectors
from steproute.policies.base import Floats

DIMENSIONS = 32
"""Columns for dimensions; more of them share columns."""
LEAST_PROPENSITY = 0.05


class SoftmaxPolicyModel:
    """Multinomial logistic regression over models, in numpy, from bandit feedback.

    Features are the request's embedding and its dimension. The loss of an experience is −(reward − baseline)/p · log π(a):
    p is the probability with which the model was drawn, the baseline is the running mean reward of the dimension, so
    that what is drawn often is not taken for good, and a bad result pushes away. Every experience is followed by a
    batch of earlier ones; the time per experience is constant.
    """

    def __init__(self, dim: int, rate: float = 0.3, keep: int = 4000, batch: int = 32, seed: int = 0):
        """Start without an opinion.

        Args:
            dim: length of the embeddings; 0 = none.
            rate: step size of AdaGrad.
            keep: experiences kept for the batches.
            batch: earlier experiences that each new one is followed by.
            seed: of the draws of the batches.
        """
        self.dim, self.rate, self.keep, self.batch = dim, rate, keep, batch
        self.width = dim + DIMENSIONS + 1
        self.names: list[str] = []
        self.seen = 0
        self._weights = np.zeros((self.width, 0))
        self._squares = np.zeros((self.width, 0))
        self._dimensions: dict[str, int] = {}
        self._means: dict[str, tuple[float, float]] = {}
        self._features = np.zeros((0, self.width), dtype=np.float32)
        self._actions: list[int] = []
        self._advantages: list[float] = []
        self._rng = np.random.default_rng(seed)
        self._blocks = Blocks(self._encode)

    def probabilities(self, dimension: str, embedding: Vectors | None, models: list[str]) -> Floats | None:
        """Probability per model, shape (n,); None while nothing is known of any of them."""
        known = [self.names.index(name) if name in self.names else -1 for name in models]
        if max(known, default=-1) < 0:
            return None
        logits = self._feature(dimension, embedding) @ self._weights
        mine = np.array([logits[i] if i >= 0 else 0.0 for i in known])
        exp = np.exp(mine - mine.max())
        return np.asarray(exp / exp.sum(), dtype=np.float64)

    def learn(
        self, dimension: str, embedding: Vectors | None, model: str, reward: float, propensity: float = 1.0
    ) -> None:
        """Take in one experience.

        Args:
            dimension: of the request.
            embedding: of the request, shape (dim,); None = no text.
            model: the one that was tried.
            reward: what came of it, about 0 … 1.
            propensity: probability with which it was drawn; less than .05 counts as .05.
        """
        weight, total = self._means.get(dimension, (0.0, 0.0))
        baseline = (total + 0.5) / (weight + 1.0)
        self._means[dimension] = (weight + 1.0, total + reward)
        self._remember(
            self._feature(dimension, embedding),
            self._action(model),
            (reward - baseline) / max(propensity, LEAST_PROPENSITY),
        )
        rows = np.append(self._rng.integers(0, len(self._actions), size=self.batch), self._latest)
        self._step(rows)

    # --- state -----------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], list[str]]:
        """Everything learnt as plain JSON values, and the experiences for the batches as blocks of JSON text."""
        kept = {
            "width": self.width,
            "names": list(self.names),
            "weights": pack(self._weights, "<f8"),
            "squares": pack(self._squares, "<f8"),
            "dimensions": dict(self._dimensions),
            "means": {name: list(sums) for name, sums in self._means.items()},
            "rng": self._rng.bit_generator.state,
            "seen": self.seen,
            "held": len(self._actions),
        }
        return kept, self._blocks.texts(self.seen - len(self._actions), self.seen)

    def load(self, state: Mapping[str, Any], blocks: Sequence[str]) -> None:
        """Take over what `state` gave; nothing changes if that fails.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the state is malformed, or of features of another width.
        """
        if state["width"] != self.width:
            raise ValueError(f"features: seen {state['width']!r}; allowed: {self.width}")
        names = [str(name) for name in state["names"]]
        weights, squares = (unpack(state[key], "<f8", self.width, len(names)) for key in ("weights", "squares"))
        seen, held = int(state["seen"]), int(state["held"])
        if held != min(seen, self.keep):
            raise ValueError(f"experiences: seen {held} of {seen}; allowed: the latest {self.keep}")
        made = Blocks(self._encode)
        features = np.zeros((held, self.width), dtype=np.float32)
        actions, advantages = [-1] * held, [0.0] * held
        for text in blocks:
            block = from_json(text)
            start, end = int(block["first"]), int(block["first"]) + len(block["actions"])
            rows = unpack(block["features"], "<f4", end - start, self.width)
            for n in range(max(start, seen - held), min(end, seen)):
                slot = n % self.keep
                actions[slot] = int(block["actions"][n - start])
                advantages[slot] = float(block["advantages"][n - start])
                features[slot] = rows[n - start]
            made.adopt(start, end, text)
        if not all(0 <= action < len(names) for action in actions):
            raise ValueError("experiences: some are missing, or of models that are not named")
        means = {str(name): (float(n), float(total)) for name, (n, total) in state["means"].items()}
        dimensions = {str(name): int(column) for name, column in state["dimensions"].items()}
        rng = np.random.default_rng()
        rng.bit_generator.state = state["rng"]
        self.names, self._weights, self._squares, self.seen = names, weights, squares, seen
        self._features, self._actions, self._advantages = features, actions, advantages
        self._means, self._dimensions, self._rng, self._blocks = means, dimensions, rng, made

    def filled(self) -> str | None:
        """A block that is full since the last one given, see `Blocks.filled`."""
        return self._blocks.filled(self.seen)

    def _encode(self, first: int, end: int) -> str:
        slots = [n % self.keep for n in range(first, end)]
        return to_json(
            {
                "first": first,
                "actions": [self._actions[slot] for slot in slots],
                "advantages": [self._advantages[slot] for slot in slots],
                "features": pack(self._features[slots], "<f4"),
            }
        ).decode()

    # --- inside ----------------------------------------------------------------------------------------------

    def _step(self, rows: npt.NDArray[np.int64]) -> None:
        features = self._features[rows].astype(np.float64)
        actions = np.array([self._actions[row] for row in rows])
        advantages = np.clip([self._advantages[row] for row in rows], -5.0, 5.0)
        logits = features @ self._weights
        exp = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = exp / exp.sum(axis=1, keepdims=True)
        error[np.arange(len(rows)), actions] -= 1.0
        gradient = features.T @ (error * advantages[:, None]) / len(rows) + 1e-4 * self._weights
        self._squares += gradient**2
        self._weights -= self.rate * gradient / (np.sqrt(self._squares) + 1e-8)

    def _remember(self, feature: npt.NDArray[np.float32], action: int, advantage: float) -> None:
        count = len(self._actions)
        if count < self.keep:
            if count == len(self._features):
                wider = np.zeros((min(max(2 * count, 64), self.keep), self.width), dtype=np.float32)
                wider[:count] = self._features
                self._features = wider
            self._latest = count
            self._actions.append(action)
            self._advantages.append(advantage)
        else:
            self._latest = self.seen % self.keep
            self._actions[self._latest], self._advantages[self._latest] = action, advantage
        self._features[self._latest] = feature
        self.seen += 1

    def _action(self, model: str) -> int:
        if model not in self.names:
            self.names.append(model)
            column = np.zeros((self.width, 1))
            self._weights = np.hstack([self._weights, column])
            self._squares = np.hstack([self._squares, column])
        return self.names.index(model)

    def _feature(self, dimension: str, embedding: Vectors | None) -> npt.NDArray[np.float32]:
        feature = np.zeros(self.width, dtype=np.float32)
        if embedding is not None and self.dim:
            feature[: self.dim] = embedding
        column = self._dimensions.setdefault(dimension, len(self._dimensions) % DIMENSIONS)
        feature[self.dim + column] = 1.0
        feature[-1] = 1.0
        return feature
