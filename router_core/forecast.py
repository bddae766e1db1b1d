"""What a call will cost: tokens from experience, money from the price, time and joules from the profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steproute.ledger import Outcome
from steproute.models import Model


@dataclass(slots=True)
class _Mean:
    """Running mean that starts as a prior worth `weight` observations and forgets slowly."""

    value: float
    weight: float = 2.0

    def add(self, seen: float, memory: float = 200.0) -> None:
        self.weight = min(self.weight + 1.0, memory)
        self.value += (seen - self.value) / self.weight


class CostForecast:
    """Expected and worst-case cost of one call per resource; learns completion lengths and, without a profile, seconds."""

    def __init__(self, completion_tokens: float = 256.0):
        """Start with a guess.

        Args:
            completion_tokens: expected completion length before anything was seen.
        """
        self._start = completion_tokens
        self._completion: dict[tuple[str, str], _Mean] = {}
        self._seconds: dict[str, _Mean] = {}

    def predict(
        self, model: Model, role: str, prompt_tokens: int, max_tokens: int | None, unknown_price: float = 0.0
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Expected and worst-case amounts.

        Args:
            model: the candidate.
            role: role the call is made for.
            prompt_tokens: tokens of the prompt, uncached.
            max_tokens: the call's own limit; None = the model's `max_output`.
            unknown_price: USD per million tokens assumed for a model whose price is "unknown".

        Returns:
            `(cost, worst)`; a resource nothing is known about is absent.
        """
        most = min(max_tokens or model.max_output, model.max_output)
        known = self._completion.get((model.name, role))
        expected = min(known.value if known else self._start, most)
        return self._amounts(model, prompt_tokens, expected, unknown_price), self._amounts(
            model, prompt_tokens, most, unknown_price, worst=True
        )

    def _amounts(
        self, model: Model, prompt: float, completion: float, unknown_price: float, worst: bool = False
    ) -> dict[str, float]:
        amounts = {"tokens": prompt + completion}
        if model.price == "unknown":
            amounts["usd"] = (prompt + completion) * unknown_price / 1e6
        else:
            amounts["usd"] = model.price.usd(prompt, completion)
        seconds = model.profile.seconds(prompt, completion)
        if seconds > 0:
            amounts["seconds"] = seconds
        elif model.name in self._seconds and not worst:
            amounts["seconds"] = self._seconds[model.name].value
        energy = model.profile.energy_j(prompt, completion)
        if energy is not None:
            amounts["energy_j"] = energy
        return amounts

    def learn(self, model: Model, role: str, outcome: Outcome) -> None:
        """Take in what a call really took. Failed calls say nothing about length."""
        if outcome.error is not None:
            return
        if outcome.completion_tokens:
            key = (model.name, role)
            self._completion.setdefault(key, _Mean(self._start)).add(outcome.completion_tokens)
        if outcome.seconds:
            self._seconds.setdefault(model.name, _Mean(outcome.seconds, 0.0)).add(outcome.seconds)


def price_outcome(model: Model, outcome: Outcome, unknown_price: float = 0.0) -> dict[str, float]:
    """What a finished call spent per resource: usage priced by the model that answered, joules measured or from its profile."""
    spent: Mapping[str, float]
    if outcome.usd is not None:
        usd = outcome.usd
    elif model.price == "unknown":
        usd = (outcome.prompt_tokens + outcome.completion_tokens) * unknown_price / 1e6
    else:
        usd = model.price.usd(outcome.prompt_tokens, outcome.completion_tokens, outcome.cached_tokens)
    spent = {
        "usd": usd,
        "seconds": outcome.seconds,
        "tokens": float(outcome.prompt_tokens + outcome.completion_tokens),
        **outcome.amounts,
    }
    if outcome.energy_j is not None:
        spent["energy_j"] = outcome.energy_j
    return dict(spent)
