"""The router: decide → observe → finish."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal

from steproute.accounts import Accounts
from steproute.budget import Budget
from steproute.choice import Chooser, Facts
from steproute.config import load_config
from steproute.decision import Decision
from steproute.derived import Derived
from steproute.draws import Draws
from steproute.faults import FOR_THE_HOST, Faults
from steproute.fleet import Fleet
from steproute.forecast import CostForecast
from steproute.handed import counts_of, evidence_of, id_of, mend, names_of, needs_of, number, reward_of, task_of, whole
from steproute.health import Health
from steproute.ids import new_id
from steproute.learning import Learner, Reliability
from steproute.ledger import Evidence, Ledger, Outcome, Task
from steproute.metering import Meter, make_meter
from steproute.models import Model, ModelPool, Needs
from steproute.options import RouterOptions, check_options
from steproute.policies import Policy, StepContext, make_policy
from steproute.predict import CapabilityPrior, GainEstimator
from steproute.progress import DEFAULT_WEIGHTS, Progress, View, Weights
from steproute.progress.domains import VIEWS
from steproute.tasks import TaskTable
from steproute.taskstate import Made, StepRequest, TaskState
from steproute.twins import asynchronous

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from steproute.store import Store
    from steproute.telemetry import Telemetry

logger = logging.getLogger("steproute")

DEFAULT_POLICY = "pacer"


class Router:
    """Picks the model of every call, keeps the budget, learns from outcomes. Safe to share between threads."""

    def __init__(
        self,
        models: Iterable[Model] | ModelPool,
        budget: Budget | None = None,
        policy: str | Mapping[str, Any] | Policy = DEFAULT_POLICY,
        *,
        estimator: GainEstimator | None = None,
        reliability: Reliability | None = None,
        views: Mapping[str, View] | None = None,
        weights: Weights = DEFAULT_WEIGHTS,
        explore: float = 0.0,
        seed: int | None = None,
        idle_timeout: float = 600.0,
        cooldown_s: float = 30.0,
        facts: Facts | None = None,
        meter: Meter | str | None = None,
        store: Store | str | Path | None = None,
        telemetry: Telemetry | Mapping[str, Any] | bool | None = None,
        on_error: Literal["fallback", "raise"] = "fallback",
        clock: Callable[[], float] = time.time,
    ):
        """Set up a router.

        Args:
            models: the candidates, at least one. A pool is copied; change the router's own by `router.pool`.
            budget: limits per task and long-run targets; None = no limits, spending is still counted.
            policy: a name, a mapping with `name` and settings, or a policy object.
            estimator: predicts gains; None = the policy's own, else the capability prior.
            reliability: how far the evidence of a step is trusted, such as an `EvidenceModel`, which learns it from final
                results; None = the policy's own, else n/(n+1) for n checks.
            views: progress views per domain, added to the built-in ones.
            weights: weights of the progress formula.
            explore: probability, in [0, 1), of a uniform draw that keeps every candidate possible.
            seed: seed of every random draw; None = from the operating system.
            idle_timeout: a task without calls for this many seconds ends with success unknown; it goes on where it
                was when it is heard of again. Of more than 10,000 running ones the longest idle end before.
            cooldown_s: a model that failed three times in a row rests for this long, then doubling; 0 = never.
            facts: asked at every decision; what it returns reaches the policy as `StepContext.extra`.
            meter: measures the joules of every call from `decide` to `observe`, such as an `EnergyMeter`, or its name:
                `auto`, `nvml`, `rapl`; None = they are estimated from profiles.
            store: where every step is kept, so that a restarted router goes on where it was: the path of a SQLite file, a
                PostgreSQL URL, or a `Store` with settings; None = nothing outlasts the process.
            telemetry: spans, metrics and log lines of every step: `True`, or `Telemetry(...)` with settings (extra
                `telemetry`); None = none.
            on_error: `"fallback"`: a fault inside the router never reaches the host; `"raise"` is for tests.
            clock: gives the time in seconds.

        Raises:
            ConfigError: a setting is wrong.
            StoreError: the store cannot be opened or does not fit.
        """
        self.pool = models.copy() if isinstance(models, ModelPool) else ModelPool(models)
        self.budget = budget or Budget()
        self.policy = make_policy(policy)
        check_options(self.pool, self.budget, self.policy, explore, idle_timeout, cooldown_s, on_error)
        self.estimator: GainEstimator = estimator or getattr(self.policy, "estimator", None) or CapabilityPrior()
        self.reliability: Reliability | None = reliability or getattr(self.policy, "reliability", None)
        self.explore, self.idle_timeout, self.on_error = explore, idle_timeout, on_error
        self.faults = Faults(raising=on_error == "raise")
        self._log = self._open_log(store, clock)
        self.accounts = Accounts(self.budget, clock) if self._log is None else self._log.accounts(self.budget)
        self._log = self._with_telemetry(telemetry)
        self.forecast = CostForecast(clock=clock)
        self.health = Health(clock, cooldown_s)
        self.meter = make_meter(meter) if isinstance(meter, str) else meter
        self.fleet = Fleet(self.pool, clock, self.budget.lease_s, self.meter, self.budget.vram_gb)
        derived = Derived(self.budget, clock)
        draws = Draws(seed)
        parts = (self.pool, self.accounts, self.forecast, self.health, self.policy, self.estimator)
        self._chooser = Chooser(*parts, draws, explore, facts, clock, self.fleet, derived)
        self._learner = Learner(*parts, self.faults, self.reliability, derived)
        self._tasks = TaskTable(self.accounts, {**VIEWS, **(views or {})}, weights, clock, idle_timeout)
        self._lock = RLock()
        if self._log is not None:
            self._log.start(
                (*parts, self.reliability, self._learner, self._tasks, draws, self.faults, self.fleet, derived)
            )
            self._learner.log = self._tasks.log = self._log
        self._clock = clock

    @classmethod
    def from_config(cls, source: str | Path | Mapping[str, Any], **overrides: Unpack[RouterOptions]) -> Router:
        """Build a router from `steproute.yaml` (a path) or from the same content as a mapping.

        Raises:
            ConfigError: an unknown key (with the nearest right name), a wrong value, or an unreadable file.
        """
        options: RouterOptions = {**load_config(source), **overrides}
        return cls(**options)

    # --- the three calls of a step ---------------------------------------------------------------------------

    def decide(
        self,
        ledger: Ledger | Task | str,
        role: str = "",
        *,
        step: str | None = None,
        prompt_tokens: int | None = None,
        max_tokens: int | None = None,
        timeout_s: float | None = None,
        cached_tokens: Mapping[str, int] | None = None,
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
            timeout_s: after how many seconds the host gives the call up, for the worst case of time.
            cached_tokens: per model, how much of the prompt it has served before and may read from its cache: what a
                switch to another model would cost.
            needs: capabilities the call needs.
            text: what the step is about, for estimators that embed it. It is not logged.
            pin: this model and no other; it is still metered and kept within hard limits.
            exclude: models not to use. One that was decided before and is excluded now opens the next attempt.
            can_stop: True = the policy may answer that the task should end here (`Decision.stop`).
            extra: facts for the policy.

        Returns:
            The decision; the same (task, step, attempt) gives the same one.

        Raises:
            NoEligibleModel: no model has what the step needs, or each has failed at it; a new key as `step` tries all again.
            BudgetExceeded: a hard limit leaves none that fits.
        """
        with self._lock:
            if self._log is not None:
                with self.faults.kept("store"):
                    self._log.tick()
            self._end_idle()
            state = self._tasks.open(task_of(ledger))
            role = role if isinstance(role, str) else str(role or "")
            exclude = names_of(self.faults, "exclude", exclude)
            pin = str(pin) if pin is not None else None
            text = text if isinstance(text, str) else None
            key = state.default_key(role) if step is None else str(step)
            made = self._chooser.standing(state, key, exclude, pin, can_stop)
            if made is not None:
                if not made.answered:
                    self._begin(made.decision)
                return made.decision
            asked = whole(self.faults, "prompt_tokens", prompt_tokens)
            tokens = asked if asked is not None else len(text or state.ledger.task.goal) // 4
            request = StepRequest(
                role=role,
                key=key,
                attempt=state.attempts.get(key, 1),
                prompt_tokens=max(tokens, 0),
                max_tokens=whole(self.faults, "max_tokens", max_tokens),
                timeout_s=number(self.faults, "timeout_s", timeout_s),
                cached_tokens=counts_of(self.faults, "cached_tokens", cached_tokens),
                needs=needs_of(self.faults, needs).at_least(tokens),
                exclude={**dict.fromkeys(exclude, "excluded by the host"), **state.failed.get(key, {})},
                text=text,
                pin=pin,
                can_stop=can_stop,
                extra=extra or {},
            )
            progress = self._progress(state)
            self._learner.learn(state)
            decision, context = self._choose(state, request, progress)
            state.baseline = progress.g
            state.moments += 1
            made = Made(decision, context, state.moments)
            state.keep(made)
            if self._log is not None:
                with self.faults.kept("store"):
                    self._log.decided(made, pin is not None)
            self._begin(decision)
            return decision

    def book(
        self,
        ledger: Ledger | Task | str,
        model: str,
        role: str = "",
        *,
        prompt_tokens: int = 0,
        max_tokens: int | None = None,
        within_limits: bool = True,
    ) -> Decision:
        """Book a call whose model is not chosen here (an embedding, a deployment the host names itself).

        Its outcome, given to `observe`, is billed to the task once; it is no step of the ledger and teaches nothing.

        Args:
            ledger: the task's ledger, its `Task`, or its id.
            model: name in the pool.
            role: worker the call is made for.
            prompt_tokens: tokens of the prompt.
            max_tokens: limit of the completion; None = the model's own.
            within_limits: False = the call was made already: nothing is reserved, and no limit is asked.

        Raises:
            BudgetExceeded: it does not fit within a hard limit.
            ConfigError: no such model.
        """
        chosen = self.pool[model]
        with self._lock:
            self._end_idle()
            state = self._tasks.open(task_of(ledger))
            task = state.ledger.task.id
            reservation = None
            if within_limits:
                cost, worst = self.forecast.predict(chosen, role, prompt_tokens, max_tokens, self.pool.dearest_usd)
                reservation = self.accounts.reserve(task, cost, worst)
            return Decision(
                id=new_id(),
                task=task,
                step="",
                attempt=1,
                role=role,
                model=chosen,
                candidates=[],
                progress=self._progress(state),
                policy=self.policy.name,
                propensity=1.0,
                reason="not chosen here",
                created=self._clock(),
                reservation=reservation,
                prompt_tokens=prompt_tokens,
            )

    def observe(
        self, decision: Decision, outcome: Outcome, *, output: str = "", evidence: Sequence[Evidence] = ()
    ) -> Progress:
        """Take in what a call cost and returned. Billed once per `outcome.call_id`, learnt once per attempt.

        Args:
            decision: what `decide` returned.
            outcome: usage, time, error; completed in place with USD, joules and evidence. A failed outcome opens the
                next attempt without that model.
            output: the reply, kept in the ledger.
            evidence: what is already known about its quality; more may follow by `report`.

        Returns:
            Progress of the task after the step.

        Raises:
            ConfigError: `decision` or `outcome` is something else.
        """
        with self._lock:
            mend(self.faults, decision, outcome)
            try:
                self.fleet.end(decision, outcome)
            except Exception as error:
                if not self.faults.swallow(error, "end of a call"):
                    raise
            state = self._tasks.get(decision.task)
            made = None if state is None else state.made.get((decision.step, decision.attempt))
            if state is None or made is None or made.decision.id != decision.id:
                return self._late(state, decision, outcome)
            if outcome.call_id in state.billed:
                return self._progress(state)
            state.billed.add(outcome.call_id)
            self._tasks.touch(decision.task)
            evidence = evidence_of(self.faults, evidence)
            output = output if isinstance(output, str) else str(output or "")
            item = None
            try:
                item = self._learner.take(state, made, outcome, output, evidence)
            except Exception as error:
                if not self.faults.swallow(error, "observe"):
                    raise
            progress = self._progress(state)
            state.baseline = progress.g
            if item is not None:
                item.step.g = progress.g
            self._observed(decision, outcome, progress, output, item is not None)
            self._learner.learn(state)
            self._commit()
            return progress

    def withdraw(self, decision: Decision, spent: Mapping[str, float] | None = None) -> None:
        """Give up a call: its room within the limits is free again, nobody is blamed and nothing learnt.

        Args:
            decision: what `decide` or `book` returned.
            spent: what the call is likely to cost all the same, per resource; None = it was not made.
        """
        with self._lock:
            with self.faults.kept("end of a call"):
                self.fleet.withdraw(decision)
            if spent is None:
                self.accounts.release(decision.reservation)
            else:
                self.accounts.settle(decision.task, decision.reservation, spent)
            self._commit()

    def report(self, task: str, evidence: Sequence[Evidence], decision: Decision | None = None) -> Progress | None:
        """Add evidence that came after the call (a test run, a judge) to its step.

        Args:
            task: id of the task.
            evidence: what was seen.
            decision: whose step it is about; None = the last step. Without a step of its own the evidence is dropped.

        Returns:
            Progress after it, or None when the task is not known (any more).
        """
        with self._lock:
            task = id_of(task)
            state = self._tasks.fetch(task)
            if state is None or not state.ledger.steps:
                return None
            self._tasks.touch(task)
            evidence = evidence_of(self.faults, evidence)
            index = len(state.ledger.steps) - 1 if decision is None else state.find(decision)
            if index is None:
                logger.warning("steproute: evidence for a step that is not in the ledger of its task was dropped")
                return self._progress(state)
            step = state.ledger.steps[index]
            step.outcome.evidence.extend(evidence)
            if self._log is not None:
                with self.faults.kept("store"):
                    self._log.reported(task, step.id, evidence)
            state.tracker.rewind(index)
            progress = self._progress(state)
            after = state.tracker.after(index)
            step.g = after.g if after is not None else step.g
            self._learner.moved(state, index)
            self._learner.learn(state)
            state.baseline = progress.g
            self._commit()
            return progress

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
            task = id_of(task)
            self._tasks.fetch(task)
            return self._finish(task, reward_of(self.faults, success, reward))

    def close(self) -> None:
        """Let go of store and telemetry, with everything written. Without them it does nothing."""
        if self._log is not None:
            with self._lock:
                self._log.close()
                self._log = self._learner.log = self._tasks.log = None

    adecide = asynchronous(decide)
    abook = asynchronous(book)
    aobserve = asynchronous(observe)
    areport = asynchronous(report)
    afinish = asynchronous(finish)

    # --- looking in ------------------------------------------------------------------------------------------

    @property
    def errors(self) -> int:
        """How many faults of the router itself were kept from the host; `faults.last` is the latest."""
        return self.faults.count

    @errors.setter
    def errors(self, count: int) -> None:
        self.faults.count = count

    def ledger(self, task: str) -> Ledger | None:
        """The ledger of a running task."""
        state = self._tasks.get(id_of(task))
        return None if state is None else state.ledger

    def decisions(self, task: str) -> list[Decision]:
        """The latest decisions of a running task, in order."""
        with self._lock:
            state = self._tasks.get(id_of(task))
            return [] if state is None else [made.decision for made in state.made.values()]

    def progress(self, task: str) -> Progress | None:
        """Progress of a running task."""
        with self._lock:
            state = self._tasks.get(id_of(task))
            return None if state is None else self._progress(state)

    def spent(self, task: str) -> Mapping[str, float]:
        """What a running task has spent so far, its children included."""
        return self.accounts.spending(id_of(task)).spent

    def ended(self, task: str) -> bool:
        """Whether the host ended a task by `finish`; one that only ended by being idle goes on where it was."""
        with self._lock:
            task = id_of(task)
            return self._tasks.get(task) is None and self._tasks.finished(task)

    def told_loaded(self, names: Iterable[str]) -> None:
        """Take over which models a server holds in memory, by name in the pool or deployment; others of it are cold."""
        with self._lock:
            self.fleet.told(names)

    def recall(self, decision: Decision) -> None:
        """Note that a step was answered and learnt before, by another process: its calls are billed and teach nothing."""
        with self._lock:
            state = self._tasks.get(decision.task)
            made = None if state is None else state.made.get((decision.step, decision.attempt))
            if made is not None:
                made.answered = True

    # --- inside ----------------------------------------------------------------------------------------------

    def _choose(self, state: TaskState, request: StepRequest, progress: Progress) -> tuple[Decision, StepContext]:
        try:
            try:
                return self._chooser.choose(state, request, progress)
            except Exception as error:
                if not self.faults.swallow(error, "decide"):
                    raise
            return self._chooser.stand_in(state, request, progress)
        except FOR_THE_HOST as error:
            if self._log is not None:
                with self.faults.kept("store"):
                    self._log.refused(state.ledger.task.id, request.role, error)
            raise

    def _progress(self, state: TaskState) -> Progress:
        try:
            state.progress()
        except Exception as error:
            if not self.faults.swallow(error, "progress"):
                raise
        return state.latest

    def _begin(self, decision: Decision) -> None:
        """The call is about to be made: it is in flight, and measured, from here."""
        if not decision.stop:
            try:
                self.fleet.begin(decision)
            except Exception as error:
                if not self.faults.swallow(error, "begin of a call"):
                    raise

    @staticmethod
    def _open_log(store: Store | str | Path | None, clock: Callable[[], float]) -> Any:
        if store is None:
            return None
        from steproute.store import as_store

        return as_store(store).open(clock)

    def _with_telemetry(self, given: Telemetry | Mapping[str, Any] | bool | None) -> Any:
        if not given:
            return self._log
        from steproute.telemetry import as_telemetry

        settings = as_telemetry(given)
        if settings is None:
            return self._log
        try:
            return settings.listen(self._log, self.accounts, self.faults)
        except BaseException:
            if self._log is not None:
                self._log.connection.close()  # else its file would belong to a router that never was
            raise

    def _observed(self, decision: Decision, outcome: Outcome, progress: Progress, output: str, answers: bool) -> None:
        if self._log is not None:
            with self.faults.kept("store"):
                self._log.observed(decision, outcome, progress, output, answers)

    def _commit(self) -> None:
        if self._log is not None:
            with self.faults.kept("store"):
                self._log.commit()

    def _end_idle(self) -> None:
        for task in self._tasks.idle():
            if self._log is None or self._log.may_end(task):
                self._finish(task, None, idle=True)

    def _finish(self, task: str, reward: float | None, idle: bool = False) -> Mapping[str, float]:
        state = self._tasks.end(task, resumable=idle)
        if state is None:
            return {}
        self.fleet.finish(task)
        self.forecast.caches.forget(task)
        self._learner.learn(state, final=True)
        learnt, state.learnt = state.learnt, []
        parts: tuple[Any, ...] = (self.policy, self.estimator, self.reliability)
        for part in {id(part): part for part in parts}.values():
            if hasattr(part, "finish"):
                with self.faults.kept("finish"):
                    part.finish(state.ledger, learnt, reward)
        spent = self.accounts.close(task)
        if self._log is not None:
            with self.faults.kept("store"):
                self._log.ended(task, reward, idle, spent)
        self._commit()
        return spent

    def _late(self, state: TaskState | None, decision: Decision, outcome: Outcome) -> Progress:
        """An outcome whose task ended, or whose decision was replaced, is still billed, once; it teaches nothing."""
        with self.faults.kept("observe"):
            if self._tasks.bill(decision.task, outcome.call_id):
                self._learner.bill(decision, outcome)
                self._observed(decision, outcome, decision.progress, "", False)
        self._commit()
        return decision.progress if state is None else self._progress(state)
