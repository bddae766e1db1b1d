"""A first-in-first-out sequence as texts that a snapshot can keep: most of them are the same from one snapshot to the next."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

SIZE = 256
"""Items of a full block."""


class Blocks:
    """Cuts a sequence into blocks by the running number of its items; a full block is encoded once."""

    def __init__(self, encode: Callable[[int, int], str], size: int = SIZE):
        """Set up.

        Args:
            encode: text of the items from one running number to before another; it must hold the first of the two.
            size: items of a full block.
        """
        self._encode, self._size = encode, size
        self._made: dict[int, str] = {}
        self._handed = 0
        """Number of the first item that `filled` has not handed out."""

    def texts(self, first: int, end: int) -> list[str]:
        """The blocks of the items that are held.

        Args:
            first: running number of the oldest; a block that was made before older ones left holds those too.
            end: one more than that of the newest.
        """
        size, kept, found = self._size, {}, []
        for start in range(first - first % size, end, size):
            stop = min(start + size, end)
            text = self._made.get(start) or self._encode(max(start, first), stop)
            if stop == start + size:
                kept[start] = text
            found.append(text)
        self._made, self._handed = kept, end - end % size
        return found

    def filled(self, end: int) -> str | None:
        """A block that has become full since the last one that was given, by this or by `texts`; None = there is none."""
        start = self._handed
        if end - start < self._size:
            return None
        self._handed += self._size
        if end - start >= 2 * self._size:  # long ago: its items may have left
            return None
        self._made[start] = self._encode(start, self._handed)
        return self._made[start]

    def adopt(self, first: int, end: int, text: str) -> None:
        """Take over a block that another process made, oldest first."""
        if end % self._size == 0:
            self._made[end - self._size] = text
            self._handed = end


def pack(values: npt.NDArray[Any], kind: str) -> str:
    """An array as base64 of little-endian numbers, e.g. of kind `<f4`."""
    return base64.b64encode(np.asarray(values, dtype=kind).tobytes()).decode("ascii")


def unpack(text: str, kind: str, *shape: int) -> npt.NDArray[Any]:
    """Read what `pack` made.

    Raises:
        ValueError: it is no base64, or not of that shape.
    """
    values: npt.NDArray[Any] = np.frombuffer(base64.b64decode(text, validate=True), dtype=kind)
    return values.reshape(shape).astype(kind[1:])
