"""PACER, the default: expected gain per model and context group, corrected within the task, minus the price of the call.

    score(m) = V·(1 − g)·(ŷ + bonus) − Σ_k w_k·c_k
    w_k = value_k + [limit] exp((c_k + S_k)/L_k)/L_k + [target] Q_k/T_k²

and, where long-run targets are set, plus ŷ·Σ_k Q_k/T_k: progress saves later calls of the task (`owed`).

ŷ comes from the capability model (`steproute.predict.capability`) and the within-task posterior (`steproute.posterior`),
the bonus is that of the Gittins index: what trying a model is worth for the decisions to come. Where a verifier says pass
or fail, it calls again as long as that is worth its price (`steproute.policies.verified`).
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from steproute.credit import credited, make_credit
from steproute.errors import ConfigError
from steproute.evidence import EvidenceConfig, EvidenceModel
from steproute.ledger import Evidence, Ledger
from steproute.models import Model
from steproute.policies.base import Feedback, PolicyConfig, Scores, StepContext
from steproute.policies.index import quick_bonus
from steproute.policies.price import owed, price
from steproute.policies.verified import Beliefs, VerifiedCalls, VerifiedConfig, reservation
from steproute.posterior import PosteriorConfig, TaskPosterior
from steproute.predict.capability import CapabilityConfig, CapabilityModel, Estimate
from steproute.predict.change import ChangeConfig, ChangeWatch, Seen
from steproute.progress import Progress, Regime, expected_progress

if TYPE_CHECKING:
    from steproute.taskstate import OpenStep

STATE_VERSION = 1
KEPT_TASKS = 1000
MEMO = "pacer"
SHIFTED = "pacer:shifted"
REMAINING = "pacer: 1 - E[g]"
TIE = 1e-6
"""Equal scores are drawn from: untried models would else be tried in the same order in every group."""


class Pacer:
    """Policy and gain estimator in one: `Router` asks it for ŷ unless another estimator is given."""

    name = "pacer"
    stops = True
    """It may end a task, where the host allows it."""

    class Config(PolicyConfig):
        """Settings of `pacer`."""

        V: float = Field(default=1.0, gt=0)
        """Worth of full progress; prices are in the same unit."""
        horizon: float = Field(default=300.0, ge=0)
        """Decisions to come in a context group, as far as one looks ahead; 0 = never explore."""
        prior: dict[str, dict[str, float]] = Field(default_factory=dict)
        """Published means: dimension → model → expected relative gain in [−1, 1]."""
        prior_file: Path | None = None
        """The same as a JSON file: `{"scores": {model: {dimension: mean}}}`."""
        verify: bool = True
        """Whether to call again where a verifier rejects an answer and the host lets tasks go on."""
        capability: CapabilityConfig = CapabilityConfig()
        posterior: PosteriorConfig = PosteriorConfig()
        verified: VerifiedConfig = VerifiedConfig()
        evidence: EvidenceConfig = EvidenceConfig()
        change: ChangeConfig = ChangeConfig()
        """Whether a model that silently became another is noticed, and learnt anew."""
        credit: Literal["progress", "uniform", "none"] = "progress"
        """How a task's final result reaches back to its steps, see `steproute.credit`."""
        credit_weight: float = Field(default=1.0, ge=0)
        """What that counts against evidence seen at the step, which is worth its reliability ρ: weight·(1 − ρ)."""

    def __init__(self, config: Config | None = None):
        self.config = config or self.Config()
        self.capability = CapabilityModel(self.config.capability)
        self.verified = VerifiedCalls(self.config.verified)
        self.estimator = self
        self.reliability = EvidenceModel(self.config.evidence)
        """How far each source of evidence can be trusted; the router teaches it with every task's final result."""
        self._tasks: OrderedDict[str, TaskPosterior] = OrderedDict()
        self._running: OrderedDict[str, Beliefs] = OrderedDict()
        self._versions: dict[str, str] = {}
        self._changes = ChangeWatch(self.config.change)
        self._credit = make_credit(self.config.credit)
        for dimension, means in {**_read_prior(self.config.prior_file), **self.config.prior}.items():
            self.set_prior((dimension,), means)

    def set_prior(self, group: Sequence[str], means: Mapping[str, float], strength: float | None = None) -> None:
        """Published means of a group; see `CapabilityModel.set_prior`."""
        self.capability.set_prior(group, means, strength)

    # --- predicting ------------------------------------------------------------------------------------------

    def predict(self, context: StepContext) -> tuple[list[float], list[float]]:
        """ŷ = (1 − g)·E[z] of every candidate in this task, and its standard deviation."""
        return self._estimate(context).gains(self._remaining(context))

    def _remaining(self, context: StepContext) -> float:
        """1 − E[g(s)]: what is left to do, the last step's evidence taken for as true as its source is reliable."""
        if REMAINING not in context.memo:  # kept: by the time of `learn` the ledger holds the next step
            evidence = context.ledger.steps[-1].outcome.evidence if context.ledger.steps else ()
            context.memo[REMAINING] = 1.0 - self._expected(context.progress, evidence, context.task.domain)
        return float(context.memo[REMAINING])

    def _expected(self, progress: Progress, evidence: Sequence[Evidence], domain: str) -> float:
        if not any(item.count for item in evidence):
            return progress.g
        return expected_progress(progress, self.reliability.belief(evidence, domain))

    def _estimate(self, context: StepContext) -> Estimate:
        names = context.names
        for candidate in context.candidates:
            model = candidate.model
            if self._versions.get(model.name) != model.version:
                self._welcome(model)
        found = self.capability.estimate(context.group, names)
        context.memo[MEMO] = found
        posterior = self._tasks.get(context.task.id)
        if posterior is not None:
            shifts, variances = posterior.shifts(names)
            found = Estimate(list(map(add, found.mean, shifts)), list(map(add, found.variance, variances)), found.noise)
        context.memo[SHIFTED] = found
        return found

    def _welcome(self, model: Model) -> None:
        """Make room for a model, or for a new version of one: what was known of the old one is a shrunken prior of it."""
        self.capability.add(model.name, model.prior)
        if model.name in self._versions:
            self._anew(model.name, self.config.change.keep_version)
        self._versions[model.name] = model.version

    def _anew(self, model: str, keep: float) -> None:
        self.capability.fade(model, keep)
        self._changes.reset(model)

    # --- scoring ---------------------------------------------------------------------------------------------

    def score(self, context: StepContext) -> Scores:
        """V·(1 − g)·(ŷ + bonus) minus the price; after a verdict, reservation values and the value of stopping."""
        remaining = self._remaining(context)
        foreign = MEMO not in context.memo and any(candidate.gain_sd > 0 for candidate in context.candidates)
        prices = price(context)
        if foreign:
            gains = [candidate.gain for candidate in context.candidates]
            variance = [candidate.gain_sd**2 for candidate in context.candidates]
            noise = self.config.capability.noise
        else:
            found = context.memo.get(SHIFTED) or self._estimate(context)  # `predict` has just worked it out
            gains, variance, noise = [remaining * mean for mean in found.mean], found.variance, found.noise
            if self.config.verify and self.verified.applies(context.group[0] if context.group else ""):
                return self._score_verified(context, found, prices)
        worth = self.config.V * remaining
        bonus = [0.0] * len(gains)
        if self.config.horizon:  # a queue that grows is paid off with what is known, not with curiosity
            looks = self.config.horizon / noise
            bonus = [math.sqrt(v) * quick_bonus(v * looks) * (worth * remaining) for v in variance]
        held = incumbent(context)
        if held is not None:  # curiosity alone is no reason to change horses in midstream
            most = bonus[held]
            bonus = [min(more, most) for more in bonus]
        whole = worth + owed(context)
        values, terms = [], []
        for gain, more, cost, tie in zip(gains, bonus, prices, context.draws.random(len(gains)), strict=True):
            values.append(whole * gain + more - cost + TIE * tie)
            terms.append({"V(1-g)y": whole * gain, "exploration": more, "-price": -cost})
        stop = None
        if context.step:
            if self.verified.verdicts(context.ledger):
                stop = float("inf")
            elif nothing_wrong(context):  # a task known to be unfinished is not given up on account of g's scale
                stop = 0.0
        return Scores(values, terms, reason="highest expected gain, exploration included, minus price", stop=stop)

    def _score_verified(self, context: StepContext, found: Estimate, prices: Sequence[float]) -> Scores:
        names = context.names
        verdicts = self.verified.verdicts(context.ledger)
        beliefs = self._running.get(context.task.id)
        if beliefs is None or not verdicts:
            beliefs = Beliefs(context.group, self.verified.rates(context.group[0]))
            self._running[context.task.id] = beliefs
            while len(self._running) > KEPT_TASKS:
                self._running.popitem(last=False)
            verdicts = []
        for name, mean in zip(names, np.clip(found.mean, 0.005, 0.995).tolist(), strict=True):
            beliefs.base.setdefault(name, mean)
        context.memo["verified"] = beliefs
        chances = self.verified.chances(beliefs, names, verdicts)
        looks = max(self.config.horizon, 1e-9) / found.noise
        bonus = np.array([math.sqrt(v) * quick_bonus(v * looks) for v in found.variance])
        hopeful = np.clip(chances + self.config.verified.curiosity * bonus, 0.003, 0.997)
        worth = self.config.V + owed(context)
        values = worth * reservation(hopeful, np.array(prices) / worth, beliefs.rates)
        held = [self.verified.answer_right(beliefs, i, *verdict) for i, verdict in enumerate(verdicts)]
        stop = worth * max(held) if held else None
        terms = [
            {"P(right)": chance, "exploration": hope - chance, "price": cost}
            for chance, hope, cost in zip(chances.tolist(), hopeful.tolist(), prices, strict=True)
        ]
        reason = f"reservation value after {len(verdicts)} verified call(s)"
        return Scores(values, terms, reason=reason, stop=stop)

    def answer(self, ledger: Ledger) -> int:
        """Which of a task's verified calls to deliver: the one most probably right, the first of equals."""
        beliefs = self._running.get(ledger.task.id)
        verdicts = self.verified.verdicts(ledger)
        if beliefs is None or not verdicts:
            return max(len(ledger.steps) - 1, 0)
        held = [self.verified.answer_right(beliefs, i, *verdict) for i, verdict in enumerate(verdicts)]
        return int(np.argmax(held))

    # --- learning --------------------------------------------------------------------------------------------

    def learn(self, feedback: Feedback) -> None:
        """Take in one gain: the task's posterior first, then the capability model with the task's difficulty taken out.

        The gain is the transition progress E[g(s')] − E[g(s)] where evidence was reported, else the plain one.
        """
        context = feedback.context
        remaining = self._remaining(context)
        if remaining <= 1e-9:
            return
        model = context.candidates[feedback.index].name
        gain = feedback.gain
        if any(item.count for item in feedback.evidence):
            gain = self._expected(feedback.progress, feedback.evidence, context.task.domain) - (1.0 - remaining)
        z = min(max(gain / remaining, -1.0), 1.0)
        verdicts = self.verified.verdicts(context.ledger)
        number = len(context.tried)
        beliefs: Beliefs | None = context.memo.get("verified")
        if verdicts or beliefs is not None:
            mine = verdicts[number][1] if number < len(verdicts) and verdicts[number][0] == model else None
            z = self.verified.learn(beliefs, context.group, model, z, verdicts[:number], mine)
            self._observe(feedback, model, z)
            return
        self.verified.learn(None, context.group, model, z, (), None)
        posterior = self._tasks.get(context.task.id)
        found: Estimate | None = context.memo.get(MEMO)
        expected = 0.0 if posterior is None else -posterior.difficulty[0]
        if found is not None:
            if posterior is None:
                posterior = self._tasks[context.task.id] = TaskPosterior(self.config.posterior)
                while len(self._tasks) > KEPT_TASKS:
                    self._tasks.popitem(last=False)
            posterior.update(model, z - found.mean[feedback.index], feedback.reliability, found.noise**0.5)
        self._observe(feedback, model, min(max(z - expected, -1.0), 1.0))
        for name in (MEMO, SHIFTED):  # the context lives as long as its task
            context.memo.pop(name, None)

    def _observe(self, feedback: Feedback, model: str, z: float) -> None:
        found: Estimate | None = feedback.context.memo.get(MEMO)
        if found is not None and self._changes.active:
            i, group = feedback.index, feedback.context.group
            step = Seen(group, z, feedback.reliability, found.mean[i], found.variance[i], found.noise)
            change = self._changes.note(model, step)
            if change is not None:
                earlier = [(seen.group, seen.gain, seen.weight) for seen in change.since[:-1]]  # this one is to come
                self.capability.renew(model, self.config.change.kept, change.shift, earlier)
            for fallen, shift in self._changes.due(model).items():
                self.capability.renew(fallen, 1.0, -shift)
        self.capability.observe(feedback.context.group, model, z, feedback.reliability)

    def learn_all(self, context: StepContext, gains: Mapping[str, float]) -> None:
        """Take in what several models gained on one and the same step (full-information probing)."""
        remaining = 1.0 - context.progress.g
        if remaining <= 1e-9:
            return
        relative = {model: min(max(gain / remaining, -1.0), 1.0) for model, gain in gains.items()}
        for model, z in relative.items():
            self.verified.learn(None, context.group, model, z, (), None)
        self.capability.observe_all(context.group, relative)

    def finish(self, ledger: Ledger, steps: Sequence[OpenStep], reward: float | None) -> None:
        """Credit a task's steps with its final result, and drop what was kept about it."""
        if self._credit is not None and reward is not None and steps:
            self._learn_reward(steps, reward)
        self._tasks.pop(ledger.task.id, None)
        self._running.pop(ledger.task.id, None)

    def _learn_reward(self, steps: Sequence[OpenStep], reward: float) -> None:
        """One more observation per step, worth as much as the evidence at the step left open.

        Steps of a verifier's tasks are left out: there the verdicts are corrected by what they turned out to be worth.
        """
        assert self._credit is not None
        if any("verified" in item.context.memo for item in steps) or self.verified.verdicts(steps[-1].context.ledger):
            return
        after = [item.step.g for item in steps if item.step.g is not None]
        if len(after) < len(steps):  # a caller that scores by itself: no progress was seen that could be corrected
            return
        gains = np.array(after) - np.array([item.before for item in steps])
        trust = np.array([self.reliability(item.step.outcome.evidence, item.context.task.domain) for item in steps])
        found = credited(self._credit, gains, trust, reward, after[-1])
        for item, gain, known in zip(steps, found.tolist(), trust.tolist(), strict=True):
            context = item.context
            remaining = self._remaining(context)
            weight = self.config.credit_weight * (1.0 - known)
            if item.index >= 0 and remaining > 1e-9 and weight > 1e-9:
                z = min(max(gain / remaining, -1.0), 1.0)
                self.capability.observe(context.group, context.candidates[item.index].name, z, weight)

    # --- state -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What was learnt across tasks and the posteriors of running ones, as plain JSON values."""
        return {
            "version": STATE_VERSION,
            "capability": self.capability.state(),
            "verified": self.verified.state(),
            "tasks": {task: posterior.state() for task, posterior in self._tasks.items()},
            "versions": dict(self._versions),
            "changes": self._changes.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave.

        Raises:
            ConfigError: the state is of another version or malformed.
        """
        if state.get("version") != STATE_VERSION:
            raise ConfigError(f"pacer state: version: seen {state.get('version')!r}; allowed: {STATE_VERSION}")
        try:
            tasks = {
                str(task): TaskPosterior.from_state(kept, self.config.posterior)
                for task, kept in state["tasks"].items()
            }
            verified = VerifiedCalls(self.config.verified)
            verified.load(state["verified"])
            capability = CapabilityModel(self.config.capability)
            capability.load(state["capability"])
            changes = ChangeWatch(self.config.change)
            if "changes" in state:
                changes.load(state["changes"])
            versions = {str(model): str(version) for model, version in state.get("versions", {}).items()}
        except (AttributeError, KeyError, TypeError) as error:
            raise ConfigError(f"pacer state: {type(error).__name__}: {error}") from None
        self.capability, self.verified, self._tasks = capability, verified, OrderedDict(tasks)
        self._versions, self._changes = versions, changes


def incumbent(context: StepContext) -> int | None:
    """Index of the candidate that served this role last in the task; None = none of them did."""
    for step in reversed(context.ledger.steps):
        if step.role == context.role:
            names = context.names
            return names.index(step.model) if step.model in names else None
    return None


def nothing_wrong(context: StepContext) -> bool:
    """Whether all that is known of the last step speaks for it, so that the task may be over."""
    if context.progress.regime is Regime.COMPLETE:
        return True
    evidence = context.ledger.steps[-1].outcome.evidence if context.ledger.steps else []
    return bool(evidence) and all(item.score >= 1 for item in evidence if item.count)


def _read_prior(file: Path | None) -> dict[str, dict[str, float]]:
    if file is None:
        return {}
    found: dict[str, dict[str, float]] = {}
    try:
        for model, means in json.loads(file.read_text(encoding="utf-8"))["scores"].items():
            for dimension, mean in means.items():
                found.setdefault(str(dimension), {})[str(model)] = float(mean)
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f'pacer: prior_file: {file}: needed: {{"scores": {{model: {{dimension: mean}}}}}} ({error})'
        ) from None
    return found
