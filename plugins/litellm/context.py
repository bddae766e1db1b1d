"""Labels of the calls made in a `with` block: for callers of LiteLLM's SDK who cannot reach the metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from steproute.ledger import Ledger, Task

_LABELS: ContextVar[Mapping[str, Any]] = ContextVar("steproute_litellm_labels")
_NONE: Mapping[str, Any] = {}


@contextmanager
def labels(
    task: str | Task | Ledger | None = None, *, role: str | None = None, step: str | None = None, **more: Any
) -> Iterator[None]:
    """Say whose calls those inside the block are; metadata and headers of a call go before it.

    Args:
        task: id of the task, the task itself, or its ledger.
        role: worker the calls are made for.
        step: key of the step; give it only around a single call.
        more: what else a task has: `goal`, `domain`, `dimension`, `source`, `parent`.
    """
    given = {"task": task, "role": role, "step": step, **more}
    inner = {**current(), **{name: value for name, value in given.items() if value is not None}}
    token = _LABELS.set(inner)
    try:
        yield
    finally:
        _LABELS.reset(token)


def current() -> Mapping[str, Any]:
    """The labels that hold here."""
    return _LABELS.get(_NONE)
