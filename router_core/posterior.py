"""Within-task posterior: what the steps so far say about the task's difficulty and about each model in it.

A step of model m that was predicted to gain ŷ and gained y leaves the residual

    y − ŷ = −δ + κ_m + ε,   δ ~ N(0, s_δ²),   κ_m ~ N(0, s_κ²),   Var ε = σ²/ρ

with the task's extra difficulty δ, the model's own shift κ_m in this task, and the evidence's reliability ρ (PACER, see
DESIGN §7). Given δ the models are independent, so the joint precision has the shape of an arrow and the whole posterior
hangs on two sums per model seen: W_m = Σ ρ/σ² and B_m = Σ ρ·(y − ŷ)/σ². With t_m = 1/(1 + s_κ²·W_m)

    Var δ = s_δ² / (1 + s_δ²·Σ t_m·W_m)        E[−δ] = Var δ · Σ t_m·B_m
    E[−δ + κ_m] = t_m·(E[−δ] + s_κ²·B_m)       Var(−δ + κ_m) = t_m·s_κ² + t_m²·Var δ

which for a model not seen (W = B = 0, t = 1) is E[−δ] with the full prior variance of its own shift.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from steproute.errors import ConfigError
from steproute.settings import Settings

STATE_VERSION = 1


class PosteriorConfig(Settings):
    """Prior spreads, in the unit of the residuals (gain, or relative gain: the caller's choice)."""

    difficulty_sd: float = Field(default=0.2, ge=0)
    """s_δ: spread of the difficulty of tasks of one group."""
    model_sd: float = Field(default=0.2, ge=0)
    """s_κ: spread of what one model makes of one task, difficulty aside."""
    noise_sd: float = Field(default=0.3, gt=0)
    """σ: standard deviation of one residual whose evidence is fully reliable."""


class TaskPosterior:
    """Gaussian posterior over (δ, κ_1, κ_2, …) of one task, exact, two numbers per model seen.

    The order of updates does not matter. One weak step by one model lowers every model (the task is harder) and that
    model more than the others (it is worse here).
    """

    __slots__ = ("_mean", "_sums", "_variance", "config")

    def __init__(self, config: PosteriorConfig | None = None):
        self.config = config or PosteriorConfig()
        self._sums: dict[str, tuple[float, float]] = {}
        """Model → (W, B)."""
        self._mean, self._variance = 0.0, self.config.difficulty_sd**2
        """E[−δ] and Var δ."""

    def __len__(self) -> int:
        """How many models it has heard of."""
        return len(self._sums)

    def update(self, model: str, residual: float, reliability: float = 1.0, noise_sd: float | None = None) -> None:
        """Take in one step.

        Args:
            model: name of the model that served it.
            residual: y − ŷ, with the ŷ that was predicted without this posterior.
            reliability: ρ of the evidence behind y, in [0, 1]; 0 changes nothing.
            noise_sd: σ of this residual; None = the config's.

        Raises:
            ValueError: a number is not finite or out of range.
        """
        sd = self.config.noise_sd if noise_sd is None else noise_sd
        if not math.isfinite(residual):
            raise ValueError(f"residual: seen {residual!r}; allowed: a finite number")
        if not 0 <= reliability <= 1:
            raise ValueError(f"reliability: seen {reliability!r}; allowed: 0 to 1")
        if not 0 < sd < math.inf:
            raise ValueError(f"noise_sd: seen {sd!r}; allowed: a finite number above 0")
        if reliability == 0:
            return
        weight = reliability / sd**2
        known, total = self._sums.get(model, (0.0, 0.0))
        self._sums[model] = (known + weight, total + weight * residual)
        self._settle()

    def shift(self, model: str) -> tuple[float, float]:
        """Mean and variance of −δ + κ_m: what to add to the model's ŷ in this task. Works for models not seen, too."""
        known, total = self._sums.get(model, (0.0, 0.0))
        own = self.config.model_sd**2
        trust = 1.0 / (1.0 + own * known)
        return trust * (self._mean + own * total), trust * own + trust * trust * self._variance

    def shifts(self, models: Sequence[str]) -> tuple[list[float], list[float]]:
        """`shift` of several models: their means and their variances."""
        unseen = (self._mean, self.config.model_sd**2 + self._variance)
        pairs = [self.shift(model) if model in self._sums else unseen for model in models]
        return [mean for mean, _ in pairs], [variance for _, variance in pairs]

    @property
    def difficulty(self) -> tuple[float, float]:
        """Mean and variance of δ: above 0 the task is harder than its group."""
        return -self._mean, self._variance

    def _settle(self) -> None:
        own, prior = self.config.model_sd**2, self.config.difficulty_sd**2
        precision = information = 0.0
        for known, total in self._sums.values():
            trust = 1.0 / (1.0 + own * known)
            precision += trust * known
            information += trust * total
        self._variance = prior / (1.0 + prior * precision)
        self._mean = self._variance * information

    # --- state -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Plain JSON values: per model seen its W and B. The config is not part of it."""
        return {"version": STATE_VERSION, "models": {name: list(sums) for name, sums in self._sums.items()}}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], config: PosteriorConfig | None = None) -> TaskPosterior:
        """Take up what `state` gave.

        Raises:
            ConfigError: the state is of another version or malformed; names what is wrong.
        """
        version = state.get("version") if isinstance(state, Mapping) else None
        if version != STATE_VERSION:
            raise ConfigError(f"posterior state: version: seen {version!r}; allowed: {STATE_VERSION}")
        posterior = cls(config)
        try:
            for name, (known, total) in state["models"].items():
                if not (math.isfinite(known) and math.isfinite(total) and known >= 0):
                    raise ValueError(f"seen {[known, total]} for {name!r}; allowed: a weight of 0 or more and a sum")
                posterior._sums[str(name)] = (float(known), float(total))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"posterior state: models: {error}") from None
        posterior._settle()
        return posterior

    def to_json(self) -> str:
        """`state` as JSON text."""
        return json.dumps(self.state())

    @classmethod
    def from_json(cls, text: str | bytes, config: PosteriorConfig | None = None) -> TaskPosterior:
        """Read what `to_json` wrote.

        Raises:
            ConfigError: no JSON, or not a posterior's state.
        """
        try:
            state = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"posterior state: no JSON: {error}") from None
        return cls.from_state(state, config)
