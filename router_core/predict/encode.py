"""Features as matrices: one for each path of the predictor, with the names known when it was fitted as columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steproute.predict.buffer import Sample
from steproute.predict.features import MODEL, STATE, STATIC, Floats32, StateFacts

MOST_NAMES = 48
"""Columns for at most so many models and so many roles; rarer ones are described by their numbers alone."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Names that have columns of their own."""

    models: tuple[str, ...]
    roles: tuple[str, ...]

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Vocabulary:
        """The most frequent names."""
        models = Counter(sample.model for sample in samples)
        roles = Counter(sample.state.role for sample in samples)
        return cls(
            tuple(sorted(name for name, _ in models.most_common(MOST_NAMES))),
            tuple(sorted(name for name, _ in roles.most_common(MOST_NAMES))),
        )

    @property
    def structured_width(self) -> int:
        """Columns of the structured matrix."""
        return len(STATE) + len(MODEL) + 3 * len(self.models) + 2 * len(self.roles)

    def structured(self, states: Sequence[StateFacts], models: Sequence[str], numbers: Floats32) -> Floats32:
        """Numbers of the state and the model, then who: the model, the last author, calls per model; role, steps per role.

        Args:
            states: one per row, or a single one for all rows.
            models: the candidate of each row.
            numbers: shape (n, len(MODEL)).

        Returns:
            Shape (n, structured_width).
        """
        n, m, first = len(models), len(self.models), len(STATE) + len(MODEL)
        table = np.zeros((n, self.structured_width), dtype=np.float32)
        table[:, len(STATE) : first] = numbers
        table[:, first : first + m] = one_hot(models, self.models)
        rest = np.stack([self._state_columns(state) for state in states])
        table[:, : len(STATE)] = rest[:, : len(STATE)]
        table[:, first + m :] = rest[:, len(STATE) :]
        return table

    def semantic(self, embeddings: npt.NDArray[np.floating], models: Sequence[str], numbers: Floats32) -> Floats32:
        """The embedding, the model's own six numbers, and which model it is.

        Args:
            embeddings: shape (n, dim) or (1, dim).
            models: the candidate of each row.
            numbers: shape (n, len(MODEL)).

        Returns:
            Shape (n, dim + STATIC + number of models).
        """
        n, dim = len(models), embeddings.shape[1]
        table = np.empty((n, dim + STATIC + len(self.models)), dtype=np.float32)
        table[:, :dim] = embeddings
        table[:, dim : dim + STATIC] = numbers[:, :STATIC]
        table[:, dim + STATIC :] = one_hot(models, self.models)
        return table

    def _state_columns(self, state: StateFacts) -> Floats32:
        return np.concatenate(
            [
                state.numbers,
                one_hot([state.last_model], self.models)[0],
                _counts(state.calls, self.models),
                one_hot([state.role], self.roles)[0],
                _counts(state.roles, self.roles),
            ]
        )


def one_hot(seen: Sequence[str], names: Sequence[str]) -> Floats32:
    """1 in the column of each name, shape (n, number of names); a name without a column gives zeros."""
    table = np.zeros((len(seen), len(names)), dtype=np.float32)
    columns = {name: i for i, name in enumerate(names)}
    for row, name in enumerate(seen):
        if name in columns:
            table[row, columns[name]] = 1.0
    return table


def _counts(counts: Mapping[str, int], names: Sequence[str]) -> Floats32:
    return np.array([counts.get(name, 0) for name in names], dtype=np.float32)
