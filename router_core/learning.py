"""What follows a call: it is paid, recorded, and learnt from once its effect shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from steproute.accounts import Accounts
from steproute.decision import Decision
from steproute.derived import Derived
from steproute.faults import Faults
from steproute.forecast import CostForecast, complete_energy, price_outcome
from steproute.health import Health
from steproute.ledger import Evidence, Outcome
from steproute.models import Model, ModelPool
from steproute.policies import Feedback, Policy
from steproute.predict import GainEstimator
from steproute.progress import Progress
from steproute.steplog import StepLog
from steproute.taskstate import KEPT_DECISIONS, Made, OpenStep, TaskState

Reliability = Callable[[Sequence[Evidence], str], float]
"""How far the evidence of a step can be trusted, in (0, 1], given the task's domain."""


class Learner:
    """Bills outcomes and hands feedback to the estimator and the policy. The caller holds the lock."""

    def __init__(
        self,
        pool: ModelPool,
        accounts: Accounts,
        forecast: CostForecast,
        health: Health,
        policy: Policy,
        estimator: GainEstimator,
        faults: Faults,
        trust: Reliability | None,
        derived: Derived,
    ):
        self._pool, self._accounts, self._forecast, self._health = pool, accounts, forecast, health
        self._policy, self._estimator, self._faults = policy, estimator, faults
        self._trust: Reliability = trust or reliability
        self._derived = derived
        self.log: StepLog | None = None

    def answering(self, decision: Decision, outcome: Outcome) -> Model:
        """The model that answered: the one the outcome names, by pool name or deployment, else the one decided."""
        found = self._pool.resolve(outcome.model) if outcome.model else None
        return found or decision.model

    def bill(self, decision: Decision, outcome: Outcome) -> tuple[Model, dict[str, float]]:
        """Settle the reservation by what the call spent; fills in the outcome's joules and USD where they follow.

        Returns:
            The model that answered, and the amounts.
        """
        model = self.answering(decision, outcome)
        complete_energy(model, outcome)
        spent = price_outcome(model, outcome, self._pool.dearest_usd)
        if outcome.usd is None and model.known_price is not None:
            outcome.usd = spent["usd"]
        if self._derived.bills:
            before = self._accounts.pressure(decision.task).spent
            self._derived.bill(model, spent, before, _expected_s(decision, model))
        self._accounts.settle(decision.task, decision.reservation, spent)
        self._health.note(model.name, outcome.error is not None, error=outcome.error)
        self._forecast.caches.note(decision.task, decision.role, model, decision.prompt_tokens, outcome)
        self._forecast.learn(model, decision.role, outcome)
        if self.log is not None:
            self.log.billed(decision, outcome, model.name, spent)
        return model, spent

    def remember(
        self, model: Model, decision: Decision | None, task: str, role: str, outcome: Outcome, at: float
    ) -> None:
        """Learn what calls take from one that was paid for before a restart, or by another worker.

        Args:
            model: the one that answered.
            decision: what it was made for; None = that was not kept.
            task: id of its task.
            role: its role.
            outcome: what came back.
            at: when, in seconds of the clock.
        """
        if decision is not None:
            self._derived.bill(model, {"seconds": outcome.seconds}, {}, _expected_s(decision, model))
            self._forecast.caches.note(task, role, model, decision.prompt_tokens, outcome, at)
        self._health.note(model.name, outcome.error is not None, at, outcome.error)
        self._forecast.learn(model, role, outcome)

    def take(
        self, state: TaskState, made: Made, outcome: Outcome, output: str, evidence: Sequence[Evidence]
    ) -> OpenStep | None:
        """Bill an outcome and put its step into the ledger.

        Returns:
            The step to learn from; None when the call failed, or when the attempt has been answered before.
        """
        model, spent = self.bill(made.decision, outcome)
        return self.place(state, made, outcome, output, evidence, model.name, spent)

    def place(
        self,
        state: TaskState,
        made: Made,
        outcome: Outcome,
        output: str,
        evidence: Sequence[Evidence],
        model: str,
        spent: dict[str, float],
    ) -> OpenStep | None:
        """Put the step of an outcome that has been paid for into the ledger; see `take`."""
        decision = made.decision
        state.models.append(model)
        if outcome.error is not None:
            if not made.answered:
                state.fail(decision.step, decision.attempt, model, "failed at this step")
            return None
        if made.answered:
            return None
        state.succeed(made)
        outcome.evidence.extend(evidence)
        before = state.baseline
        position = state.record(decision, outcome, output, model)
        for item in state.waiting:
            item.due = item.due or item.moment < made.moment
        state.moments += 1
        names = made.context.names
        index = names.index(model) if model in names else -1
        item = OpenStep(
            decision, made.context, state.ledger.steps[position], index, spent, position, before, state.moments
        )
        state.waiting.append(item)
        return item

    def moved(self, state: TaskState, position: int) -> None:
        """Evidence came for an earlier step: the steps after it are measured from the state it led to."""
        for item in state.waiting:
            if item.position > position:
                progress = state.tracker.after(item.position - 1)
                if progress is not None:
                    item.before = progress.g

    def learn(self, state: TaskState, final: bool = False) -> None:
        """Hand on every step whose effect shows: those with evidence, those followed by another, all at the end."""
        waiting, state.waiting = state.waiting, []
        for item in waiting:
            if not (final or item.due or item.step.outcome.evidence):
                state.waiting.append(item)
                continue
            after = state.tracker.after(item.position) or state.latest
            state.learnt.append(item)
            if item.index >= 0:
                self._feed(item, after)
        del state.learnt[:-KEPT_DECISIONS]

    def _feed(self, item: OpenStep, after: Progress) -> None:
        evidence = item.step.outcome.evidence
        gain = after.g - item.before
        try:
            trust = self._trust(evidence, item.context.task.domain)
            if not 0 < trust <= 1:
                raise ValueError(f"reliability: seen {trust!r}; allowed: above 0, at most 1")
        except Exception as error:
            if not self._faults.swallow(error, "reliability"):
                raise
            trust = reliability(evidence)
        feedback = Feedback(item.context, item.index, gain, after, trust, item.spent, evidence)
        if self.log is not None:
            self.log.learnt(item, feedback)
        self.teach(feedback)

    def teach(self, feedback: Feedback) -> None:
        """Hand one feedback to the estimator and the policy."""
        learners = [self._estimator.learn]
        if hasattr(self._policy, "learn") and id(self._policy) != id(self._estimator):
            learners.append(self._policy.learn)
        for learn in learners:
            try:
                learn(feedback)
            except Exception as error:
                if not self._faults.swallow(error, "learn"):
                    raise


def _expected_s(decision: Decision, model: Model) -> float | None:
    return next((item.cost.get("seconds") for item in decision.candidates if item.model == model.name), None)


def reliability(evidence: Sequence[Evidence], domain: str = "") -> float:
    """How far evidence can be trusted before anything is learnt about its sources: n/(n+1) for n checks, .25 without any.

    One passed example is worth half of what an exhaustive test would be.
    """
    checks = sum(item.count for item in evidence if item.source not in ("syntax", "execution"))
    return checks / (checks + 1) if checks else 0.25
