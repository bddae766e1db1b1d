"""The router's random numbers: those of one seeded numpy generator, drawn in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from steproute.errors import ConfigError

BLOCK = 256
"""Numbers drawn at once: a call of numpy for a few of them costs as much as for all, and far more where it comes seldom."""


class Draws:
    """The stream of `np.random.default_rng(seed)`, whoever takes from it, and in whatever portions."""

    __slots__ = ("_at", "_block", "_generator", "_start")

    def __init__(self, seed: Any = None):
        """Start a stream.

        Args:
            seed: as `np.random.default_rng` takes it; None = from the operating system.

        Raises:
            ConfigError: it is no seed.
        """
        try:
            if isinstance(seed, (np.random.Generator, np.random.BitGenerator)):
                raise TypeError("its stream is another's")
            self._generator = np.random.default_rng(seed)
        except (TypeError, ValueError):
            raise ConfigError(f"seed: seen {seed!r}; allowed: a whole number of 0 or more, or None"[:200]) from None
        self._block: list[float] = []
        """Drawn already; the generator stands behind it."""
        self._at = 0
        """How many of them were given out."""
        self._start: dict[str, Any] = {}
        """State of the generator before the block."""

    def random(self, n: int) -> list[float]:
        """The next n numbers of the stream, uniform in [0, 1): `generator.random(n)` without its price."""
        end = self._at + n
        if end > len(self._block):
            generator = self.generator
            self._start = dict(generator.bit_generator.state)
            self._block = generator.random(max(BLOCK, n)).tolist()
            end = n
        found = self._block[end - n : end]
        self._at = end
        return found

    @property
    def generator(self) -> np.random.Generator:
        """The generator itself, for whatever else is to be drawn from the stream now; not to be kept."""
        if self._block:
            self._generator.bit_generator.state = self._start
            self._generator.random(self._at)
            self._block, self._at = [], 0
        return self._generator

    def state(self) -> str:
        """Where the stream stands, as a short text."""
        state = self._start if self._block else self._generator.bit_generator.state
        numbers = state["state"]
        return (
            f"{numbers['state']:x} {state['has_uint32']} {state['uinteger']} {numbers['inc']:x} {state['bit_generator']}"
            f" {self._at}"
        )

    def load(self, text: str) -> None:
        """Go on where `state` was; a text of another kind of generator is left alone."""
        state, has, value, inc, kind, *at = text.split()
        if self._generator.bit_generator.state["bit_generator"] != kind:
            return
        self._block, self._at = [], 0
        self._generator.bit_generator.state = {
            "bit_generator": kind,
            "state": {"state": int(state, 16), "inc": int(inc, 16)},
            "has_uint32": int(has),
            "uinteger": int(value),
        }
        self.random(int(at[0]) if at else 0)
