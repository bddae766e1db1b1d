"""The models called in a task, as they were at one moment, without copying the list at every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import overload


class Dispatched(Sequence[str]):
    """The first `len` entries of a list that only ever grows."""

    __slots__ = ("_length", "_names")

    def __init__(self, names: list[str]):
        self._names, self._length = names, len(names)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        return islice(self._names, self._length)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self._names[i] for i in range(*index.indices(self._length)))
        return self._names[range(self._length)[index]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Dispatched, tuple, list)) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))
