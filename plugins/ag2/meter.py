"""Our own meter: AG2 counts no money in 1.x, and in classic misses the calls of the speaker selection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, fields

from steproute.ledger import Outcome


@dataclass(slots=True)
class Totals:
    """Sums over calls."""

    calls: int = 0
    """Calls that were made, failed ones included."""
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    usd: float = 0.0
    """Money of the calls whose price is known."""
    seconds: float = 0.0
    energy_j: float = 0.0
    estimated: int = 0
    """Calls whose tokens were counted here because the provider reported none."""
    unpriced: int = 0
    """Calls by a model whose price is unknown."""

    @property
    def tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


class Meter:
    """Totals per model and role. Safe to read while calls are running."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Totals] = {}
        self._lock = threading.Lock()

    def add(self, model: str, role: str, outcome: Outcome) -> None:
        """Count one call.

        Args:
            model: name in the pool of the model that was called.
            role: role the call was made for.
            outcome: as the router settled it.
        """
        failed = outcome.error is not None
        row = Totals(
            1,
            int(failed),
            outcome.prompt_tokens,
            outcome.completion_tokens,
            outcome.cached_tokens,
            outcome.usd or 0.0,
            outcome.seconds,
            outcome.energy_j or 0.0,
            int(outcome.tokens_estimated),
            int(outcome.usd is None and not failed),
        )
        with self._lock:
            self._rows[model, role] = self._rows.get((model, role), Totals()) + row

    @property
    def rows(self) -> dict[tuple[str, str], Totals]:
        """Totals per (model, role)."""
        with self._lock:
            return dict(self._rows)

    @property
    def by_model(self) -> dict[str, Totals]:
        """Totals per model."""
        return self._grouped(lambda key: key[0])

    @property
    def by_role(self) -> dict[str, Totals]:
        """Totals per role."""
        return self._grouped(lambda key: key[1])

    @property
    def total(self) -> Totals:
        """Totals of everything."""
        return self._grouped(lambda key: "").get("", Totals())

    def _grouped(self, name: Callable[[tuple[str, str]], str]) -> dict[str, Totals]:
        groups: dict[str, Totals] = {}
        for key, totals in self.rows.items():
            groups[name(key)] = groups.get(name(key), Totals()) + totals
        return groups
