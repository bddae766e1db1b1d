"""A store played again to another policy: what it would have done at every logged decision.

Decisions, lessons and ends of tasks reach the policy in the order in which they happened, so it learns as the log goes on and
has seen nothing of the future; what was done stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic_core import from_json
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from steproute.budget import Budget
from steproute.derived import Derived
from steproute.draws import Draws
from steproute.errors import ConfigError, StoreError
from steproute.evaluate.propensity import floored, logged_propensities, sampled
from steproute.models import Model, ModelPool
from steproute.policies import Policy, Scores, StepContext
from steproute.policies.base import Feedback, Values
from steproute.router import Router
from steproute.store.connection import store_url
from steproute.store.read import StoreReader
from steproute.store.restore import Parts, Restorer

Floats = npt.NDArray[np.float64]


@dataclass
class Choice:
    """One logged decision with what came of it, and what the new policy would have done."""

    task: str
    group: tuple[str, ...]
    models: list[str]
    chosen: int
    """Index of the chosen model among `models`."""
    free: bool
    """False = no policy had a choice: the host pinned a model, or the router stood in for itself."""
    logged: Floats
    """Chance of each model under the policy that ran, shape (n,)."""
    wanted: Floats
    """The same under the new policy."""
    gain: float | None = None
    """Observed gain; None = nothing was learnt of it."""
    spent: dict[str, float] = field(default_factory=dict)
    """What its calls were billed, per resource."""
    answered: bool = False
    """Whether any call of it was observed."""


@dataclass
class Replay:
    """A whole log."""

    choices: list[Choice]
    rewards: dict[str, float]
    """Task → final reward, where it is known."""
    skipped: int
    """Decisions left out: the new policy could not score them, or they ended a task."""


def replay(store: str | Path, policy: Policy, pool: ModelPool | None, budget: Budget | None, explore: float) -> Replay:
    """Play a store to a policy.

    Args:
        store: path of a SQLite file, or a PostgreSQL URL. It is only read.
        policy: the new policy, fresh.
        pool: its models; None = those of the log, without prices.
        budget: limits and targets it scores by; None = none.
        explore: the uniform share it is to be run with.

    Raises:
        StoreError: no such store, or it holds no decisions.
        ConfigError: the policy cannot be evaluated on a log, the log mentions models the pool lacks or has no propensities.
    """
    if getattr(policy, "calls_out", False):
        raise ConfigError(f"policy: {policy.name!r} asks a model at every decision; allowed: one that scores by itself")
    if getattr(policy, "needs_extra", False):
        raise ConfigError(
            f"policy: {policy.name!r} needs what the host says at each decision, which a log does not keep; "
            "allowed: one that scores without"
        )
    if not 0 <= explore < 1:
        raise ConfigError(f"explore: seen {explore!r}; allowed: at least 0 and below 1")
    StoreReader(store)
    with closing(_Log(store)) as log:
        names = [
            row[0] for row in log.rows("SELECT DISTINCT model FROM decisions UNION SELECT DISTINCT model FROM outcomes")
        ]
        if not names:
            raise StoreError(f"store {log.label}: it holds no decisions; there is nothing to evaluate on")
        own = pool or ModelPool([Model(name, price="unknown") for name in sorted(names)])
        found, strangers = _play(log, policy, own, budget or Budget(), explore)
        if pool is not None and strangers:
            raise ConfigError(
                f"models: the log mentions {', '.join(strangers)}, which the configuration does not have; add them, "
                "or leave the configuration out"
            )
        return found


def _play(log: _Log, policy: Policy, pool: ModelPool, budget: Budget, explore: float) -> tuple[Replay, list[str]]:
    inner = getattr(policy, "estimator", None)
    watched = _Watched(policy)
    estimator = _Watched(inner) if inner is not None and inner is not policy else None
    router = Router(pool, budget, watched, estimator=estimator, clock=lambda: 0.0)
    if estimator is None and router.estimator is not watched:
        router.estimator = _Watched(router.estimator)
        router._learner._estimator = router.estimator
    parts = Parts(
        router.pool, router.accounts, router.forecast, router.health, router.policy, router.estimator, router.reliability,
        router._learner, router._tasks, Draws(0), router.faults, router.fleet, Derived(budget, lambda: 0.0),
    )  # fmt: skip
    restorer = Restorer(log, parts)  # type: ignore[arg-type]  # it only reads
    choices: dict[tuple[str, str], Choice] = {}
    rewards: dict[str, float] = {}
    skipped = 0
    for event in restorer._events({}):
        kind, key = event["kind"], (event["task"], event.get("decision") or event.get("id") or "")
        watched.scores = watched.context = None
        restorer.apply(event, learn=True)
        if kind == "decisions":
            choice = None if event["stop"] else _choice(event, watched, explore)
            if choice is None:
                skipped += 1
                if router.faults.count and not choices:
                    raise ConfigError(
                        f"policy: {policy.name!r} could not score the log's first decision: {router.faults.last}"
                    )
            else:
                choices[event["task"], event["id"]] = choice
        elif kind == "outcomes" and key in choices:
            choice = choices[key]
            choice.answered = True
            for name, amount in from_json(event["spent"]).items():
                choice.spent[name] = choice.spent.get(name, 0.0) + amount
        elif kind == "experiences" and key in choices:
            choices[key].gain = event["gain"]
        elif kind == "endings" and event["reward"] is not None:
            rewards[event["task"]] = event["reward"]
    return Replay(list(choices.values()), rewards, skipped), restorer._reader.strangers


def _choice(event: Mapping[str, Any], watched: _Watched, explore: float) -> Choice | None:
    data = from_json(event["candidates"])
    names = data["model"]
    scored = [
        {"propensity": p, "terms": {name: values[i] for name, values in data["terms"].items() if values[i] is not None}}
        for i, p in enumerate(data["propensity"])
    ]
    if event["model"] not in names:
        return None
    free = not (event["pinned"] or event["fallback"])
    known = (
        logged_propensities(scored, f"decision {event['id']} of task {event['task']!r}")
        if free
        else np.eye(len(names))[names.index(event["model"])]
    )
    if free and watched.context is None:
        return None
    wanted = known
    group: tuple[str, ...] = ("", "", event["role"])
    if free and watched.context is not None and watched.scores is not None:
        wanted = floored(wanted_chances(watched.scores), explore)
        group = watched.context.group
    return Choice(event["task"], group, names, names.index(event["model"]), free, known, wanted)


def wanted_chances(scores: Scores) -> Floats:
    """With what chances a policy would choose, shape (n,)."""
    values = np.asarray(scores.values, dtype=np.float64)
    drawn = sampled(scores.terms)
    if drawn is not None:
        return drawn
    if scores.propensities is not None:
        given = np.asarray(scores.propensities, dtype=np.float64)
        return np.asarray(given / given.sum(), dtype=np.float64)
    best = np.zeros(len(values))
    best[int(np.argmax(values))] = 1.0
    return best


class _Watched:
    """Another object, but for what it is asked: a policy's scores are kept, an estimator's gains reach the candidates."""

    def __init__(self, inner: Any):
        self._inner = inner
        self.scores: Scores | None = None
        self.context: StepContext | None = None

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return self if value is self._inner else value

    def score(self, context: StepContext) -> Scores:
        """Score, and remember."""
        found: Scores = self._inner.score(context)
        self.scores, self.context = found, context
        return found

    def predict(self, context: StepContext) -> tuple[Values, Values]:
        """Predict, and put the prediction in the place of the logged one."""
        means, spreads = self._inner.predict(context)
        for candidate, mean, spread in zip(context.candidates, means, spreads, strict=True):
            candidate.gain, candidate.gain_sd = float(mean), float(spread)
        return means, spreads

    def learn(self, feedback: Feedback) -> None:
        """Learn, where it does."""
        if hasattr(self._inner, "learn"):
            self._inner.learn(feedback)


class _Log:
    """A store's connection for reading, as `Restorer` asks it."""

    def __init__(self, target: str | Path):
        url = store_url(target)
        self.sqlite = url.get_backend_name() == "sqlite"
        self.label = str(url.database) if self.sqlite else url.render_as_string(hide_password=True)
        self._raw = create_engine(url, poolclass=NullPool).raw_connection()

    def run(self, sql: str, values: Any = ()) -> Any:
        """Run a query; gives the driver's cursor."""
        cursor = self._raw.cursor()
        cursor.execute(sql if self.sqlite else sql.replace("?", "%s"), values)
        return cursor

    def rows(self, sql: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """Run a query; gives every row."""
        found: list[tuple[Any, ...]] = self.run(sql, values).fetchall()
        return found

    def close(self) -> None:
        """Let go of the store."""
        self._raw.close()
