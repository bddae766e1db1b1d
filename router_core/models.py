"""Candidate models: price, speed and energy profile, capabilities, allowed roles, and the pool they form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, field_validator

from steproute.deployment import Price, Profile, Serving, Work
from steproute.errors import ConfigError, unknown_name
from steproute.settings import Settings

__all__ = ["Model", "ModelPool", "Needs", "Price", "Profile", "Serving", "Work"]


@dataclass(frozen=True, slots=True)
class Needs:
    """What a step asks of a model."""

    tools: bool = False
    vision: bool = False
    structured: bool = False
    context_tokens: int = 0
    """Prompt tokens plus the completion that must fit."""

    def at_least(self, tokens: int) -> Needs:
        """The same needs, with room for a prompt of this length."""
        if self.context_tokens >= tokens:
            return self
        return Needs(self.tools, self.vision, self.structured, tokens)


class Model(Settings):
    """One candidate deployment. The name may be given as the first positional argument."""

    name: str = Field(min_length=1)
    price: Price | Literal["unknown"]
    """`Price(...)`, `"free"`, or `"unknown"` when it really is not known."""
    deployment: str = ""
    """Name the backend or provider knows it by; empty = `name`."""
    profile: Profile = Profile()
    serving: Serving = Serving()
    quality: float | None = Field(default=None, ge=0, le=1)
    """Prior belief that one call completes a typical step; None = from `size_b`, else .5."""
    size_b: float | None = Field(default=None, gt=0)
    """Parameters in billions."""
    family: str = ""
    version: str = ""
    roles: tuple[str, ...] | None = None
    """Roles it may serve; None = all."""
    tools: bool = True
    vision: bool = False
    structured: bool = True
    context_window: int | None = Field(default=None, gt=0)
    """Tokens of prompt and completion together; None = not checked."""
    max_output: int = Field(default=4096, gt=0)
    """Most completion tokens of a call that sets no limit of its own."""

    def __init__(self, name: str | None = None, /, **data: Any) -> None:
        if name is not None:
            data["name"] = name
        super().__init__(**data)

    @field_validator("price", mode="before")
    @classmethod
    def _free(cls, value: Any) -> Any:
        if value == "free" or (isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0):
            return Price(input=0, output=0)
        if isinstance(value, dict):
            return Price(**value)
        if not isinstance(value, Price) and value != "unknown":
            raise ValueError(
                f'seen {value!r}; allowed: Price(input=…, output=…) in USD per million tokens, "free" or "unknown"'
            )
        return value

    @property
    def provider_name(self) -> str:
        """Name to send to the backend."""
        return self.deployment or self.name

    @property
    def prior(self) -> float:
        """Prior belief that one call completes a typical step, in [0, 1].

        Without `quality`, a mild logistic in log10 of the size: .5 at 7 billion parameters, about .3 at .5 and .7 at 100.
        """
        if self.quality is not None:
            return self.quality
        if self.size_b is None:
            return 0.5
        return 1 / (1 + math.exp(-0.75 * (math.log10(self.size_b) - math.log10(7.0))))

    @property
    def known_price(self) -> Price | None:
        """The price, or None where it is unknown: what to ask at every call, since comparing a `Price` takes a while."""
        return self.price if isinstance(self.price, Price) else None

    @property
    def may_wait(self) -> bool:
        """Whether a call may have to wait for a load, a free slot or a rate limit."""
        serving, profile = self.serving, self.profile
        limited = serving.concurrency is not None or serving.rpm is not None or serving.tpm is not None
        return limited or profile.load_s > 0 or profile.load_j > 0

    def lacks(self, role: str, needs: Needs) -> str:
        """Why this model cannot serve a step; empty when it can."""
        if self.roles is not None and role not in self.roles:
            return f"not allowed for role {role!r} (allowed: {', '.join(self.roles)})"
        if needs.tools and not self.tools:
            return "no tool calls"
        if needs.vision and not self.vision:
            return "no vision"
        if needs.structured and not self.structured:
            return "no structured output"
        if self.context_window is not None and needs.context_tokens > self.context_window:
            return f"context window {self.context_window} < {needs.context_tokens} tokens"
        return ""


class ModelPool:
    """The candidates, in order; arms may be added, retired and replaced at run time."""

    def __init__(self, models: Iterable[Model], default: str | None = None):
        """Hold the models.

        Args:
            models: at least one; names are unique.
            default: model used when the router itself fails; None = the one with the highest prior.

        Raises:
            ConfigError: the pool is empty, a name repeats, or `default` is unknown.
        """
        self._hold({})
        for model in models:
            self.add(model)
        if not self._models:
            raise ConfigError("models: the pool is empty; give at least one Model")
        if default is not None and default not in self._models:
            raise ConfigError(unknown_name("default", default, self._models))
        self._default = default

    def copy(self) -> ModelPool:
        """A pool of its own with the same models and default."""
        return ModelPool(self, self._default)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def __len__(self) -> int:
        return len(self._models)

    def __contains__(self, name: object) -> bool:
        return name in self._models

    def __getitem__(self, name: str) -> Model:
        try:
            return self._models[name]
        except KeyError:
            raise ConfigError(unknown_name("model", name, self._models)) from None

    @property
    def names(self) -> list[str]:
        """Names in order."""
        return list(self._models)

    @property
    def default(self) -> Model:
        """The model used when the router itself fails."""
        if self._default is not None and self._default in self._models:
            return self._models[self._default]
        return max(self._models.values(), key=lambda model: model.prior)

    @property
    def dearest_usd(self) -> float | None:
        """Highest known price in USD per million tokens, assumed where one is unknown; None when none is above zero."""
        return self._dearest

    def _hold(self, models: dict[str, Model]) -> None:
        """Take a new dict, never change the old one: another thread may be reading it."""
        self._models: dict[str, Model] = models
        prices = [price for model in models.values() if (price := model.known_price) is not None]
        self._dearest: float | None = max((max(price.input, price.output) for price in prices), default=0.0) or None
        self.caching: bool = any(price.caches for price in prices)
        """Whether any model's provider has a prompt cache: where none has, no call asks what it holds."""
        self.scheduled: bool = any(model.may_wait for model in models.values())
        """Whether `may_wait` holds for any model."""

    def add(self, model: Model) -> None:
        """Add an arm.

        Raises:
            ConfigError: the name is taken.
        """
        if not isinstance(model, Model):
            raise ConfigError(f"models: seen {model!r}; allowed: Model(...)"[:200])
        if model.name in self._models:
            raise ConfigError(f"models: the name {model.name!r} is given twice; names must be unique")
        self._hold({**self._models, model.name: model})

    def retire(self, name: str) -> Model:
        """Take an arm out; the last one stays.

        Raises:
            ConfigError: unknown name, or it is the last model.
        """
        model = self[name]
        if len(self._models) == 1:
            raise ConfigError(f"models: {name!r} is the last model and cannot be retired")
        self._hold({key: item for key, item in self._models.items() if key != name})
        return model

    def replace(self, model: Model | str, version: str = "") -> Model:
        """Put a new version of an arm in the place of the old one, under the same name.

        `pacer` starts from what it knew of the old version, shrunk to a few observations.

        Args:
            model: the new version, or the name of one that only changed inside.
            version: what tells it from the old one; empty = the model says so itself.

        Returns:
            What the pool holds now.

        Raises:
            ConfigError: no such name, or the version is the old one's.
        """
        old = self[model.name if isinstance(model, Model) else model]
        new = model if isinstance(model, Model) else old
        if version:
            new = new.model_copy(update={"version": version})
        if new.version == old.version:
            raise ConfigError(
                f"models: version of {old.name!r}: seen {new.version!r}; allowed: another than the one it replaces"
            )
        self._hold({name: new if name == old.name else item for name, item in self._models.items()})
        return new

    def resolve(self, name: str) -> Model | None:
        """The model of that name, else the one whose deployment has that name, else None."""
        found = self._models.get(name)
        return found or next((model for model in self._models.values() if model.deployment == name != ""), None)

    def eligible(
        self, role: str, needs: Needs, exclude: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[list[Model], dict[str, str]]:
        """Models that may serve a step, and for the others the reason why not.

        Args:
            role: role the step is made for.
            needs: what it asks of a model.
            exclude: models not to use, each with the reason.
        """
        fit, reasons = [], {}
        for model in self._models.values():
            reason = exclude.get(model.name) or model.lacks(role, needs)
            if reason:
                reasons[model.name] = reason
            else:
                fit.append(model)
        return fit, reasons
