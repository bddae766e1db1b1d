"""What a call will cost: tokens from experience, money from the price, time and joules from the profile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from steproute.drift import Drift
from steproute.ledger import Outcome
from steproute.models import Model, Work
from steproute.prompt_cache import PromptCaches

KEPT = 10_000
"""Most (model, role) pairs remembered; the oldest go first, since hosts may invent a role per sub-task."""


@dataclass(slots=True)
class _Mean:
    """Running mean that starts as a prior worth `weight` observations and forgets slowly."""

    value: float
    weight: float = 2.0
    most: float = 0.0
    """Largest value seen."""

    def add(self, seen: float, memory: float = 200.0) -> None:
        self.weight = min(self.weight + 1.0, memory)
        self.value += (seen - self.value) / self.weight
        self.most = max(self.most, seen)

    def plain(self) -> tuple[float, float, float]:
        """Value, weight, largest."""
        return self.value, self.weight, self.most


@dataclass(frozen=True, slots=True)
class _Rates:
    """A model's price and profile, looked up once."""

    model: Model
    lines: list[tuple[str, float, float, float, float]]
    """Resource, fixed part, and what is added per prompt token, prompt token read from a cache, and completion token."""
    curves: list[tuple[str, Work]]
    """Resources of which a token takes the more, the more there are before it."""
    own: dict[str, float]

    @classmethod
    def of(cls, model: Model) -> _Rates:
        price, profile = model.known_price, model.profile
        lines, curves = [], []
        if price is not None:  # a provider with a price for it writes to its cache whatever it does not read from it
            lines.append(("usd", 0.0, price.usd(1, 0, 0, 1), price.usd(1, 0, 1), price.usd(0, 1)))
        energy = profile.energy
        stated = profile.prefill_j_per_token is not None or profile.decode_j_per_token is not None
        works = {
            "seconds": profile.time if profile.time != Work() else None,
            "energy_j": energy if stated or energy != Work() else None,
        }
        for name, work in works.items():
            if work is not None and (work.prefill_context or work.decode_context):
                curves.append((name, work))
            elif work is not None:
                lines.append((name, work.fixed, work.prefill, 0.0, work.decode))
        return cls(model, lines, curves, profile.amounts)

    def amounts(
        self, prompt: float, expected: float, most: float, cached: float, unknown_price: float | None
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Amounts with the expected completion and with the longest; the worst case finds nothing in a cache."""
        cost, worst = {"tokens": prompt + expected}, {"tokens": prompt + most}
        for name, fixed, read, reread, written in self.lines:
            whole = fixed + read * prompt
            cost[name] = whole - (read - reread) * cached + written * expected
            worst[name] = whole + written * most
        for name, work in self.curves:
            cost[name], worst[name] = work.amount(prompt, expected, cached), work.amount(prompt, most)
        if unknown_price is not None and "usd" not in cost:
            rate = unknown_price / 1e6
            cost["usd"], worst["usd"] = (prompt + expected) * rate, (prompt + most) * rate
        if self.own:
            cost.update(self.own)
            worst.update(self.own)
        return cost, worst


class CostForecast:
    """Expected and worst-case cost of one call per resource.

    It learns how long completions are and, where the profile is silent, seconds, joules and the user's own resources.
    """

    def __init__(self, completion_tokens: float = 256.0, clock: Callable[[], float] = time.time):
        """Start with a guess.

        Args:
            completion_tokens: expected completion length before anything was seen.
            clock: gives the time in seconds.
        """
        self.caches = PromptCaches(clock)
        self._start = completion_tokens
        self._completion: dict[tuple[str, str], _Mean] = {}
        self._seen: dict[str, dict[str, _Mean]] = {}
        self._rates: dict[str, _Rates] = {}
        self.drift = Drift()
        """Models whose profile is not right any more."""

    def predict(
        self,
        model: Model,
        role: str,
        prompt_tokens: int,
        max_tokens: int | None,
        unknown_price: float | None = None,
        timeout_s: float | None = None,
        cached_tokens: int = 0,
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Expected and worst-case amounts.

        Args:
            model: the candidate.
            role: role the call is made for.
            prompt_tokens: tokens of the prompt; what is below 0 counts as 0.
            max_tokens: the call's own limit; None, 0 and −1 (what servers read as "no limit") = the model's `max_output`.
            unknown_price: USD per million tokens assumed for a model whose price is "unknown"; None = no assumption.
            timeout_s: the host ends the call after so many seconds: the worst case of time; None, 0 and below = never.
            cached_tokens: part of the prompt this model is expected to have in its cache; the worst case is that it
                has not.

        Returns:
            `(cost, worst)`; a resource nothing is known about is absent. The worst case of what no profile tells is
            the largest amount seen.
        """
        rates = self._rates.get(model.name)
        if rates is None or rates.model is not model:
            rates = self._rates[model.name] = _Rates.of(model)
        # a negative worst case would be a reservation that gives room back, and a hard limit nothing holds
        most = min(max_tokens, model.max_output) if max_tokens is not None and max_tokens > 0 else model.max_output
        prompt_tokens = prompt_tokens if prompt_tokens > 0 else 0
        known = self._completion.get((model.name, role))
        expected = min(known.value if known else self._start, most)
        cached = min(cached_tokens, prompt_tokens) if cached_tokens > 0 else 0
        cost, worst = rates.amounts(prompt_tokens, expected, most, cached, unknown_price)
        if self.drift.found:
            self.drift.correct(model.name, cost, worst)
        seen = self._seen.get(model.name)
        if seen is not None:
            for name, mean in seen.items():
                if name not in cost:
                    cost[name], worst[name] = mean.value, mean.most
        if timeout_s is not None and timeout_s > 0:
            worst["seconds"] = timeout_s
            if "seconds" in cost:
                cost["seconds"] = min(cost["seconds"], timeout_s)
        return cost, worst

    def learn(self, model: Model, role: str, outcome: Outcome) -> None:
        """Take in what a call really took. Failed calls say nothing about length."""
        if outcome.error is not None:
            return
        self.drift.note(model, outcome)
        if outcome.completion_tokens:
            key = (model.name, role)
            mean = self._completion.get(key)
            if mean is None:
                mean = self._completion[key] = _Mean(self._start)
                if len(self._completion) > KEPT:
                    del self._completion[next(iter(self._completion))]
            mean.add(outcome.completion_tokens)
        measured = {**outcome.amounts, "usd": outcome.usd, "seconds": outcome.seconds or None}
        measured["energy_j"] = outcome.energy_j
        seen = self._seen.setdefault(model.name, {})
        for name, amount in measured.items():
            if amount is not None:
                mean = seen.get(name)
                if mean is None:
                    mean = seen[name] = _Mean(amount, 0.0)
                mean.add(amount)

    def state(self) -> dict[str, Any]:
        """Everything learnt from calls, as plain JSON values."""
        completion = [[*key, *mean.plain()] for key, mean in self._completion.items()]
        seen = {model: {name: mean.plain() for name, mean in means.items()} for model, means in self._seen.items()}
        return {
            "completion": completion,
            "seen": seen,
            "caches": self.caches.state(),
            "drift": self.drift.state(),
        }

    def load(self, state: dict[str, Any], models: Iterable[Model]) -> None:
        """Take over what `state` gave."""
        completion = {(str(model), str(role)): _Mean(*map(float, mean)) for model, role, *mean in state["completion"]}
        self._seen = {
            str(model): {str(name): _Mean(*map(float, mean)) for name, mean in means.items()}
            for model, means in state["seen"].items()
        }
        self.caches.load(state["caches"])
        self.drift.load(state["drift"], models)
        self._completion = completion


def complete_energy(model: Model, outcome: Outcome) -> None:
    """Fill in the joules of a call that no meter measured from the model's profile, and say so in `energy_source`."""
    if outcome.energy_j is not None or outcome.error is not None:
        return
    profile = model.profile
    cached = min(outcome.cached_tokens, outcome.prompt_tokens)
    if profile.prefill_j_per_token is None and profile.decode_j_per_token is None and profile.power_w is not None:
        # a stated power times the real duration beats the duration the profile expects
        energy: float | None = profile.power_w * outcome.seconds if outcome.seconds else None
    else:
        energy = None
    if energy is None:
        energy = profile.energy_j(outcome.prompt_tokens, outcome.completion_tokens, cached)
    if energy is not None:
        outcome.energy_j, outcome.energy_source = energy, "estimate from the model's profile"


def price_outcome(model: Model, outcome: Outcome, unknown_price: float | None = None) -> dict[str, float]:
    """What a finished call spent per resource: the usage at the price of the model that answered, and what was measured.

    Args:
        model: the model that answered.
        outcome: the call.
        unknown_price: USD per million tokens assumed for a model whose price is "unknown"; None = no assumption.

    Returns:
        Amounts per resource; one that is not known is absent.
    """
    tokens = float(outcome.prompt_tokens + outcome.completion_tokens)
    spent = {**outcome.amounts, "seconds": outcome.seconds, "tokens": tokens}
    if outcome.usd is not None:
        spent["usd"] = outcome.usd
    elif (price := model.known_price) is not None:
        spent["usd"] = price.usd(
            outcome.prompt_tokens, outcome.completion_tokens, outcome.cached_tokens, outcome.written_tokens
        )
    elif unknown_price is not None:
        spent["usd"] = tokens * unknown_price / 1e6
    if outcome.energy_j is not None:
        spent["energy_j"] = outcome.energy_j
    return spent
