"""What of an experience memory outlasts the process: its state in a snapshot, or the memory itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from steproute.errors import ConfigError
from steproute.memory import Experience, ExperienceMemory


def memory_state(memory: ExperienceMemory) -> tuple[dict[str, Any] | None, list[str]]:
    """A memory's state without its blocks, and those; None and none of one that outlives the process by itself."""
    if not hasattr(memory, "state"):
        return None, []
    state = dict(memory.state())
    return state, state.pop("blocks", [])


def load_memory(memory: ExperienceMemory, state: Mapping[str, Any] | None, blocks: Sequence[str]) -> None:
    """Take over what `memory_state` gave.

    Raises:
        ConfigError: as `ExactMemory.load`, or the state is of another kind of memory.
    """
    if (state is not None) != hasattr(memory, "load"):
        raise ConfigError(
            f"memory state: it is not of a {type(memory).__name__}; the settings of the memory have changed"
        )
    if state is not None:
        memory.load({**state, "blocks": blocks})  # type: ignore[attr-defined]  # just looked


def filled(memory: ExperienceMemory) -> str | None:
    """A block of a memory's state that became full, see `Blocks.filled`."""
    found: str | None = memory.filled() if hasattr(memory, "filled") else None
    return found


class Standing:
    """Which experiences a memory that outlives the process held at the start: playing the log again adds none of them twice."""

    def __init__(self, memory: ExperienceMemory):
        """Look through the memory."""
        lasting = not hasattr(memory, "state")
        self._keys = Counter(_identity(item) for item in memory) if lasting else Counter()

    def take(self, experience: Experience) -> bool:
        """Whether it was there; the next one like it is not."""
        key = _identity(experience)
        if not self._keys[key]:
            return False
        self._keys[key] -= 1
        return True


def _identity(item: Experience) -> tuple[Any, ...]:
    score = round(item.score, 9)  # Chroma gives back other last bits
    return (*(item.trace.get(name) for name in ("task", "step", "role")), item.model, score)
