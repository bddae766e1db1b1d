"""Cascade: start with the cheapest model and climb to the next stronger one when the task stops making progress.

The idea of CASCADIA-style serving, moved from a query to a task: the verdict that sends a query up is here the
progress of the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from steproute.errors import ConfigError, unknown_name
from steproute.policies.base import Candidate, PolicyConfig, Scores, StepContext
from steproute.policies.simple import total_cost
from steproute.progress import Regime

Rank = tuple[float, float]

PASS = 0.999
"""Score from which on a check counts as passed."""
WORKABLE = 0.2
"""g at which the regime `invalid` ends under the default weights: a first step below it started nothing."""


class Cascade:
    """One model at a time, weakest first; which one is read from the ledger, so a resumed task goes on where it was.

    The ladder: the models in the order of `order`, or else of their expected cost, without those whose stated quality
    is below that of a cheaper one.
    """

    name = "cascade"
    stops = True

    class Config(PolicyConfig):
        """Settings of `cascade`."""

        order: tuple[str, ...] = ()
        """Names of the ladder from weakest to strongest; empty = by expected cost. Models left out are a last resort."""
        resource: str | None = None
        """Resource that orders the ladder; None = the first in which candidates differ."""
        patience: int = Field(default=1, ge=1)
        """Steps of one model in a row that fail before the cascade climbs."""
        failing: Literal["stagnation", "unsolved"] = "stagnation"
        """Which step fails: one that brought the task no further, or any that left it incomplete."""
        per_role: bool = False
        """True = every role has its own cascade, False = one for the whole task."""

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()
        self._ranks: dict[str, Rank] = {}
        """Where each model stood when it was last a candidate, for a step after it was retired."""

    def check(self, names: list[str]) -> None:
        """Refuse a ladder with a model the pool does not have, or with one twice."""
        for i, name in enumerate(self.config.order):
            if name not in names:
                raise ConfigError(unknown_name("policy cascade: order", name, names))
            if name in self.config.order[:i]:
                raise ConfigError(f"policy cascade: order: {name!r} is given twice; allowed: every name once")

    def score(self, context: StepContext) -> Scores:
        """0 for the model whose turn it is; the others by their distance from it, stronger ones first."""
        names = context.names
        ranks = self._rank(context)
        self._ranks |= ranks
        ladder = self._ladder(context.candidates, ranks)
        last, failed = self._standing(context)
        rung, over = self._rung(ladder, ranks, last, failed)
        n = len(names)
        values = np.array([-2.0 * n - ranks[name][0] / (1 + abs(ranks[name][0])) for name in names])
        terms: list[dict[str, float]] = [{} for _ in names]
        for place, name in enumerate(ladder):
            i = names.index(name)
            distance = place - rung
            values[i] = -float(distance) if distance >= 0 else -(n - place - 0.5)
            terms[i] = {"rung": float(place)}
        solved = context.progress.regime is Regime.COMPLETE or _accepted(context)
        stop = 1.0 if solved or over else float(values.min()) - 1.0
        return Scores(values, terms, reason=self._reason(ladder[rung], last, failed), stop=stop)

    def _rank(self, context: StepContext) -> dict[str, Rank]:
        """Place of every candidate: (cost, −quality); where an order is given, its place there, then the rest by cost."""
        order = self.config.order
        costs = total_cost(context, self.config.resource)
        ranks = {c.name: (float(cost), -c.model.prior) for c, cost in zip(context.candidates, costs, strict=True)}
        if not order:
            return ranks
        rest = sorted((name for name in ranks if name not in order), key=ranks.__getitem__)
        places = {name: float(place) for place, name in enumerate((*order, *rest))}
        return {name: (places[name], 0.0) for name in ranks}

    def _ladder(self, candidates: Sequence[Candidate], ranks: dict[str, Rank]) -> list[str]:
        ordered = sorted(candidates, key=lambda candidate: ranks[candidate.name])
        if self.config.order:
            return [c.name for c in ordered if c.name in self.config.order] or [c.name for c in ordered]
        ladder, best = [], -1.0
        for candidate in ordered:
            if candidate.model.prior >= best:
                ladder.append(candidate.name)
                best = candidate.model.prior
        return ladder

    def _standing(self, context: StepContext) -> tuple[str | None, int]:
        """The model that served last, and how many of its latest steps in a row failed (counted up to the patience)."""
        config, steps = self.config, context.ledger.steps
        last: str | None = None
        failed = 0
        for position in range(len(steps) - 1, -1, -1):
            step = steps[position]
            if config.per_role and step.role != context.role:
                continue
            if last is None:
                last = step.model
            if step.model != last or failed == config.patience or not self._failed(context, position):
                break
            failed += 1
        return last, failed

    def _failed(self, context: StepContext, position: int) -> bool:
        """Whether a step brought the task no further. g rises and falls with trend and novelty alone, so the newest
        step must also lie above the trend."""
        steps, newest = context.ledger.steps, position == len(context.ledger.steps) - 1
        after = context.progress.g if newest else steps[position].g
        if (newest and _accepted(context)) or (after is not None and after >= 1.0):
            return False
        if self.config.failing == "unsolved":
            return True
        if after is None:
            return False
        if newest and context.progress.d <= 0:
            return True
        before = steps[position - 1].g if position else None
        if before is None:
            return position == 0 and after < WORKABLE
        return after <= before

    def _rung(self, ladder: Sequence[str], ranks: dict[str, Rank], last: str | None, failed: int) -> tuple[int, bool]:
        """Index of the model whose turn it is, and whether the ladder is used up."""
        if last is None:
            return 0, False
        climb = failed >= self.config.patience
        if last in ladder:
            place = ladder.index(last) + climb
            return min(place, len(ladder) - 1), place == len(ladder)
        was = self._ranks.get(last)
        if was is None:  # nothing is known of the model that served: the strongest is the safe guess
            return len(ladder) - 1, False
        above = [i for i, name in enumerate(ladder) if ranks[name] > was]
        return (above[0] if above else len(ladder) - 1), climb and not above

    def _reason(self, name: str, last: str | None, failed: int) -> str:
        if last is None:
            return "the cascade starts with its cheapest model"
        if failed >= self.config.patience:
            return f"{last} made no progress; {name} is next" if name != last else f"{last} is the top of the cascade"
        return f"{name} goes on" if name == last else f"{name} takes the place of {last}"


def _accepted(context: StepContext) -> bool:
    """Whether something was checked after the last step, everything that was has passed, and no subtask is open."""
    if not context.ledger.steps:
        return False
    last = context.ledger.steps[-1].outcome
    scores = [item.score for item in last.evidence if item.count > 0]
    done = all(item.status == "done" for item in context.ledger.subtasks)
    return last.error is None and bool(scores) and min(scores) >= PASS and done
