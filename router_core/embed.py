"""Text to vectors: the protocol, and a default that needs neither torch nor a download."""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from threading import RLock
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from steproute.errors import ConfigError, unknown_name

Vectors = npt.NDArray[np.float32]

_WORD = re.compile(r"\w+")
_MIX = np.uint64(0x9E3779B97F4A7C15)


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors of one length."""

    name: str
    """Tells apart embedders whose vectors must not be mixed."""
    dim: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row of unit length per text (all zeros for a text without content), float32, shape (n, dim)."""
        ...


class HashEmbedder:
    """Hashed words, word pairs and character 4-grams, signed, damped by a square root, of unit length.

    Deterministic across processes and machines. A text longer than `max_chars` is read at both ends.
    """

    def __init__(self, dim: int = 256, max_chars: int = 8000):
        """Fix the size.

        Args:
            dim: length of the vectors, at least 16.
            max_chars: most characters read of a text.

        Raises:
            ConfigError: `dim` or `max_chars` is too small.
        """
        if dim < 16:
            raise ConfigError(f"embedder hash: dim: seen {dim!r}; allowed: 16 or more")
        if max_chars < 16:
            raise ConfigError(f"embedder hash: max_chars: seen {max_chars!r}; allowed: 16 or more")
        self.dim, self.max_chars = dim, max_chars
        self.name = f"hash-{dim}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`."""
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            self._fill(row, text)
        return rows

    def _fill(self, row: Vectors, text: str) -> None:
        if len(text) > self.max_chars:
            half = self.max_chars // 2
            text = f"{text[:half]} {text[-half:]}"
        words = _WORD.findall(text.lower())
        if not words:
            return
        ids = np.array([zlib.crc32(word.encode(errors="replace")) for word in words], dtype=np.uint64)
        pairs = ids[:-1] * np.uint64(31) + ids[1:] + np.uint64(1 << 40)
        grams = _four_grams(" ".join(words))
        hashes = np.concatenate([ids, pairs, grams])
        # A text has some ten times more 4-grams than words: with equal weights they would drown the words they blur.
        weights = np.repeat((1.0, 0.5, 0.2), (len(ids), len(pairs), len(grams)))
        mixed = hashes * _MIX
        mixed ^= mixed >> np.uint64(29)
        signs = np.where(mixed & np.uint64(1), 1.0, -1.0)
        buckets = ((mixed >> np.uint64(8)) % np.uint64(self.dim)).astype(np.int64)
        sums = np.bincount(buckets, weights * signs, minlength=self.dim)
        damped = np.sign(sums) * np.sqrt(np.abs(sums))
        norm = float(np.linalg.norm(damped))
        if norm > 0:
            row[:] = damped / norm


def _four_grams(text: str) -> npt.NDArray[np.uint64]:
    codes = np.frombuffer(text.encode(errors="replace"), dtype=np.uint8).astype(np.uint64)
    if len(codes) < 4:
        return np.zeros(0, dtype=np.uint64)
    base = np.uint64(1_000_003)
    found = codes[:-3]
    for shift in (1, 2, 3):
        found = found * base + codes[shift : len(codes) - 3 + shift]
    return found + np.uint64(1 << 41)


class RecentTexts:
    """An embedder's vectors of the texts seen last, so that one step embeds its text once."""

    def __init__(self, embedder: Embedder, keep: int = 256):
        """Remember up to `keep` texts."""
        self.embedder = embedder
        self._keep = keep
        self._known: dict[str, Vectors] = {}
        self._order: deque[str] = deque()
        self._lock = RLock()

    def __call__(self, text: str) -> Vectors:
        """The text's embedding, shape (dim,).

        Raises:
            ConfigError: the embedder's answer has another shape than its `dim` says, or values that are not finite.
        """
        with self._lock:
            if text in self._known:
                return self._known[text]
        rows = np.asarray(self.embedder.embed([text]), dtype=np.float32)
        if rows.shape != (1, self.embedder.dim) or not np.isfinite(rows).all():
            raise ConfigError(
                f"embedder {self.embedder.name!r}: seen an answer of shape {rows.shape} for one text; "
                f"needed: finite values of shape (1, {self.embedder.dim})"
            )
        with self._lock:
            if text not in self._known:
                self._known[text] = rows[0].copy()
                self._order.append(text)
                while len(self._order) > self._keep:
                    del self._known[self._order.popleft()]
            found: Vectors = self._known.get(text, rows[0])
            return found


BUILT_IN: dict[str, str] = {
    "hash": "steproute.embed:HashEmbedder",
    "sentence-transformers": "steproute.integrations.embedders:SentenceTransformerEmbedder",
    "wordllama": "steproute.integrations.embedders:WordLlamaEmbedder",
}


def make_embedder(spec: str | Embedder) -> Embedder:
    """Build an embedder.

    Args:
        spec: an embedder (returned as it is), or a name: `"hash"`, `"hash:512"`, `"wordllama"`,
            `"sentence-transformers:NAME_OR_PATH"`, or one announced by a `steproute.embedders` entry point.

    Raises:
        ConfigError: unknown name; the message has the nearest right one.
        ImportError: its extra is not installed; the message names the extra.
    """
    if not isinstance(spec, str):
        return spec
    name, _, argument = spec.partition(":")
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        kind = getattr(import_module(module), attribute)
    else:
        points = {point.name: point for point in entry_points(group="steproute.embedders")}
        if name not in points:
            raise ConfigError(unknown_name("embedder", name, {*BUILT_IN, *points}))
        kind = points[name].load()
    if name == "hash" and argument:
        if not argument.isdigit():
            raise ConfigError(f"embedder hash: dim: seen {argument!r}; allowed: a whole number of 16 or more")
        return HashEmbedder(int(argument))
    built: Embedder = kind(argument) if argument else kind()
    return built
