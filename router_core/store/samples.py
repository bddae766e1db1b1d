"""What the trees were fitted on, read back from the log: a snapshot has the trees alone."""

from __future__ import annotations

import threading

import numpy as np

from steproute.predict.buffer import Sample
from steproute.store.connection import Connection
from steproute.store.rows import unpack_memo

PAGE = 500
"""Lessons that are read at a time: steps do not wait for the connection for longer."""


class SampleLog:
    """Reads samples of a store; in a thread of its own, if need be."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._stopped = threading.Event()

    def latest(self, key: str, last: int, most: int) -> list[Sample]:
        """The latest lessons up to a row as the trees read them, oldest first.

        Args:
            key: of the state's embedding.
            last: row of the latest lesson.
            most: how many lessons.
        """
        samples: list[Sample] = []
        while most > 0 and not self._stopped.is_set():
            rows = self._connection.rows(
                "SELECT e.n, e.task, e.candidate, e.gain, e.reliability, d.memo FROM experiences e "
                "JOIN decisions d ON d.task = e.task AND d.id = e.decision WHERE e.n <= ? ORDER BY e.n DESC LIMIT ?",
                (last, min(most, PAGE)),
            )
            if not rows:
                break
            last, most = rows[-1][0] - 1, most - len(rows)
            for _, task, candidate, gain, reliability, text in rows:
                memo = unpack_memo(text)
                facts, vector = memo.get("facts"), memo.get(key)
                if facts is not None and vector is not None and candidate < len(facts.models):
                    known = (task, facts.models[candidate], facts.state, facts.numbers[candidate])
                    samples.append(Sample(*known, vector.astype(np.float16), float(gain), float(reliability)))
        return samples[::-1]

    def stop(self) -> None:
        """Read no more: the connection is about to be closed."""
        self._stopped.set()
