"""Resources that follow from others: lateness from seconds, carbon from joules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from steproute.budget import CALLS, LATE, Budget
from steproute.models import Model

MEMORY = 100.0
"""How many calls the spread of a model's latency remembers."""
PRIOR_CALLS = 5.0
"""How many calls the stated spread is worth."""


class Derived:
    """What calls are expected to take, and took, of `late` and `carbon_g`; the count of calls where a target needs it."""

    def __init__(self, budget: Budget, clock: Callable[[], float]):
        """Look at what the budget names.

        Args:
            budget: with or without `tail` and `grid`.
            clock: gives Unix time in seconds.
        """
        self._tail, self._grid, self._clock = budget.tail, budget.grid, clock
        self._counts = any(limit.per == "call" for limit in budget.limits().values())
        self._spreads: dict[str, tuple[float, float]] = {}
        """Model → sum of squared log errors of its expected seconds, and how many."""
        self.active = self._tail is not None or self._grid is not None
        """Whether there is anything to expect."""
        self.bills = self.active or self._counts
        """Whether there is anything to add to what a call spent."""

    def expect(self, model: Model, cost: dict[str, float], worst: dict[str, float], spent: Mapping[str, float]) -> None:
        """Complete the amounts of a candidate, in place.

        Args:
            model: the candidate.
            cost: expected amounts.
            worst: worst case.
            spent: what the task has spent.
        """
        if self._grid is not None:
            now = self._clock()
            for amounts in (cost, worst):
                if "energy_j" in amounts:
                    amounts["carbon_g"] = self._grid.grams(amounts["energy_j"], now)
        if self._tail is not None and "seconds" in cost:
            used = spent.get("seconds", 0.0) if self._tail.per == "task" else 0.0
            slo = self._tail.slo_s
            late = used > slo and self._tail.per == "task"  # it counts once
            cost[LATE] = 0.0 if late else chance_above(slo - used, cost["seconds"], self.spread(model.name))
            worst[LATE] = 0.0 if late else 1.0

    def bill(
        self, model: Model, spent: dict[str, float], before: Mapping[str, float], expected_s: float | None
    ) -> None:
        """Complete what a call spent, in place, and learn how far its time was from what was expected.

        Args:
            model: the one that answered.
            spent: what the call took.
            before: what its task had spent before it.
            expected_s: seconds it was expected to take; None = nobody knew.
        """
        if self._counts:
            spent[CALLS] = 1.0
        if self._grid is not None and "energy_j" in spent:
            spent["carbon_g"] = self._grid.grams(spent["energy_j"], self._clock())
        if self._tail is None:
            return
        seconds, slo = spent.get("seconds", 0.0), self._tail.slo_s
        if self._tail.per == "call":
            spent[LATE] = float(seconds > slo)
        else:
            used = before.get("seconds", 0.0)
            spent[LATE] = float(used <= slo < used + seconds)
        if expected_s and seconds > 0:
            squares, count = self._spreads.get(model.name, (0.0, 0.0))
            keep = min(1.0, MEMORY / (count + 1.0))
            self._spreads[model.name] = (keep * squares + math.log(seconds / expected_s) ** 2, keep * count + 1.0)

    def state(self) -> dict[str, list[float]]:
        """Spreads of latency as plain JSON values."""
        return {model: list(pair) for model, pair in self._spreads.items()}

    def load(self, state: Mapping[str, list[float]]) -> None:
        """Take over what `state` gave."""
        self._spreads = {str(model): (float(squares), float(n)) for model, (squares, n) in state.items()}

    def spread(self, model: str) -> float:
        """Standard deviation of log(seconds / expected seconds), the stated one being worth a few calls."""
        squares, count = self._spreads.get(model, (0.0, 0.0))
        stated = self._tail.spread if self._tail is not None else 0.0
        return math.sqrt((squares + PRIOR_CALLS * stated**2) / (count + PRIOR_CALLS))


def chance_above(bound: float, mean: float, spread: float) -> float:
    """P(T > bound) for a log-normal T with that mean and that standard deviation of log T."""
    if bound <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    if spread <= 0:
        return float(mean > bound)
    return 0.5 * math.erfc((math.log(bound / mean) + spread**2 / 2) / (spread * math.sqrt(2)))
