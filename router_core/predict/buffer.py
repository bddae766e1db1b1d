"""Where observed gains are kept until the predictor is fitted: the protocol, in memory, and in a file."""

from __future__ import annotations

import base64
import json
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from steproute.errors import ConfigError
from steproute.predict.features import FEATURE_VERSION, MODEL, STATE, Floats32, StateFacts

logger = logging.getLogger("steproute")

CAPACITY = 20_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One observed gain with what was known before the choice. Holds no text."""

    task: str
    """Folds are cut by task, never by step."""
    model: str
    state: StateFacts
    numbers: Floats32
    """The model's numbers, shape (len(MODEL),)."""
    embedding: npt.NDArray[np.float16]
    """Embedding of the state's summary, shape (dim,). Half precision, in memory as in the file."""
    gain: float
    """y = g(s') − g(s)."""
    weight: float
    """Reliability of the evidence behind it, in (0, 1]."""


class GainBuffer(Protocol):
    """Keeps the latest samples. `append` is called from one thread at a time, `rows` from any."""

    def append(self, sample: Sample) -> None:
        """Keep one more; the oldest may leave."""
        ...

    def precede(self, samples: Sequence[Sample]) -> None:
        """Put samples of an earlier process, oldest first, before those that are held, as far as there is room."""
        ...

    def rows(self) -> Sequence[Sample]:
        """A copy of what is held, oldest first."""
        ...

    def __len__(self) -> int:
        """How many samples are held."""
        ...


class MemoryBuffer:
    """Samples of this process only."""

    def __init__(self, capacity: int = CAPACITY):
        """Hold up to `capacity` samples."""
        if capacity < 1:
            raise ConfigError(f"buffer: capacity: seen {capacity!r}; allowed: 1 or more")
        self._samples: deque[Sample] = deque(maxlen=capacity)
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._samples)

    def append(self, sample: Sample) -> None:
        """See `GainBuffer.append`."""
        with self._lock:
            self._samples.append(sample)

    def precede(self, samples: Sequence[Sample]) -> None:
        """See `GainBuffer.precede`."""
        with self._lock:
            held = [*samples, *self._samples]
            self._samples.clear()
            self._samples.extend(held)

    def rows(self) -> Sequence[Sample]:
        """See `GainBuffer.rows`."""
        with self._lock:
            return list(self._samples)


class JsonlBuffer(MemoryBuffer):
    """Samples that outlive the process: one JSON object per line, appended and flushed at once.

    A line that cannot be read (torn by a kill, written by another version) is left out, counted in `skipped` and logged.
    """

    def __init__(self, path: str | Path, capacity: int = CAPACITY):
        """Read what the file holds, or start it.

        Args:
            path: the file; its folder must exist.
            capacity: most samples held; the file is rewritten when it has twice as many lines.

        Raises:
            OSError: the file cannot be read or written.
        """
        super().__init__(capacity)
        self.path, self.capacity = Path(path), capacity
        self.skipped = 0
        self._lines = 0
        torn = False
        if self.path.exists():
            with self.path.open(encoding="utf-8", errors="replace") as file:
                for line in file:
                    self._lines += 1
                    torn = not line.endswith("\n")
                    try:
                        super().append(sample_from_json(json.loads(line)))
                    except (ValueError, KeyError, TypeError) as error:
                        self.skipped += 1
                        logger.warning("%s line %d left out: %s", self.path, self._lines, error)
        self._file = self.path.open("a", encoding="utf-8")
        if torn:
            self._file.write("\n")

    def append(self, sample: Sample) -> None:
        """See `GainBuffer.append`."""
        with self._lock:
            super().append(sample)
            self._file.write(json.dumps(sample_to_json(sample)) + "\n")
            self._file.flush()
            self._lines += 1
            if self._lines >= 2 * self.capacity:
                self._rewrite()

    def precede(self, samples: Sequence[Sample]) -> None:
        """See `GainBuffer.precede`."""
        with self._lock:
            super().precede(samples)
            self._rewrite()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rewrite(self) -> None:
        fresh = self.path.with_name(self.path.name + ".new")
        with fresh.open("w", encoding="utf-8") as file:
            for sample in self._samples:
                file.write(json.dumps(sample_to_json(sample)) + "\n")
        self._file.close()
        fresh.replace(self.path)
        self._file = self.path.open("a", encoding="utf-8")
        self._lines = len(self._samples)


def sample_to_json(sample: Sample) -> dict[str, Any]:
    """Plain JSON values; arrays as base64 of little-endian half or single precision."""
    return {
        "version": FEATURE_VERSION,
        "task": sample.task,
        "model": sample.model,
        "role": sample.state.role,
        "last_model": sample.state.last_model,
        "calls": dict(sample.state.calls),
        "roles": dict(sample.state.roles),
        "state": _pack(sample.state.numbers, "<f4"),
        "numbers": _pack(sample.numbers, "<f4"),
        "embedding": _pack(sample.embedding, "<f2"),
        "gain": sample.gain,
        "weight": sample.weight,
    }


def sample_from_json(row: Mapping[str, Any]) -> Sample:
    """Read what `sample_to_json` made.

    Raises:
        KeyError: a field is missing.
        ValueError: another version, arrays of another size, or values out of range.
    """
    if row["version"] != FEATURE_VERSION:
        raise ValueError(f"features of version {row['version']!r}; this is version {FEATURE_VERSION}")
    state, numbers = _unpack(row["state"], "<f4"), _unpack(row["numbers"], "<f4")
    if state.shape != (len(STATE),) or numbers.shape != (len(MODEL),):
        raise ValueError(f"seen {state.size} + {numbers.size} numbers; needed {len(STATE)} + {len(MODEL)}")
    gain, weight = float(row["gain"]), float(row["weight"])
    if not -1 <= gain <= 1 or not 0 < weight <= 1:
        raise ValueError(f"gain {gain!r} or weight {weight!r} is out of range")
    return Sample(
        str(row["task"]),
        str(row["model"]),
        StateFacts(state, str(row["role"]), str(row["last_model"]), dict(row["calls"]), dict(row["roles"])),
        numbers,
        _unpack(row["embedding"], "<f2").astype(np.float16),
        gain,
        weight,
    )


def _pack(values: npt.NDArray[Any], kind: str) -> str:
    return base64.b64encode(values.astype(kind).tobytes()).decode("ascii")


def _unpack(text: str, kind: str) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = np.frombuffer(base64.b64decode(text, validate=True), dtype=kind)
    return values.astype(kind[1:])
