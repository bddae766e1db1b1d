"""The structured view of (state, model): what the ledger and the pool say in numbers and names."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steproute.ledger import Step
from steproute.models import Model
from steproute.policies.base import Candidate, StepContext

FEATURE_VERSION = 1
"""Raised when the meaning of a number changes: rows of another version are not trained on."""
LOOK_BACK = 64
"""Steps of the ledger that are read, so that a long one stays cheap."""
RECENT = 4
UNKNOWN = math.nan

Floats32 = npt.NDArray[np.float32]

STATE = (
    "g",
    "regime",
    "r",
    "d",
    "e",
    "step",
    "calls",
    "failed_calls",
    "steps_in_role",
    "recent_evidence",
    "last_evidence",
    "recent_errors",
    "recent_tool_errors",
    "repeats",
    "subtasks",
    "subtasks_done",
    "subtasks_failed",
    "output_chars",
    "models_used",
    "context_prior",
    "context_bad_share",
    "last_author_prior",
    "spent_share_usd",
    "spent_share_energy",
    "spent_share_seconds",
    "spent_share_tokens",
    "queue_usd",
    "queue_energy",
)
"""Names of the numbers that are the same for every candidate of a step."""

MODEL = (
    "prior",
    "log_size",
    "log_price_in",
    "log_price_out",
    "log_decode_speed",
    "log_decode_energy",
    "log_cost_usd",
    "log_cost_energy",
    "log_cost_seconds",
    "log_cost_tokens",
    "own_calls",
    "own_evidence",
    "own_context_share",
    "is_last_author",
    "over_last_author",
    "over_best_tried",
)
"""Names of the numbers that differ between candidates. The first six describe the model alone."""
STATIC = 6


@dataclass(frozen=True, slots=True)
class StateFacts:
    """What is known before the choice. All arrays are float32."""

    numbers: Floats32
    """Shape (len(STATE),); NaN where unknown."""
    role: str
    last_model: str
    """Author of the latest output; empty at the start."""
    calls: Mapping[str, int]
    """Model → calls made in this task."""
    roles: Mapping[str, int]
    """Role → steps made in this task."""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """The state and one row of numbers per candidate, shape (n, len(MODEL))."""

    state: StateFacts
    models: tuple[str, ...]
    numbers: Floats32


@dataclass(slots=True)
class _Author:
    """What one model wrote of the context."""

    chars: int = 0
    evidence: float = 0.0
    judged: int = 0


def step_facts(context: StepContext) -> StepFacts:
    """Read a context once; the ledger it points to goes on changing, the result does not."""
    steps = context.ledger.steps[-LOOK_BACK:]
    priors = {candidate.name: candidate.model.prior for candidate in context.candidates}
    authors = _authors(steps)
    last = steps[-1].model if steps else ""
    calls = Counter(context.tried)
    state = StateFacts(
        _state_numbers(context, steps, authors, priors),
        context.role,
        last,
        dict(calls),
        dict(Counter(step.role for step in steps)),
    )
    written = sum(author.chars for author in authors.values())
    tried = [priors[name] for name in calls if name in priors]
    rows = [
        _model_numbers(candidate)
        + _own_numbers(candidate.name, candidate.model.prior, authors, calls, written, last, priors.get(last), tried)
        for candidate in context.candidates
    ]
    return StepFacts(state, tuple(context.names), np.array(rows, dtype=np.float32))


def static_numbers(model: Model) -> tuple[float, ...]:
    """The `STATIC` numbers that describe a model alone; NaN where unknown."""
    price, profile = model.price, model.profile
    return (
        model.prior,
        _log(model.size_b),
        UNKNOWN if price == "unknown" else _log(price.input + 1e-3),
        UNKNOWN if price == "unknown" else _log(price.output + 1e-3),
        _log(profile.decode_tokens_per_s),
        _log(profile.decode_j_per_token),
    )


def mean_evidence(step: Step) -> float | None:
    """Mean score of what was checked in a step; None when nothing was."""
    seen = [item.score for item in step.outcome.evidence if item.count > 0]
    return sum(seen) / len(seen) if seen else None


def _authors(steps: Iterable[Step]) -> dict[str, _Author]:
    authors: dict[str, _Author] = {}
    for step in steps:
        author = authors.setdefault(step.model, _Author())
        author.chars += len(step.output)
        score = mean_evidence(step)
        if score is not None:
            author.evidence += score
            author.judged += 1
    return authors


def _state_numbers(
    context: StepContext, steps: Sequence[Step], authors: Mapping[str, _Author], priors: Mapping[str, float]
) -> Floats32:
    progress, recent = context.progress, steps[-RECENT:]
    marks = [mean_evidence(step) for step in steps]
    weak = [mark is not None and mark < 0.5 for mark in marks]
    scores = [mark for mark in marks[-RECENT:] if mark is not None]
    written = sum(author.chars for author in authors.values())
    known = [(author.chars, priors[name]) for name, author in authors.items() if name in priors and author.chars]
    bad = sum(len(step.output) for step, low in zip(steps, weak, strict=True) if low)
    subtasks = context.ledger.subtasks
    statuses = Counter(item.status for item in subtasks)
    outputs = [step.output for step in recent if step.output]
    values = (
        progress.g,
        float(progress.regime),
        progress.r,
        progress.d,
        progress.e,
        context.step,
        len(context.tried),
        max(len(context.tried) - context.step, 0),
        sum(step.role == context.role for step in steps),
        sum(scores) / len(scores) if scores else UNKNOWN,
        UNKNOWN if not marks or marks[-1] is None else marks[-1],
        sum(step.outcome.error is not None or low for step, low in zip(recent, weak[-RECENT:], strict=True)),
        sum(call.ok is False for step in recent for call in step.tool_calls),
        len(outputs) - len(set(outputs)),
        len(subtasks),
        statuses["done"] / len(subtasks) if subtasks else UNKNOWN,
        statuses["failed"] / len(subtasks) if subtasks else UNKNOWN,
        math.log1p(written),
        len(set(context.tried)),
        sum(n * prior for n, prior in known) / sum(n for n, _ in known) if known else UNKNOWN,
        bad / written if written else 0.0,
        priors.get(steps[-1].model, UNKNOWN) if steps else UNKNOWN,
        *(_spent_share(context, name) for name in ("usd", "energy_j", "seconds", "tokens")),
        *(_queue(context, name) for name in ("usd", "energy_j")),
    )
    return np.array(values, dtype=np.float32)


def _model_numbers(candidate: Candidate) -> tuple[float, ...]:
    cost = candidate.cost
    return static_numbers(candidate.model) + tuple(
        _log(cost[name] + 1e-9) if name in cost else UNKNOWN for name in ("usd", "energy_j", "seconds", "tokens")
    )


def _own_numbers(
    name: str,
    prior: float,
    authors: Mapping[str, _Author],
    calls: Mapping[str, int],
    written: int,
    last: str,
    last_prior: float | None,
    tried: Sequence[float],
) -> tuple[float, ...]:
    own = authors.get(name, _Author())
    return (
        float(calls.get(name, 0)),
        own.evidence / own.judged if own.judged else UNKNOWN,
        own.chars / written if written else 0.0,
        float(name == last),
        UNKNOWN if last_prior is None else prior - last_prior,
        prior - max(tried) if tried else UNKNOWN,
    )


def _spent_share(context: StepContext, resource: str) -> float:
    """Spent and reserved over the task's limit, or over the target; log1p of the amount where neither is set."""
    budget = context.budget
    used = budget.spent.get(resource, 0.0) + budget.reserved.get(resource, 0.0)
    limit = budget.limits.get(resource)
    scale = None if limit is None else limit.limit or limit.target
    return used / scale if scale else math.log1p(used)


def _queue(context: StepContext, resource: str) -> float:
    limit = context.budget.limits.get(resource)
    if limit is None or limit.target is None:
        return 0.0
    return context.budget.queues.get(resource, 0.0) / limit.target


def _log(value: float | None) -> float:
    return math.log(value) if value is not None and value > 0 else UNKNOWN
