"""Choosing the model of one step: who is eligible, what each is worth, which one it is, and its reservation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from steproute.accounts import Accounts
from steproute.decision import CandidateScore, Decision
from steproute.derived import Derived
from steproute.dispatched import Dispatched
from steproute.draws import Draws
from steproute.errors import BudgetExceeded, NoEligibleModel, unknown_name
from steproute.fleet import Fleet
from steproute.forecast import CostForecast
from steproute.health import Health
from steproute.ids import new_id
from steproute.ledger import Ledger
from steproute.models import Model, ModelPool
from steproute.policies import BudgetState, Candidate, Policy, Scores, StepContext
from steproute.predict import GainEstimator
from steproute.progress import Progress
from steproute.taskstate import Made, StepRequest, TaskState

Facts = Callable[[Ledger], Mapping[str, Any]]


class Chooser:
    """Turns a request into a decision. Holds no task's state; the caller holds the lock."""

    def __init__(
        self,
        pool: ModelPool,
        accounts: Accounts,
        forecast: CostForecast,
        health: Health,
        policy: Policy,
        estimator: GainEstimator,
        draws: Draws,
        explore: float,
        facts: Facts | None,
        clock: Callable[[], float],
        fleet: Fleet,
        derived: Derived,
    ):
        self._fleet, self._derived = fleet, derived
        self._pool, self._accounts, self._forecast, self._health = pool, accounts, forecast, health
        self._policy, self._estimator = policy, estimator
        self._draws, self._explore, self._facts, self._clock = draws, explore, facts, clock

    def choose(self, state: TaskState, request: StepRequest, progress: Progress) -> tuple[Decision, StepContext]:
        """Ask the policy, draw, and reserve.

        Raises:
            NoEligibleModel: no model has what the step needs.
            BudgetExceeded: a hard limit leaves none that fits.
        """
        lost: dict[str, BudgetExceeded] = {}
        while True:
            candidates, causes = self._eligible(state, request, lost)
            extra = {**(self._facts(state.ledger) if self._facts else {}), **request.extra}
            context = self._context(state, request, candidates, progress, extra)
            means, spreads = self._estimator.predict(context)
            for candidate, mean, spread in zip(candidates, _floats(means), _floats(spreads), strict=True):
                candidate.gain, candidate.gain_sd = mean, spread
            if request.pin is not None:
                scores = Scores(np.zeros(1), reason="pinned by the host")
            else:
                scores = self._policy.score(context)
            decision = self._decide(request, causes, context, scores)
            if decision.stop or self._reserve(decision, candidates, lost):
                return decision, context

    def stand_in(self, state: TaskState, request: StepRequest, progress: Progress) -> tuple[Decision, StepContext]:
        """What to do when `choose` failed: the pool's default model, or the strongest that may be used.

        Raises:
            NoEligibleModel: no model has what the step needs.
            BudgetExceeded: a hard limit leaves none that fits.
        """
        lost: dict[str, BudgetExceeded] = {}
        while True:
            candidates, causes = self._eligible(state, request, lost)
            context = self._context(state, request, candidates, progress, request.extra)
            default = self._pool.default
            values = np.array([(candidate.model is default) + candidate.model.prior for candidate in candidates])
            scores = Scores(values, reason="the router failed inside; the default model stands in")
            decision = self._decide(request, causes, context, scores, explore=0.0)
            decision.fallback = True
            if self._reserve(decision, candidates, lost):
                return decision, context

    def standing(
        self, state: TaskState, key: str, exclude: Sequence[str], pin: str | None, can_stop: bool
    ) -> Made | None:
        """The decision made before for a step, unless it cannot stand any more.

        It falls when its model is excluded or gone (that opens the next attempt), when it says stop and the host does
        not allow that now, when the host pins another model, or when its lease ran out and it does not fit any more.
        """
        while (made := state.made.get((key, state.attempts.get(key, 1)))) is not None:
            decision = made.decision
            if made.answered:
                return made
            name = decision.model.name
            if name in exclude or name not in self._pool:
                self._accounts.release(decision.reservation)
                state.fail(key, decision.attempt, name, "excluded by the host")
                continue
            if decision.stop:
                return made if can_stop else None
            if pin is not None and name != pin:
                self._accounts.release(decision.reservation)
                return None
            if decision.reservation is None or self._accounts.holds(decision.reservation):
                return made
            return made if self._reserve(decision, made.context.candidates, {}) else None
        return None

    def _reserve(self, decision: Decision, candidates: Sequence[Candidate], lost: dict[str, BudgetExceeded]) -> bool:
        """Hold the call's cost. Another process sharing the books may have taken the room since the filter."""
        chosen = next(item for item in candidates if item.model is decision.model)
        try:
            decision.reservation = self._accounts.reserve(decision.task, chosen.cost, chosen.worst)
        except BudgetExceeded as refusal:
            lost[decision.model.name] = refusal
            return False
        return True

    def _eligible(
        self, state: TaskState, request: StepRequest, lost: Mapping[str, BudgetExceeded]
    ) -> tuple[list[Candidate], dict[str, str]]:
        fit, causes = self._pool.eligible(request.role, request.needs, request.exclude)
        if request.pin is not None:
            if request.pin not in self._pool:
                raise NoEligibleModel(request.role, {"pinned": unknown_name("model", request.pin, self._pool.names)})
            causes.update({model.name: f"the host pinned {request.pin}" for model in fit if model.name != request.pin})
            fit = [model for model in fit if model.name == request.pin]
        else:
            checked = () if self._health.perfect and not self._fleet.bounded else fit
            resting = {model.name: reason for model in checked if (reason := self._absent(model))}
            if resting and len(resting) < len(fit):  # when all of them rest, a call that may fail is better than none
                causes.update(resting)
                fit = [model for model in fit if model.name not in resting]
        assumed = self._pool.dearest_usd
        if assumed is None and "usd" in self._accounts.hard:
            unpriced = [model for model in fit if model.known_price is None]
            causes.update({model.name: "price unknown: a hard limit on usd cannot be kept" for model in unpriced})
            fit = [model for model in fit if model.known_price is not None]
        if not fit:
            raise NoEligibleModel(request.role, causes)
        return self._within_limits(state, request, fit, assumed, causes, lost), causes

    def _absent(self, model: Model) -> str:
        """Why a model is not to be used for now; empty when it may be."""
        returned = self._health.returned(model.name)
        if returned is not None:
            resting = self._health.rests(model.name, self._fleet.is_tried(model.name, returned))
            if resting:
                return resting
        return self._fleet.blocked(model)

    def _within_limits(
        self,
        state: TaskState,
        request: StepRequest,
        fit: Sequence[Model],
        assumed: float | None,
        causes: dict[str, str],
        lost: Mapping[str, BudgetExceeded],
    ) -> list[Candidate]:
        cached = self._cached(state, request, fit)
        prompt, most, timeout = request.prompt_tokens, request.max_tokens, request.timeout_s
        predict = self._forecast.predict
        candidates = [
            Candidate(model, *predict(model, request.role, prompt, most, assumed, timeout, cached.get(model.name, 0)))
            for model in fit
        ]
        self._complete(state, request, candidates, cached)
        found = self._accounts.refusals(state.ledger.task.id, [candidate.worst for candidate in candidates])
        refused = {
            c.name: refusal for c, item in zip(candidates, found, strict=True) if (refusal := item or lost.get(c.name))
        }
        if not refused:
            return candidates
        if len(refused) == len(candidates):
            raise min(refused.values(), key=lambda refusal: refusal.asked / refusal.limit)
        causes.update({name: str(refusal).partition(": ")[2] for name, refusal in refused.items()})
        return [candidate for candidate in candidates if candidate.name not in refused]

    def _cached(self, state: TaskState, request: StepRequest, models: Sequence[Model]) -> Mapping[str, int]:
        """Prompt tokens each model is expected to have in its cache: as the host says, else by what it has served."""
        if request.cached_tokens:
            return request.cached_tokens
        task, role, tokens = state.ledger.task.id, request.role, request.prompt_tokens
        expected = self._forecast.caches.expected
        return {model.name: expected(task, role, model, tokens) for model in models} if self._pool.caching else {}

    def _credit(self, state: TaskState, request: StepRequest, candidate: Candidate, cached: int) -> None:
        model, tokens = candidate.model, request.prompt_tokens
        cached = min(cached, tokens)
        saved = self._forecast.caches.saves(state.ledger.task.id, request.role, model, tokens, cached)
        if saved:
            candidate.saves["usd"] = saved

    def _complete(
        self, state: TaskState, request: StepRequest, candidates: Sequence[Candidate], cached: Mapping[str, int]
    ) -> None:
        """Add what hangs on the servers, and what follows from seconds and joules."""
        bounded = request.timeout_s is not None and request.timeout_s > 0
        if self._pool.caching:
            for candidate in candidates:
                self._credit(state, request, candidate, cached.get(candidate.name, 0))
        if self._pool.scheduled:
            for candidate in candidates:
                self._fleet.add(candidate.model, candidate.cost, candidate.worst, bounded)
        if not self._health.perfect:
            for candidate in candidates:
                available = self._health.availability(candidate.name)
                if available < 1.0 and "seconds" in candidate.cost:  # so many calls on average until one is answered
                    candidate.cost["seconds"] /= max(available, 0.1)
        if self._derived.active:
            spent = self._accounts.pressure(state.ledger.task.id).spent
            for candidate in candidates:
                self._derived.expect(candidate.model, candidate.cost, candidate.worst, spent)

    def _context(
        self,
        state: TaskState,
        request: StepRequest,
        candidates: list[Candidate],
        progress: Progress,
        extra: Mapping[str, Any],
    ) -> StepContext:
        task = state.ledger.task
        spending = self._accounts.pressure(task.id)
        return StepContext(
            task=task,
            role=request.role,
            step=len(state.ledger.steps),
            candidates=candidates,
            progress=progress,
            budget=BudgetState(self._accounts.limits, spending.spent, spending.reserved, spending.queues),
            ledger=state.ledger,
            draws=self._draws,
            group=(task.dimension or task.domain, task.source, request.role),
            text=request.text,
            tried=Dispatched(state.models) if state.models else (),
            extra=extra,
        )

    def _decide(
        self,
        request: StepRequest,
        causes: Mapping[str, str],
        context: StepContext,
        scores: Scores,
        explore: float | None = None,
    ) -> Decision:
        values, probabilities = checked(scores, len(context.candidates))
        best = values.index(max(values))
        share = self._explore if explore is None else explore
        if share:
            probabilities = [(1 - share) * p + share / len(values) for p in probabilities]
        stop = request.can_stop and scores.stop is not None and scores.stop > values[best]
        index = best if stop else draw(probabilities, self._draws)
        terms = scores.terms or [{} for _ in values]
        entries = [
            CandidateScore(c.model.name, value, parts, c.cost, c.gain, c.gain_sd, probability)
            for c, value, parts, probability in zip(context.candidates, values, terms, probabilities, strict=True)
        ]
        entries += [CandidateScore(name, None, cause=cause) for name, cause in causes.items()]
        return Decision(
            id=new_id(),
            task=context.task.id,
            step=request.key,
            attempt=request.attempt,
            role=request.role,
            model=context.candidates[index].model,
            candidates=entries,
            progress=context.progress,
            policy=self._policy.name,
            propensity=1.0 if stop else probabilities[index],
            reason="ending the task is worth more than any call" if stop else scores.reason,
            stop=stop,
            stop_score=scores.stop if request.can_stop else None,
            explored=not stop and values[index] < values[best],
            created=self._clock(),
            prompt_tokens=request.prompt_tokens,
        )


def checked(scores: Scores, n: int) -> tuple[list[float], list[float]]:
    """A policy's values and probabilities as plain lists.

    Raises:
        ValueError: not one finite value per candidate, or propensities that are no probabilities.
    """
    values = _floats(scores.values)
    if len(values) != n or not all(map(math.isfinite, values)):
        raise ValueError(f"a policy must give {n} finite scores; seen {values}")
    if scores.stop is not None and math.isnan(scores.stop):
        raise ValueError("a policy gave NaN as the score of stopping")
    if scores.propensities is None:
        best = values.index(max(values))
        return values, [float(i == best) for i in range(n)]
    weights = _floats(scores.propensities)
    total = sum(weights)
    if len(weights) != n or not math.isfinite(total) or total <= 0 or min(weights) < 0:
        raise ValueError(f"a policy must give {n} propensities of 0 or more; seen {weights}")
    return values, [weight / total for weight in weights]


def _floats(values: Any) -> list[float]:
    if type(values) is list:
        return list(map(float, values))
    found: list[float] = np.asarray(values, dtype=np.float64).tolist()
    return found


def draw(probabilities: Sequence[float], draws: Draws) -> int:
    """An index drawn with these probabilities; a certain one costs no random number."""
    if 1.0 in probabilities:
        return probabilities.index(1.0)
    mark, total, last = draws.random(1)[0], 0.0, 0
    for i, probability in enumerate(probabilities):
        if probability > 0:
            total, last = total + probability, i
            if mark < total:
                break
    return last
