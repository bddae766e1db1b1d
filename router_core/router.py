"""The router: decide → observe → finish."""

from __future__ import annotations

import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, Literal

import numpy as np

from steproute.budget import Accounts, Budget
from steproute.config import load_config
from steproute.decision import CandidateScore, Decision
from steproute.errors import BudgetExceeded, ConfigError, NoEligibleModel
from steproute.forecast import CostForecast, price_outcome
from steproute.ledger import Evidence, Ledger, Outcome, Task
from steproute.models import Model, ModelPool, Needs
from steproute.policies import BudgetState, Candidate, Feedback, Policy, Scores, StepContext, make_policy
from steproute.predict import CapabilityPrior, GainEstimator
from steproute.progress import DEFAULT_WEIGHTS, Progress, ProgressTracker, View, Weights, view_for
from steproute.progress.views import VIEWS
from steproute.taskstate import OpenStep, TaskState

logger = logging.getLogger("steproute")

DEFAULT_POLICY = "progrouter"


@dataclass(frozen=True, slots=True)
class StepRequest:
    """What the host asked for, with its defaults filled in."""

    role: str
    key: str
    attempt: int
    prompt_tokens: int
    max_tokens: int | None
    needs: Needs
    exclude: tuple[str, ...]
    text: str | None
    pin: str | None
    can_stop: bool
    extra: Mapping[str, Any]


class Router:
    """Picks the model of every call, keeps the budget, learns from outcomes. Safe to share between threads."""

    def __init__(
        self,
        models: Iterable[Model] | ModelPool,
        budget: Budget | None = None,
        policy: str | Mapping[str, Any] | Policy = DEFAULT_POLICY,
        *,
        estimator: GainEstimator | None = None,
        views: Mapping[str, View] | None = None,
        weights: Weights = DEFAULT_WEIGHTS,
        explore: float = 0.0,
        seed: int | None = None,
        idle_timeout: float = 600.0,
        facts: Callable[[Ledger], Mapping[str, Any]] | None = None,
        on_error: Literal["fallback", "raise"] = "fallback",
        clock: Callable[[], float] = time.time,
    ):
        """Set up a router.

        Args:
            models: the candidates, at least one.
            budget: limits per task and long-run targets; None = no limits, spending is still counted.
            policy: a name, a mapping with `name` and settings, or a policy object.
            estimator: predicts gains; None = the policy's own, else the capability prior.
            views: progress views per domain, added to the built-in ones.
            weights: weights of the progress formula.
            explore: probability, in [0, 1), of a uniform draw that keeps every candidate possible.
            seed: seed of every random draw; None = from the operating system.
            idle_timeout: a task without calls for this many seconds ends with success unknown.
            facts: asked at every decision; what it returns reaches the policy as `StepContext.extra`.
            on_error: `"fallback"`: a fault inside the router never reaches the host; `"raise"` is for tests.
            clock: gives the time in seconds.

        Raises:
            ConfigError: a setting is wrong.
        """
        self.pool = models if isinstance(models, ModelPool) else ModelPool(models)
        self.budget = budget or Budget()
        self.policy = make_policy(policy)
        if hasattr(self.policy, "check"):
            self.policy.check(self.pool.names)
        if not 0 <= explore < 1:
            raise ConfigError(f"explore: seen {explore!r}; allowed: at least 0 and below 1")
        if not idle_timeout > 0:
            raise ConfigError(f"idle_timeout: seen {idle_timeout!r}; allowed: seconds above 0")
        self.estimator: GainEstimator = estimator or getattr(self.policy, "estimator", None) or CapabilityPrior()
        self.explore, self.idle_timeout, self.on_error = explore, idle_timeout, on_error
        self.accounts = Accounts(self.budget, clock)
        self.forecast = CostForecast()
        self.errors = 0
        """How many faults of the router itself were kept from the host."""
        self._facts = facts
        self._views, self._weights = {**VIEWS, **(views or {})}, weights
        self._rng = np.random.default_rng(seed)
        self._clock = clock
        self._tasks: OrderedDict[str, TaskState] = OrderedDict()
        self._ended: OrderedDict[str, set[str]] = OrderedDict()
        self._lock = RLock()

    @classmethod
    def from_config(cls, source: Any, **overrides: Any) -> Router:
        """Build a router from `steproute.yaml` (a path) or from the same content as a mapping.

        Raises:
            ConfigError: an unknown key (with the nearest right name), a wrong value, or an unreadable file.
        """
        return cls(**{**load_config(source), **overrides})

    # --- the three calls of a step ---------------------------------------------------------------------------

    def decide(
        self,
        ledger: Ledger | Task | str,
        role: str = "",
        *,
        step: str | None = None,
        prompt_tokens: int | None = None,
        max_tokens: int | None = None,
        needs: Needs | None = None,
        text: str | None = None,
        pin: str | None = None,
        exclude: Sequence[str] = (),
        can_stop: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> Decision:
        """Choose the model of the next call.

        Args:
            ledger: the task's ledger, its `Task`, or its id (the router then keeps the ledger).
            role: worker the framework chose.
            step: key of the step within the task; None = the number of steps in the ledger. Parallel calls need keys.
            prompt_tokens: tokens of the prompt; None = estimated from `text` at 4 characters a token.
            max_tokens: limit of the completion, for the worst case.
            needs: capabilities the call needs.
            text: what the step is about, for estimators that embed it. It is not logged.
            pin: this model and no other; it is still metered and kept within hard limits.
            exclude: models not to use.
            can_stop: True = the policy may answer that the task should end here (`Decision.stop`).
            extra: facts for the policy.

        Returns:
            The decision; the same (task, step, attempt) gives the same one.

        Raises:
            NoEligibleModel: no model has what the step needs.
            BudgetExceeded: a hard limit leaves none that fits.
        """
        with self._lock:
            state = self._state(ledger)
            key = str(len(state.ledger.steps)) if step is None else step
            attempt = state.attempts.get(key, 1)
            if (key, attempt) in state.decisions:
                return state.decisions[key, attempt][0]
            tokens = prompt_tokens if prompt_tokens is not None else len(text or state.ledger.task.goal) // 4
            request = StepRequest(
                role,
                key,
                attempt,
                tokens,
                max_tokens,
                needs or Needs(context_tokens=tokens),
                (*exclude, *state.failed.get(key, ())),
                text,
                pin,
                can_stop,
                extra or {},
            )
            try:
                decision, context = self._choose(state, request)
            except (NoEligibleModel, BudgetExceeded):
                raise
            except Exception as error:
                if self.on_error == "raise":
                    raise
                self._count(error, "decide")
                decision, context = self._default(state, request)
            state.decisions[key, attempt] = (decision, context)
            return decision

    def observe(
        self, decision: Decision, outcome: Outcome, *, output: str = "", evidence: Sequence[Evidence] = ()
    ) -> Progress:
        """Take in what a call cost and returned. Billed once per `outcome.call_id`, learnt once per attempt.

        Args:
            decision: what `decide` returned.
            outcome: usage, time, error. A failed outcome opens the next attempt without that model.
            output: the reply, kept in the ledger.
            evidence: what is already known about its quality; more may follow by `report`.

        Returns:
            Progress of the task after the step.
        """
        with self._lock:
            state = self._tasks.get(decision.task)
            if state is None:
                return self._late(decision, outcome)
            if outcome.call_id in state.billed:
                return state.progress()
            state.billed.add(outcome.call_id)
            state.touched = self._clock()
            try:
                return self._observe(state, decision, outcome, output, evidence)
            except Exception as error:
                if self.on_error == "raise":
                    raise
                self._count(error, "observe")
                return decision.progress

    def report(self, task: str, evidence: Sequence[Evidence], decision: Decision | None = None) -> Progress | None:
        """Add evidence that came after the call (a test run, a judge) to its step; the last one unless a decision is given.

        Returns:
            Progress after it, or None when the task is not known (any more).
        """
        with self._lock:
            state = self._tasks.get(task)
            if state is None or not state.ledger.steps:
                return None
            steps = state.ledger.steps
            step = next((s for s in reversed(steps) if decision is not None and s.id == decision.id), steps[-1])
            step.outcome.evidence.extend(evidence)
            self._learn(state)
            return state.progress()

    def finish(self, task: str, success: bool | None = None, reward: float | None = None) -> Mapping[str, float]:
        """End a task: learn what is still open, credit its steps, advance the queues.

        Args:
            task: its id. Finishing a task twice changes nothing.
            success: final result; None = unknown.
            reward: final reward in [0, 1]; None = from `success`.

        Returns:
            What the task spent, per resource.
        """
        with self._lock:
            state = self._tasks.pop(task, None)
            if state is None:
                return {}
            try:
                self._learn(state, final=True)
                if hasattr(self.policy, "finish"):
                    value = reward if reward is not None else None if success is None else float(success)
                    self.policy.finish(state.ledger, state.learnt, value)
            except Exception as error:
                if self.on_error == "raise":
                    raise
                self._count(error, "finish")
            self._ended[task] = state.billed
            while len(self._ended) > 1000:
                self._ended.popitem(last=False)
            return self.accounts.close(task)

    async def adecide(self, *args: Any, **kwargs: Any) -> Decision:
        """`decide` for asynchronous hosts; it never waits for input or output."""
        return self.decide(*args, **kwargs)

    async def aobserve(self, *args: Any, **kwargs: Any) -> Progress:
        """`observe` for asynchronous hosts."""
        return self.observe(*args, **kwargs)

    async def afinish(self, *args: Any, **kwargs: Any) -> Mapping[str, float]:
        """`finish` for asynchronous hosts."""
        return self.finish(*args, **kwargs)

    # --- looking in ------------------------------------------------------------------------------------------

    def ledger(self, task: str) -> Ledger | None:
        """The ledger of a running task."""
        state = self._tasks.get(task)
        return None if state is None else state.ledger

    def decisions(self, task: str) -> list[Decision]:
        """The decisions of a running task, in order."""
        state = self._tasks.get(task)
        return [] if state is None else [decision for decision, _ in state.decisions.values()]

    def progress(self, task: str) -> Progress | None:
        """Progress of a running task."""
        with self._lock:
            state = self._tasks.get(task)
            return None if state is None else state.progress()

    def spent(self, task: str) -> Mapping[str, float]:
        """What a running task has spent so far, its children included."""
        return self.accounts.spending(task).spent

    # --- inside ----------------------------------------------------------------------------------------------

    def _state(self, ledger: Ledger | Task | str) -> TaskState:
        now = self._clock()
        self._end_idle(now)
        if isinstance(ledger, str):
            ledger = Task(id=ledger)
        task = ledger.task if isinstance(ledger, Ledger) else ledger
        state = self._tasks.get(task.id)
        if state is None:
            book = ledger if isinstance(ledger, Ledger) else Ledger(task=task)
            state = TaskState(book, ProgressTracker(view_for(task.domain, self._views), self._weights), now)
            self._tasks[task.id] = state
            self.accounts.open(task.id, task.parent)
        elif isinstance(ledger, Ledger):
            state.ledger = ledger
        state.touched = now
        self._tasks.move_to_end(task.id)
        return state

    def _end_idle(self, now: float) -> None:
        while self._tasks:
            task, state = next(iter(self._tasks.items()))
            if now - state.touched <= self.idle_timeout:
                break
            self.finish(task)

    def _choose(self, state: TaskState, request: StepRequest) -> tuple[Decision, StepContext]:
        self._learn(state)
        lost: list[str] = []
        while True:
            candidates, causes = self._eligible(state, request, lost)
            context = self._context(state, request, candidates)
            means, spreads = self.estimator.predict(context)
            for candidate, mean, spread in zip(candidates, means, spreads, strict=True):
                candidate.gain, candidate.gain_sd = float(mean), float(spread)
            pinned = request.pin is not None
            scores = Scores(np.zeros(1), reason="pinned by the host") if pinned else self.policy.score(context)
            decision = self._decision(request, candidates, causes, context, scores)
            if request.can_stop and scores.stop is not None and scores.stop > max(scores.values):
                decision.stop, decision.explored = True, False
                return decision, context
            if self._reserve(decision, candidates):
                return decision, context
            lost.append(decision.model.name)  # another call took the room between the filter and the reservation

    def _reserve(self, decision: Decision, candidates: Sequence[Candidate]) -> bool:
        chosen = next(item for item in candidates if item.model is decision.model)
        try:
            decision.reservation = self.accounts.reserve(decision.task, chosen.cost, chosen.worst)
        except BudgetExceeded:
            return False
        return True

    def _eligible(
        self, state: TaskState, request: StepRequest, lost: Sequence[str] = ()
    ) -> tuple[list[Candidate], dict[str, str]]:
        fit, causes = self.pool.eligible(request.role, request.needs, request.exclude)
        if request.pin is not None:
            pinned = self.pool[request.pin]
            causes.update({model.name: f"the host pinned {request.pin}" for model in fit if model is not pinned})
            fit = [model for model in fit if model is pinned]
        if not fit:
            raise NoEligibleModel(request.role, causes)
        dearest = self._unknown_price()
        candidates, refusals = [], []
        for model in fit:
            cost, worst = self.forecast.predict(model, request.role, request.prompt_tokens, request.max_tokens, dearest)
            refusal = self.accounts.fits(state.ledger.task.id, worst)
            if refusal is None and model.name not in lost:
                candidates.append(Candidate(model, cost, worst))
            elif refusal is not None:
                causes[model.name] = str(refusal).partition(": ")[2]
                refusals.append(refusal)
        if not candidates:
            raise min(refusals, key=lambda refusal: refusal.asked)
        return candidates, causes

    def _unknown_price(self) -> float:
        """USD per million tokens assumed where the price is unknown: the dearest known one."""
        known = [max(model.price.input, model.price.output) for model in self.pool if model.price != "unknown"]
        return max(known, default=0.0)

    def _context(self, state: TaskState, request: StepRequest, candidates: list[Candidate]) -> StepContext:
        task = state.ledger.task
        spending = self.accounts.spending(task.id)
        return StepContext(
            task=task,
            role=request.role,
            step=len(state.ledger.steps),
            candidates=candidates,
            progress=state.progress(),
            budget=BudgetState(self.accounts.limits, spending.spent, spending.reserved, spending.queues),
            ledger=state.ledger,
            rng=self._rng,
            group=(task.dimension or task.domain, task.source, request.role),
            text=request.text,
            tried=tuple(state.models),
            extra={**(self._facts(state.ledger) if self._facts else {}), **request.extra},
        )

    def _pick(self, scores: Scores) -> tuple[int, np.ndarray[Any, Any], bool]:
        values = np.asarray(scores.values, dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError(f"policy {self.policy.name} gave scores that are not finite: {values.tolist()}")
        best = int(np.argmax(values))
        if scores.propensities is not None:
            probabilities = np.asarray(scores.propensities, dtype=np.float64)
            probabilities = probabilities / probabilities.sum()
        else:
            probabilities = np.zeros(len(values))
            probabilities[best] = 1.0
        if self.explore:
            probabilities = (1 - self.explore) * probabilities + self.explore / len(values)
        if probabilities[best] == 1.0:
            return best, probabilities, False
        index = int(self._rng.choice(len(values), p=probabilities))
        return index, probabilities, bool(values[index] < values[best])

    def _decision(
        self,
        request: StepRequest,
        candidates: list[Candidate],
        causes: Mapping[str, str],
        context: StepContext,
        scores: Scores,
    ) -> Decision:
        index, probabilities, explored = self._pick(scores)
        entries = [
            CandidateScore(
                candidate.name,
                float(scores.values[i]),
                dict(scores.terms[i]) if scores.terms else {},
                candidate.cost,
                candidate.gain,
                candidate.gain_sd,
                float(probabilities[i]),
            )
            for i, candidate in enumerate(candidates)
        ]
        entries += [CandidateScore(name, None, cause=cause) for name, cause in causes.items()]
        return Decision(
            id=uuid.uuid4().hex,
            task=context.task.id,
            step=request.key,
            attempt=request.attempt,
            role=request.role,
            model=candidates[index].model,
            candidates=entries,
            progress=context.progress,
            policy=self.policy.name,
            propensity=float(probabilities[index]),
            reason=scores.reason,
            explored=explored,
            created=self._clock(),
            prompt_tokens=request.prompt_tokens,
        )

    def _default(self, state: TaskState, request: StepRequest) -> tuple[Decision, StepContext]:
        """The pool's default model, or the strongest that fits; capabilities and hard limits still hold."""
        candidates, causes = self._eligible(state, request)
        context = self._context(state, request, candidates)
        values = np.array([(c.name == self.pool.default.name) + c.model.prior for c in candidates])
        scores = Scores(values, propensities=np.eye(len(values))[int(np.argmax(values))])
        scores.reason = "the router failed inside; the default model stands in"
        decision = self._decision(request, candidates, causes, context, scores)
        decision.fallback = True
        chosen = next(item for item in candidates if item.model is decision.model)
        decision.reservation = self.accounts.reserve(decision.task, chosen.cost, chosen.worst)
        return decision, context

    def _observe(
        self, state: TaskState, decision: Decision, outcome: Outcome, output: str, evidence: Sequence[Evidence]
    ) -> Progress:
        model = self.pool[outcome.model] if outcome.model in self.pool else decision.model
        spent = self._settle(decision, model, outcome)
        self.forecast.learn(model, decision.role, outcome)
        state.models.append(model.name)
        if outcome.error is not None:
            state.fail(decision, model.name)
            return state.progress()
        outcome.evidence.extend(evidence)
        step = state.record(decision, outcome, output, model.name)
        context = state.decisions[decision.step, decision.attempt][1]
        index = next((i for i, name in enumerate(context.names) if name == model.name), -1)
        state.waiting.append(OpenStep(decision, context, step, index, spent))
        if outcome.evidence:
            self._learn(state)
        progress = state.progress()
        step.g = progress.g
        return progress

    def _settle(self, decision: Decision, model: Model, outcome: Outcome) -> dict[str, float]:
        if outcome.energy_j is None and outcome.error is None:
            outcome.energy_j = model.profile.energy_j(outcome.prompt_tokens, outcome.completion_tokens)
            if model.profile.power_w is not None and model.profile.decode_j_per_token is None and outcome.seconds:
                outcome.energy_j = model.profile.power_w * outcome.seconds
            if outcome.energy_j is not None:
                outcome.energy_source = "estimate from the model's profile"
        spent = price_outcome(model, outcome, self._unknown_price())
        if outcome.usd is None and model.price != "unknown":
            outcome.usd = spent["usd"]
        self.accounts.settle(decision.task, decision.reservation, spent)
        return spent

    def _learn(self, state: TaskState, final: bool = False) -> None:
        """Learn from calls whose effect shows by now: those with evidence, and all of them at the end."""
        if not state.waiting:
            return
        progress = state.progress()
        still = []
        for item in state.waiting:
            last = item.step is state.ledger.steps[-1]
            if last and not item.step.outcome.evidence and not final:
                still.append(item)
                continue
            state.learnt.append(item)
            if item.index < 0:
                continue
            feedback = Feedback(
                item.context,
                item.index,
                progress.g - item.context.progress.g,
                progress,
                reliability(item.step.outcome.evidence),
                item.spent,
                item.step.outcome.evidence,
            )
            self.estimator.learn(feedback)
            if hasattr(self.policy, "learn") and self.policy is not self.estimator:
                self.policy.learn(feedback)
        state.waiting = still

    def _late(self, decision: Decision, outcome: Outcome) -> Progress:
        """An outcome that arrives after its task ended is still billed, once; there is nothing left to learn from."""
        billed = self._ended.setdefault(decision.task, set())
        if outcome.call_id not in billed:
            billed.add(outcome.call_id)
            model = self.pool[outcome.model] if outcome.model in self.pool else decision.model
            self._settle(decision, model, outcome)
            self.accounts.close(decision.task)
        return decision.progress

    def _count(self, error: Exception, where: str) -> None:
        self.errors += 1
        logger.error("steproute: %s failed inside (%s: %s); the host goes on", where, type(error).__name__, error)


def reliability(evidence: Sequence[Evidence]) -> float:
    """How far evidence can be trusted before anything is learnt about its sources: n/(n+1) for n checks, .25 without any.

    One passed example is worth half of what an exhaustive test would be.
    """
    checks = sum(item.count for item in evidence if item.source not in ("syntax", "execution"))
    return checks / (checks + 1) if checks else 0.25
