"""Calling again until a verifier is satisfied: which model next, and when another call is no longer worth its price.

A verifier says pass or fail and may lie; its rates are learnt per dimension from what came out in the end. Calling one model
is opening one of Weitzman's boxes (Econometrica 47, 1979): it costs its price and holds the answer's chance q of being right
after the verdict. The best order is by reservation value, the σ with E[(q − σ)⁺] = price, and it is time to stop once
the best answer at hand is worth as much as the best σ left. The boxes are not independent: a failure says that the task
is hard, so every model's chance is lowered by the within-task posterior, and that is corrected by what was counted of
calls after so many failures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from steproute.errors import ConfigError
from steproute.ledger import Ledger, Step
from steproute.policies.base import Floats
from steproute.posterior import PosteriorConfig, TaskPosterior
from steproute.settings import Settings

Group = tuple[str, ...]
FLOOR = 0.003


class Rates(NamedTuple):
    """P(pass | right) and P(fail | wrong) of a verifier."""

    sensitivity: float
    specificity: float


class VerifiedConfig(Settings):
    """Settings of verified calls."""

    source: str = "verifier"
    """Name of the evidence that is a verdict."""
    near_binary: float = Field(default=0.6, gt=0.5, le=1)
    """Share of scores at 0 or 1 from which a dimension counts as right or wrong, the only case a verdict is made for."""
    seen: int = Field(default=2, ge=1)
    """Scores of a dimension before that is judged."""
    pass_at: float = Field(default=0.999, gt=0, le=1)
    """Score from which on the work was right."""
    correct: float = Field(default=0.95, gt=0.5, lt=1)
    """Sensitivity and specificity of a verifier before anything was seen."""
    strength: float = Field(default=10.0, gt=0)
    """How many verdicts that is worth."""
    correlation: float = Field(default=0.5, gt=0, lt=1)
    """Correlation of two models' success on one task before anything was seen."""
    correlation_strength: float = Field(default=10.0, gt=0)
    """How many repeated calls that is worth."""
    counted: float = Field(default=20.0, gt=0)
    """How many counted outcomes the posterior's chance after failures is worth."""
    curiosity: float = Field(default=0.6, ge=0)
    """Factor on the exploration bonus: a cascade explores by itself."""


@dataclass(slots=True)
class Beliefs:
    """One verified task while it runs."""

    group: Group
    rates: Rates
    names: list[Sequence[str]] = field(default_factory=list)
    chances: list[Floats] = field(default_factory=list)
    """Per call: P(right) of every candidate before it."""
    base: dict[str, float] = field(default_factory=dict)
    """P(right) per model before the first call."""
    hardness: list[float] = field(default_factory=list)
    """Per call: E[δ] in standard deviations of one outcome."""


class VerifiedCalls:
    """Learns what a verifier and a second call are worth, per group."""

    def __init__(self, config: VerifiedConfig | None = None):
        self.config = config or VerifiedConfig()
        self._verdicts: dict[str, list[float]] = {}
        """Dimension → right & passed, right & failed, wrong & passed, wrong & failed."""
        self._ends: dict[str, list[int]] = {}
        """Dimension → scores at 0 or 1, all scores."""
        self._slopes: dict[Group, tuple[float, float]] = {}
        """Group → Σ x·drop and Σ x² of the regression that gives the correlation."""
        self._after: dict[tuple[Group, int, str], tuple[float, float]] = {}
        """(group, failures before, model) → right and all."""

    def applies(self, dimension: str) -> bool:
        """Whether a verifier has been seen at work in a dimension of right or wrong answers."""
        ends, n = self._ends.get(dimension, (0, 0))
        config = self.config
        return n >= config.seen and dimension in self._verdicts and (ends + 1) / (n + 2) > config.near_binary

    def rates(self, dimension: str) -> Rates:
        """Sensitivity and specificity of the verifier in a dimension."""
        k, prior = self.config.strength, self.config.correct
        counts = self._verdicts.get(dimension, (0.0, 0.0, 0.0, 0.0))
        return Rates(
            (counts[0] + k * prior) / (counts[0] + counts[1] + k), (counts[3] + k * prior) / (counts[2] + counts[3] + k)
        )

    def correlation(self, group: Group) -> float:
        """Correlation of two models' success on one task of a group."""
        xy, xx = self._slopes.get(group, (0.0, 0.0))
        k = self.config.correlation_strength
        return min(max((k * self.config.correlation + xy) / (k + xx), 0.05), 0.95)

    def verdicts(self, ledger: Ledger) -> list[tuple[str, bool]]:
        """Model and verdict per step that has one."""
        found: list[tuple[str, bool]] = []
        if not self._verdicts and not (ledger.steps and self._judged(ledger.steps[-1])):
            return found  # no verifier at work: a long ledger is not walked for nothing
        for step in ledger.steps:
            for item in step.outcome.evidence:
                if item.source == self.config.source:
                    found.append((step.model, item.score >= 0.5))
        return found

    def _judged(self, step: Step) -> bool:
        return any(item.source == self.config.source for item in step.outcome.evidence)

    def chances(self, beliefs: Beliefs, names: Sequence[str], verdicts: Sequence[tuple[str, bool]]) -> Floats:
        """P(right) of each candidate's next answer, given the verdicts so far; noted in `beliefs`."""
        base = np.array([beliefs.base[name] for name in names])
        spread = np.sqrt(base * (1 - base))
        rho = self.correlation(beliefs.group)
        posterior = TaskPosterior(
            PosteriorConfig(difficulty_sd=math.sqrt(rho), model_sd=0.0, noise_sd=math.sqrt(1 - rho))
        )
        failures = 0
        for number, (model, passed) in enumerate(verdicts):
            prior = beliefs.base.get(model, 0.5)
            right = self.answer_right(beliefs, number, model, passed)
            posterior.update(model, (right - prior) / math.sqrt(prior * (1 - prior)))
            failures += not passed
        hardness = posterior.difficulty[0]
        chances = base - spread * hardness
        if failures:
            k = self.config.counted
            for i, name in enumerate(names):
                right, n = self._after.get((beliefs.group, failures, name), (0.0, 0.0))
                chances[i] = (k * chances[i] + right) / (k + n)
        chances = np.asarray(np.clip(chances, FLOOR, 1 - FLOOR))
        beliefs.names.append(tuple(names))
        beliefs.chances.append(chances)
        beliefs.hardness.append(hardness)
        return chances

    def answer_right(self, beliefs: Beliefs, number: int, model: str, passed: bool) -> float:
        """P(right) of the answer of one call after its verdict."""
        names = beliefs.names[number] if number < len(beliefs.names) else ()
        prior = float(beliefs.chances[number][names.index(model)]) if model in names else beliefs.base.get(model, 0.5)
        return after_verdict(prior, beliefs.rates, passed)

    def learn(
        self,
        beliefs: Beliefs | None,
        group: Group,
        model: str,
        score: float,
        before: Sequence[tuple[str, bool]],
        passed: bool | None,
    ) -> float:
        """Take in what a call was really worth.

        Args:
            beliefs: of its task; None = it was a single call.
            group: context group of the call.
            model: which model answered.
            score: what its answer was worth, in [0, 1].
            before: earlier calls of the task and their verdicts.
            passed: verdict on this call; None = there was none.

        Returns:
            The score as it would have been on a task of average difficulty, what a learner of averages should be given.
        """
        dimension = group[0] if group else ""
        right = score >= self.config.pass_at
        ends = self._ends.setdefault(dimension, [0, 0])
        ends[0] += right or score <= 1 - self.config.pass_at
        ends[1] += 1
        if passed is not None:
            counts = self._verdicts.setdefault(dimension, [0.0] * 4)
            counts[(not right) * 2 + (not passed)] += 1
        number = len(before)
        if beliefs is None or number >= len(beliefs.hardness):
            return score
        hardness, base = beliefs.hardness[number], beliefs.base.get(model, 0.5)
        spread = math.sqrt(base * (1 - base))
        if number:
            x = hardness / self.correlation(beliefs.group)
            xy, xx = self._slopes.get(group, (0.0, 0.0))
            self._slopes[group] = (xy + x * (base - score) * spread / 0.15, xx + x * x * spread**2 / 0.15)
        failures = sum(not verdict for _, verdict in before)
        if failures:
            known, n = self._after.get((group, failures, model), (0.0, 0.0))
            self._after[group, failures, model] = (known + right, n + 1)
        return min(max(score + spread * hardness, -1.0), 1.0)

    # --- state -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values."""
        return {
            "verdicts": {name: list(counts) for name, counts in self._verdicts.items()},
            "ends": {name: list(counts) for name, counts in self._ends.items()},
            "slopes": [[list(group), *sums] for group, sums in self._slopes.items()],
            "after": [[list(group), n, model, *sums] for (group, n, model), sums in self._after.items()],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave.

        Raises:
            ConfigError: the state is malformed.
        """
        try:
            verdicts = {str(name): [float(n) for n in counts] for name, counts in state["verdicts"].items()}
            ends = {str(name): [int(n) for n in counts] for name, counts in state["ends"].items()}
            slopes = {tuple(group): (float(xy), float(xx)) for group, xy, xx in state["slopes"]}
            after = {
                (tuple(group), int(n), str(model)): (float(k), float(m)) for group, n, model, k, m in state["after"]
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"verified state: {type(error).__name__}: {error}") from None
        self._verdicts, self._ends, self._slopes, self._after = verdicts, ends, slopes, after


def after_verdict(chance: float, rates: Rates, passed: bool) -> float:
    """P(right | verdict) by Bayes' rule."""
    right = chance * (rates.sensitivity if passed else 1 - rates.sensitivity)
    wrong = (1 - chance) * (1 - rates.specificity if passed else rates.specificity)
    return right / (right + wrong) if right + wrong > 0 else chance


def reservation(chances: Floats, prices: Floats, rates: Rates) -> Floats:
    """σ with E[(q − σ)⁺] = price, q being P(right) after the verdict; shape (n,)."""
    passes = chances * rates.sensitivity + (1 - chances) * (1 - rates.specificity)
    good = chances * rates.sensitivity / passes
    bad = chances * (1 - rates.sensitivity) / np.maximum(1 - passes, 1e-12)
    only_good = good - prices / passes
    return np.where(only_good >= bad, only_good, chances - prices)
