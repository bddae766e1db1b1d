"""Experience memory: past steps found again by the likeness of their embeddings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from threading import RLock
from typing import Any, Protocol, runtime_checkable

import numpy as np
from pydantic_core import from_json, to_json

from steproute.blocks import Blocks, pack, unpack
from steproute.embed import Embedder, Vectors
from steproute.errors import ConfigError

CAPACITY = 20_000
STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Experience:
    """One past step."""

    embedding: Vectors
    """Shape (dim,), float32. Need not be of unit length."""
    model: str
    score: float
    """What the verifier said, in [0, 1]."""
    cost: Mapping[str, float] = field(default_factory=dict)
    """What the call cost per resource."""
    trace: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON values: task, step, role, group, what was verified. No prompt text."""

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError("experience: model: seen ''; needed: the name of the model that served the step")
        if not (math.isfinite(self.score) and 0 <= self.score <= 1):
            raise ConfigError(f"experience: score: seen {self.score!r}; allowed: a number from 0 to 1")
        if self.embedding.ndim != 1 or not np.isfinite(self.embedding).all():
            raise ConfigError(
                f"experience: embedding: seen shape {self.embedding.shape} with values that may not be finite; "
                "needed: one finite vector"
            )


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A past step and how alike it is."""

    experience: Experience
    similarity: float
    """Cosine, in [−1, 1]; 0 when either vector is all zeros."""


@runtime_checkable
class ExperienceMemory(Protocol):
    """Holds the latest `capacity` experiences, first in, first out. Safe to share between threads.

    One that ends with the process has `state()` and `load(state)` as well, see `ExactMemory`: a store then keeps it. One
    without them outlives the process by itself.
    """

    dim: int
    capacity: int

    def __len__(self) -> int:
        """How many experiences are held."""
        ...

    def __iter__(self) -> Iterator[Experience]:
        """All experiences, oldest first."""
        ...

    def add(self, experience: Experience) -> None:
        """Take one in; the oldest leaves when the memory is full.

        Raises:
            ConfigError: the embedding has another dimension than the memory.
        """
        ...

    def nearest(self, embedding: Vectors, k: int = 10) -> list[Neighbour]:
        """The k most similar experiences, most similar first, the newer one first among equals.

        Raises:
            ConfigError: the embedding has another dimension than the memory.
        """
        ...


def check_dim(memory_dim: int, seen: int, memory: str, other: str) -> None:
    """Refuse vectors of another length.

    Raises:
        ConfigError: the lengths differ; names both sides.
    """
    if memory_dim != seen:
        raise ConfigError(
            f"{memory} holds vectors of dimension {memory_dim}, {other} has dimension {seen}; "
            "use the embedder the memory was filled with, or start a new memory"
        )


def check_embedder(memory: ExperienceMemory, embedder: Embedder) -> None:
    """Refuse an embedder whose vectors do not fit a memory.

    Raises:
        ConfigError: the dimensions differ; names the memory and the embedder.
    """
    check_dim(memory.dim, embedder.dim, f"memory {type(memory).__name__}", f"embedder {embedder.name!r}")


class ExactMemory:
    """Exact cosine search in one numpy array.

    The array is stored as (dim, slots): a product with one query then streams through memory and stays on one core,
    about twice as fast as with one row per experience.
    """

    def __init__(self, dim: int, capacity: int = CAPACITY):
        """Set up an empty memory; the array grows with what is added.

        Args:
            dim: length of the embeddings.
            capacity: most experiences held.

        Raises:
            ConfigError: `dim` or `capacity` is below 1.
        """
        if dim < 1 or capacity < 1:
            raise ConfigError(f"memory: dim and capacity: seen {dim!r} and {capacity!r}; allowed: 1 or more")
        self.dim, self.capacity = dim, capacity
        self._columns = np.zeros((dim, min(capacity, 256)), dtype=np.float32)
        self._entries: list[Experience] = []
        self._next = 0
        """Slot the next experience goes to; once full it is the slot of the oldest."""
        self._added = 0
        """Running number of the next experience."""
        self._blocks = Blocks(self._encode)
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Experience]:
        with self._lock:
            turn = self._next if len(self._entries) == self.capacity else 0
            return iter([*self._entries[turn:], *self._entries[:turn]])

    def add(self, experience: Experience) -> None:
        """See `ExperienceMemory.add`."""
        check_dim(self.dim, experience.embedding.shape[0], "memory", "the experience's embedding")
        with self._lock:
            slot = self._next
            if slot == self._columns.shape[1]:
                wider = np.zeros((self.dim, min(2 * slot, self.capacity)), dtype=np.float32)
                wider[:, :slot] = self._columns
                self._columns = wider
            self._columns[:, slot] = unit(experience.embedding)
            if slot == len(self._entries):
                self._entries.append(experience)
            else:
                self._entries[slot] = experience
            self._next = (slot + 1) % self.capacity
            self._added += 1

    def nearest(self, embedding: Vectors, k: int = 10) -> list[Neighbour]:
        """See `ExperienceMemory.nearest`."""
        check_dim(self.dim, embedding.shape[0], "memory", "the query's embedding")
        with self._lock:
            n = len(self._entries)
            if n == 0 or k < 1:
                return []
            # Rounding makes equal vectors equal again: the product's last bits depend on the column.
            likeness = np.round(unit(embedding) @ self._columns[:, :n], 6)
            if k < n:
                floor = np.partition(likeness, n - k)[n - k]
                slots = np.flatnonzero(likeness >= floor)
            else:
                slots = np.arange(n)
            age = (self._next - 1 - slots) % max(n, 1)
            best = slots[np.lexsort((age, -likeness[slots]))][:k]
            return [Neighbour(self._entries[slot], float(likeness[slot])) for slot in best]

    # --- state -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Every experience as plain JSON values: `blocks` of JSON text, with embeddings as base64 of float32."""
        with self._lock:
            held = len(self._entries)
            blocks = self._blocks.texts(self._added - held, self._added)
            return {"version": STATE_VERSION, "dim": self.dim, "held": held, "added": self._added, "blocks": blocks}

    def load(self, state: Mapping[str, Any]) -> None:
        """Hold what `state` gave, and nothing else; nothing changes if that fails.

        Raises:
            ConfigError: the state is of another version or dimension, or malformed.
        """
        seen = (state.get("version"), state.get("dim"))
        if seen != (STATE_VERSION, self.dim):
            raise ConfigError(f"memory state: version and dim: seen {seen}; allowed: {(STATE_VERSION, self.dim)}")
        fresh, made = ExactMemory(self.dim, self.capacity), Blocks(self._encode)
        try:
            added, first = int(state["added"]), int(state["added"]) - int(state["held"])
            fresh._added = first
            for text in state["blocks"]:
                start, experiences = _decode(text, self.dim)
                if start > fresh._added:
                    raise ValueError(f"seen number {start}; needed: {fresh._added}")
                for experience in experiences[fresh._added - start :]:
                    fresh.add(experience)
                made.adopt(start, start + len(experiences), text)
            if fresh._added != added:
                raise ValueError(f"seen experiences up to number {fresh._added}; needed: {added}")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"memory state: {type(error).__name__}: {error}"[:300]) from None
        with self._lock:
            self._columns, self._entries = fresh._columns, fresh._entries
            self._next, self._added, self._blocks = fresh._next, fresh._added, made

    def filled(self) -> str | None:
        """A block that is full since the last one given, see `Blocks.filled`."""
        return self._blocks.filled(self._added)

    def _encode(self, first: int, end: int) -> str:
        start = self._next - self._added  # from a running number to its slot
        items = [self._entries[(n + start) % self.capacity] for n in range(first, end)]
        embeddings = pack(np.array([item.embedding for item in items]), "<f4")
        rows = [[item.model, item.score, dict(item.cost), dict(item.trace)] for item in items]
        return to_json({"first": first, "rows": rows, "embeddings": embeddings}).decode()


def _decode(text: str, dim: int) -> tuple[int, list[Experience]]:
    """A block's first running number and its experiences."""
    block = from_json(text)
    rows = zip(unpack(block["embeddings"], "<f4", len(block["rows"]), dim), block["rows"], strict=True)
    return int(block["first"]), [Experience(vector, *row) for vector, row in rows]


def unit(vector: Vectors) -> Vectors:
    """The vector at length 1, float32; zeros stay zeros."""
    norm = float(np.linalg.norm(vector))
    scaled: Vectors = np.asarray(vector, dtype=np.float32) / np.float32(norm) if norm > 0 else np.zeros_like(vector)
    return scaled


def make_memory(spec: str, dim: int, capacity: int = CAPACITY, embedder: str = "") -> ExperienceMemory:
    """Build a memory by name.

    Args:
        spec: `"exact"` (in this process), `"chroma:FOLDER"` (embedded Chroma), or `"chroma://HOST:PORT"` (its server).
        dim: length of the embeddings.
        capacity: most experiences held.
        embedder: name of the embedder, kept where the memory outlives the process.

    Raises:
        ConfigError: unknown name, or the stored memory does not fit.
        ImportError: the extra is missing; names it.
    """
    kind, _, place = spec.partition(":")
    if spec == "exact":
        return ExactMemory(dim, capacity)
    if kind != "chroma" or not place:
        raise ConfigError(f"memory: seen {spec!r}; allowed: exact, chroma:FOLDER, chroma://HOST:PORT")
    # by name: the core imports no integration until a user asks for it
    chroma = getattr(import_module("steproute.integrations.chroma"), "ChromaMemory")  # noqa: B009
    if place.startswith("//"):
        host, _, port = place[2:].partition(":")
        if not host or not (port or "8000").isdigit():
            raise ConfigError(f"memory: seen {spec!r}; allowed: chroma://HOST:PORT with a whole number as port")
        built: ExperienceMemory = chroma(dim, capacity, host=host, port=int(port or 8000), embedder=embedder)
    else:
        built = chroma(dim, capacity, path=place, embedder=embedder)
    return built
