"""The seam every policy fits: a context goes in, one score per candidate comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from steproute.budget import Limit
from steproute.draws import Draws
from steproute.ledger import Evidence, Ledger, Task
from steproute.models import Model
from steproute.progress import Progress
from steproute.settings import Settings

Floats = npt.NDArray[np.float64]
Values: TypeAlias = Sequence[float] | Floats
"""One number per candidate. For the few of a pool a plain list is faster than an array."""


@dataclass(slots=True)
class Candidate:
    """One eligible model with what a call is expected to cost and to bring."""

    model: Model
    cost: dict[str, float]
    """Expected cost per resource (USD, joules, seconds, tokens, the user's own); a resource nobody knows is absent."""
    worst: dict[str, float]
    """Worst case per resource: prompt + max_tokens."""
    gain: float = 0.0
    """Predicted gain ŷ(m, s) = E[g(s')] − g(s)."""
    gain_sd: float = 0.0
    saves: dict[str, float] = field(default_factory=dict)
    """What later calls of the conversation are expected to save because this one fills the model's prompt cache."""

    @property
    def name(self) -> str:
        """The model's name in the pool."""
        return self.model.name


@dataclass(slots=True)
class BudgetState:
    """The budget as the task stands: per resource what is set and what is gone."""

    limits: Mapping[str, Limit]
    spent: Mapping[str, float]
    reserved: Mapping[str, float]
    queues: Mapping[str, float]


@dataclass(slots=True)
class StepContext:
    """Everything a policy may look at for one step. Arrays over candidates follow the order of `candidates`."""

    task: Task
    role: str
    step: int
    """How many steps the ledger holds."""
    candidates: list[Candidate]
    progress: Progress
    budget: BudgetState
    ledger: Ledger
    """Alive: it goes on growing after the decision. What `learn` needs of it has to be kept in `memo`."""
    draws: Draws
    """The router's random numbers; draw from nothing else."""
    group: tuple[str, ...] = ()
    """Context groups from coarse to fine: dimension, source, role; empty strings where unknown."""
    text: str | None = None
    """What the step is about (last messages or goal), for embeddings; None when the host gives no text."""
    tried: Sequence[str] = ()
    """Models already called in this task, in order."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Host facts, e.g. the recording of the oracle."""
    memo: dict[str, Any] = field(default_factory=dict, repr=False)
    """What one part worked out about this step (features, the text's embedding), so that no other does it again."""

    @property
    def rng(self) -> np.random.Generator:
        """The router's seeded generator."""
        return self.draws.generator

    @property
    def names(self) -> list[str]:
        """Names of the candidates."""
        return [candidate.model.name for candidate in self.candidates]

    @property
    def gains(self) -> Floats:
        """Predicted gains, shape (n,)."""
        return np.array([candidate.gain for candidate in self.candidates], dtype=np.float64)

    def costs(self, resource: str) -> Floats:
        """`held_against` as an array, shape (n,)."""
        return np.array(self.held_against(resource), dtype=np.float64)

    def held_against(self, resource: str) -> list[float]:
        """What to hold against each candidate: its expected cost of one resource less what it saves later calls.

        Where unknown the dearest candidate's, 0 if all are unknown.
        """
        known = []
        for candidate in self.candidates:
            cost = candidate.cost.get(resource)
            if candidate.saves and cost is not None:
                cost -= candidate.saves.get(resource, 0.0)
            known.append(cost)
        dearest = max((cost for cost in known if cost is not None), default=0.0) if None in known else 0.0
        return [dearest if cost is None else cost for cost in known]


@dataclass(slots=True)
class Scores:
    """A policy's answer. The highest value wins, unless `propensities` say that it is to be drawn."""

    values: Values
    """One score per candidate, shape (n,)."""
    terms: list[dict[str, float]] = field(default_factory=list)
    """What each score is made of, for explanations; empty or one dict per candidate."""
    propensities: Floats | None = None
    """Probabilities to draw from, shape (n,); None = take the best (first of equals)."""
    reason: str = ""
    """Why, in a few words."""
    stop: float | None = None
    """Score of ending the task here, where the host allows it; None = no opinion."""


@dataclass(slots=True)
class Feedback:
    """What came of a decision, handed to `learn` once per attempt."""

    context: StepContext
    index: int
    """Which candidate answered."""
    gain: float
    """Observed gain y = g(s') − g(s)."""
    progress: Progress
    """Progress after the step."""
    reliability: float
    """How far the evidence behind `gain` can be trusted, in (0, 1]."""
    cost: Mapping[str, float]
    """What it really cost per resource."""
    evidence: Sequence[Evidence] = ()


@runtime_checkable
class Policy(Protocol):
    """Scores candidates. The router's lock is held during every call, so a policy need not be safe between threads.

    Optional methods, called where they exist: `check(names)` when the router is built, `learn(feedback)` once per
    attempt, `finish(ledger, steps, reward)` at the end of a task with the steps learnt from and the final reward in
    [0, 1] or None. `state()` and `load(state)` give what was learnt as plain JSON values and take it back: with them a store
    keeps snapshots, without them a restart learns from the log again. A list of long texts in `state()["blocks"]` is written
    text by text, and only where it is new; `filled()` may give such a text as soon as it will not change any more. An optional attribute `estimator` is the gain estimator the policy brings;
    `calls_out` and `needs_extra` say that past steps cannot be scored anew, since that asks a model or needs `extra`.
    """

    name: str

    def score(self, context: StepContext) -> Scores:
        """Score every candidate of the context."""
        ...


class PolicyConfig(Settings):
    """Base of a policy's settings: unknown keys are errors."""
