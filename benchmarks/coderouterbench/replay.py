"""Stream a table past a policy: it sees the score of what it called, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from steproute.benchmarks.coderouterbench.table import OutcomeTable
from steproute.budget import Limit
from steproute.calibration import Report
from steproute.decision import Decision
from steproute.draws import Draws
from steproute.errors import ConfigError
from steproute.evidence import EvidenceModel
from steproute.ledger import Evidence, Ledger, Outcome, Step, Task
from steproute.models import Model
from steproute.policies import BudgetState, Candidate, Feedback, Policy, Scores, StepContext, make_policy
from steproute.predict import CapabilityPrior, GainEstimator
from steproute.progress import Progress, Regime
from steproute.taskstate import OpenStep

METRIC_WEIGHT = 0.1
"""USD weight of the published reward; fixed, so that runs with other decision weights stay comparable."""
PASS = 0.999
"""A score from here on counts as a pass for the verifier."""
START = Progress(0.0, Regime.INVALID, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class ReplaySettings:
    """One way of replaying a table."""

    mode: Literal["cold", "prior", "probing"] = "cold"
    usd_weight: float = METRIC_WEIGHT
    """What a dollar is worth to the policy, in units of score."""
    context_regex: str | None = None
    """Gives the source, a finer context group, from the task id."""
    prior: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Dimension → model → published mean, for mode `prior`."""
    probing: float = 0.2
    """Share of the tasks shown with all scores first, for mode `probing`; the rest is scaled up to the whole table."""
    verifier: float | None = None
    """Probability that a verdict is flipped; None = no verifier, one call a task."""


@dataclass
class Replay:
    """What one order of the tasks gave."""

    avg_perf: float
    """100 · mean score of the answers delivered."""
    cum_reg: float
    """Σ (best single model's reward − reward obtained); every call is paid."""
    usd: float
    calls_per_task: float
    regret: np.ndarray[Any, Any]
    """Cumulative regret after each task, before scaling."""
    evidence: Report | None = None
    """What an evidence model made of the verifier's verdicts, on held-out tasks; None where nothing was verified."""

    @property
    def perf_per_usd(self) -> float:
        """AvgPerf per dollar."""
        return self.avg_perf / self.usd if self.usd > 0 else float("inf")


class UsdForecast:
    """Expected USD per model from what was paid: the dimension's mean, shrunk to the model's over all of them."""

    def __init__(self, models: int, shrink: float = 2.0):
        self._shrink = shrink
        self._models = np.zeros((2, models))
        self._groups: dict[str, np.ndarray[Any, Any]] = {}

    def predict(self, group: str) -> np.ndarray[Any, Any]:
        """USD per model, shape (models,)."""
        overall = (self._models[1] + 1e-3) / (self._models[0] + 1)
        seen = self._groups.get(group)
        if seen is None:
            return np.asarray(overall)
        return np.asarray((seen[1] + self._shrink * overall) / (seen[0] + self._shrink))

    def learn(self, group: str, model: int, usd: float) -> None:
        """Take in one bill."""
        seen = self._groups.setdefault(group, np.zeros_like(self._models))
        for counts in (self._models, seen):
            counts[0, model] += 1
            counts[1, model] += usd


class Stream:
    """One pass over the table in one order."""

    def __init__(self, table: OutcomeTable, spec: str | Mapping[str, Any], seed: int, settings: ReplaySettings):
        self.table, self.settings = table, settings
        self.policy: Policy = make_policy(spec)
        if hasattr(self.policy, "check"):
            self.policy.check(table.models)
        self.estimator: GainEstimator = getattr(self.policy, "estimator", None) or CapabilityPrior()
        if hasattr(self.estimator, "fit_at_once"):
            self.estimator.fit_at_once()  # a seed is a result
        self._learners = [self.estimator, *([] if self.estimator is self.policy else [self.policy])]
        self._trust = EvidenceModel()
        """For the report alone: the policy weighs verdicts by itself."""
        if settings.mode == "prior" and hasattr(self.policy, "set_prior"):
            for dimension, means in settings.prior.items():
                self.policy.set_prior((dimension,), means)
        self._order = np.random.default_rng(seed).permutation(len(table.tasks))
        self._draws = Draws([seed, 1])
        self._noise = np.random.default_rng([seed, 2])
        self._sources = table.sources(settings.context_regex)
        self._candidates = [Candidate(Model(name, price="unknown"), {}, {}) for name in table.models]
        self._forecast = UsdForecast(len(table.models))
        self._budget = BudgetState({"usd": Limit(value=settings.usd_weight)}, {}, {}, {})
        self._rewards = table.rewards(METRIC_WEIGHT)
        self._column = {name: j for j, name in enumerate(table.models)}
        self._knows = self.policy.name == "oracle"

    def run(self) -> Replay:
        """Show every task once."""
        shown = int(self.settings.probing * len(self._order)) if self.settings.mode == "probing" else 0
        for i in self._order[:shown]:
            self._probe(int(i))
        rest = self._order[shown:]
        best = self._rewards.max(axis=1)
        scores, usd, calls, regret = 0.0, 0.0, 0, np.empty(len(rest))
        for t, i in enumerate(rest):
            score, paid, called = self._serve(int(i))
            scores += score
            usd += paid
            calls += called
            regret[t] = best[i] - (score - METRIC_WEIGHT * paid)
        scale = len(self._order) / len(rest)
        cumulative = np.cumsum(regret)
        avg_perf, cum_reg = 100 * scores / len(rest), float(cumulative[-1]) * scale
        evidence = next(iter(self._trust.report()), None)
        return Replay(avg_perf, cum_reg, usd * scale, calls / len(rest), cumulative, evidence)

    def _probe(self, i: int) -> None:
        """Full information: every model's outcome, unpaid."""
        context = self._context(i, Ledger(task=self._task(i)), ())
        if hasattr(self.policy, "learn_all"):
            scores = self.table.scores[i].tolist()
            self.policy.learn_all(context, dict(zip(self.table.models, scores, strict=True)))
            for model, usd in enumerate(self.table.usd[i].tolist()):
                self._forecast.learn(self.table.dimensions[i], model, usd)
            return
        for index in range(len(self._candidates)):
            self._learn(context, i, index)

    def _serve(self, i: int) -> tuple[float, float, int]:
        """Score delivered, USD paid and number of calls for one task."""
        ledger = Ledger(task=self._task(i))
        called: list[tuple[StepContext, int, int]] = []
        more = self.settings.verifier is not None and getattr(self.policy, "stops", False)
        while True:
            context = self._context(i, ledger, [model for _, _, model in called])
            means, spreads = self.estimator.predict(context)
            for candidate, mean, spread in zip(context.candidates, means, spreads, strict=True):
                candidate.gain, candidate.gain_sd = float(mean), float(spread)
            scores = self.policy.score(context)
            if called and (scores.stop is None or scores.stop >= np.max(scores.values)):
                break
            index = self._pick(scores)
            model = self._column[context.candidates[index].name]
            called.append((context, index, model))
            if not more:
                break
            ledger.steps.append(self._verified(i, model))
            if len(called) == len(self._candidates):
                break
        answer = called[-1][2]
        if len(called) > 1 and hasattr(self.policy, "answer"):
            answer = called[self.policy.answer(ledger)][2]
        for context, index, _ in called:  # the true scores of what was called come out when the task is over
            self._learn(context, i, index)
        for step, (_, _, model) in zip(ledger.steps, called, strict=False):
            right = bool(self.table.scores[i, model] >= PASS)
            self._trust.learn(ledger.task.id, self.table.dimensions[i], step.outcome.evidence, right)
        if hasattr(self.policy, "finish"):
            self.policy.finish(ledger, [self._open(i, *call) for call in called], float(self.table.scores[i, answer]))
        paid = float(sum(self.table.usd[i, model] for _, _, model in called))
        return float(self.table.scores[i, answer]), paid, len(called)

    def _verified(self, i: int, model: int) -> Step:
        """The call as the ledger shows it: the verdict, which may be wrong, but not the score."""
        verdict = bool(self.table.scores[i, model] >= PASS)
        if self._noise.random() < (self.settings.verifier or 0.0):
            verdict = not verdict
        evidence = [Evidence(source="verifier", score=float(verdict))]
        usd = float(self.table.usd[i, model])
        name = self.table.models[model]
        return Step(model=name, outcome=Outcome(model=name, usd=usd, evidence=evidence))

    def _task(self, i: int) -> Task:
        return Task(id=self.table.tasks[i], dimension=self.table.dimensions[i], source=self._sources[i])

    def _context(self, i: int, ledger: Ledger, called: Sequence[int]) -> StepContext:
        dimension = self.table.dimensions[i]
        for candidate, usd in zip(self._candidates, self._forecast.predict(dimension), strict=True):
            candidate.cost = {"usd": float(usd)}
        return StepContext(
            task=ledger.task,
            role="",
            step=len(called),
            candidates=[candidate for j, candidate in enumerate(self._candidates) if j not in called],
            progress=START,
            budget=self._budget,
            ledger=ledger,
            draws=self._draws,
            group=(dimension, self._sources[i], ""),
            text=self.table.prompts.get(self.table.tasks[i]),
            tried=tuple(self.table.models[j] for j in called),
            extra={"q": dict(zip(self.table.models, self._rewards[i].tolist(), strict=True))} if self._knows else {},
        )

    def _pick(self, scores: Scores) -> int:
        if scores.propensities is None:
            return int(np.argmax(scores.values))
        return int(self._draws.generator.choice(len(scores.values), p=scores.propensities / scores.propensities.sum()))

    def _learn(self, context: StepContext, i: int, index: int) -> None:
        model = self._column[context.candidates[index].name]
        score, usd = float(self.table.scores[i, model]), float(self.table.usd[i, model])
        self._forecast.learn(self.table.dimensions[i], model, usd)
        after = Progress(score, Regime.COMPLETE if score >= PASS else Regime.PARTIAL, score, 0.0, score)
        # the score is the truth here, no source's opinion of it: no evidence to weigh
        feedback = Feedback(context, index, score, after, 1.0, {"usd": usd})
        for learner in self._learners:
            if hasattr(learner, "learn"):
                learner.learn(feedback)

    def _open(self, i: int, context: StepContext, index: int, model: int) -> OpenStep:
        """A call as a policy's `finish` is told of it."""
        usd = float(self.table.usd[i, model])
        chosen = context.candidates[index].model
        decision = Decision("", context.task.id, str(context.step), 1, "", chosen, [], START, self.policy.name, 1.0, "")
        return OpenStep(
            decision, context, Step(model=chosen.name, outcome=Outcome(usd=usd)), index, {"usd": usd}, context.step
        )


def replay(
    table: OutcomeTable,
    spec: str | Mapping[str, Any],
    seeds: Sequence[int],
    settings: ReplaySettings,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Replay]:
    """Replay a policy once per seed, each with a fresh order of the tasks and a fresh policy.

    Raises:
        ConfigError: a setting is out of range.
    """
    if not 0 < settings.probing < 1:
        raise ConfigError(f"probing: seen {settings.probing!r}; allowed: a share between 0 and 1")
    if settings.verifier is not None and not 0 <= settings.verifier < 0.5:
        raise ConfigError(f"verifier: seen {settings.verifier!r}; allowed: exact, or a flip rate in [0, 0.5)")
    if not 0 <= settings.usd_weight < float("inf"):
        raise ConfigError(f"usd-weight: seen {settings.usd_weight!r}; allowed: a finite number, 0 or more")
    runs = []
    for number, seed in enumerate(seeds):
        progress(number)
        runs.append(Stream(table, spec, seed, settings).run())
    return runs
