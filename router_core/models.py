"""Candidate models: price, speed and energy profile, capabilities, allowed roles, and the pool they form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from steproute.errors import ConfigError, unknown_name
from steproute.settings import Settings


class Price(Settings):
    """USD per million tokens. Zero means free, not unknown."""

    input: float = Field(ge=0)
    """Uncached prompt tokens."""
    output: float = Field(ge=0)
    """Completion tokens."""
    cached_input: float | None = Field(default=None, ge=0)
    """Prompt tokens read from the provider's cache; None = same as `input`."""
    cache_write: float | None = Field(default=None, ge=0)
    """Prompt tokens written to the cache; None = same as `input`. Where it is set, whatever is not read from the cache is
    expected to be written to it."""
    cache_ttl_s: float | None = Field(default=300.0, gt=0)
    """How long the cache keeps a prompt after its last use; None = for ever."""
    cache_min_tokens: int = Field(default=1024, ge=0)
    """A shorter prompt is not cached."""

    @property
    def caches(self) -> bool:
        """Whether the provider has a prompt cache, as far as its prices tell."""
        return self.cached_input is not None

    def usd(
        self,
        prompt_tokens: float,
        completion_tokens: float,
        cached_tokens: float = 0.0,
        written_tokens: float = 0.0,
    ) -> float:
        """Cost of one call in USD.

        Args:
            prompt_tokens: all prompt tokens.
            completion_tokens: tokens of the reply.
            cached_tokens: part of the prompt read from the cache.
            written_tokens: part of the rest that was written to it.
        """
        cached_price = self.input if self.cached_input is None else self.cached_input
        write_price = self.input if self.cache_write is None else self.cache_write
        cached = min(cached_tokens, prompt_tokens)
        written = min(written_tokens, prompt_tokens - cached)
        read = prompt_tokens - cached - written
        prompt = read * self.input + cached * cached_price + written * write_price
        return (prompt + completion_tokens * self.output) / 1e6


@dataclass(frozen=True, slots=True)
class Work:
    """An amount (seconds or joules) that a call takes, by its tokens.

    With u uncached and c cached prompt tokens and N completion tokens, every token pays for itself and for what it attends
    to: fixed + prefill·u + prefill_context·u·(c + u/2) + decode·N + decode_context·N·(c + u + N/2).
    """

    fixed: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0
    prefill_context: float = 0.0
    decode_context: float = 0.0

    def amount(self, prompt: float, completion: float, cached: float = 0.0) -> float:
        """What a call takes; `prompt` includes `cached`."""
        uncached = prompt - cached
        total = self.fixed + self.prefill * uncached + self.decode * completion
        if self.prefill_context:
            total += self.prefill_context * uncached * (cached + uncached / 2)
        if self.decode_context:
            total += self.decode_context * completion * (prompt + completion / 2)
        return total

    def times(self, factor: float) -> Work:
        """The same, scaled."""
        parts = (self.fixed, self.prefill, self.decode, self.prefill_context, self.decode_context)
        return Work(*(factor * part for part in parts))


class Profile(Settings):
    """Speed and energy of one deployment: what a call is expected to take before it is made.

    `steproute models profile` fits one.
    """

    prefill_tokens_per_s: float | None = Field(default=None, gt=0)
    decode_tokens_per_s: float | None = Field(default=None, gt=0)
    prefill_context_s: float = Field(default=0.0, ge=0)
    """Seconds more per prompt token and token of context before it."""
    decode_context_s: float = Field(default=0.0, ge=0)
    """Seconds more per completion token and token of context before it."""
    latency_s: float = Field(default=0.0, ge=0)
    """Fixed part of a call, without tokens."""
    load_s: float = Field(default=0.0, ge=0)
    """Time to load the weights when cold."""
    power_w: float | None = Field(default=None, gt=0)
    """Board power while busy, as given by the user; joules computed from it are labelled so."""
    load_j: float = Field(default=0.0, ge=0)
    latency_j: float = Field(default=0.0, ge=0)
    """Fixed part of a call's energy."""
    prefill_j_per_token: float | None = Field(default=None, ge=0)
    decode_j_per_token: float | None = Field(default=None, ge=0)
    prefill_context_j: float = Field(default=0.0, ge=0)
    decode_context_j: float = Field(default=0.0, ge=0)
    amounts: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Expected use of the user's own resources by one call."""
    intervals: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """95 % intervals of what was fitted, by the name of the field."""
    source: str = ""
    """Where the numbers come from: which meter, when."""

    def __hash__(self) -> int:
        return hash((self.prefill_tokens_per_s, self.decode_tokens_per_s, self.latency_s, self.power_w))

    @property
    def time(self) -> Work:
        """Seconds of one warm call."""
        return Work(
            self.latency_s,
            1 / self.prefill_tokens_per_s if self.prefill_tokens_per_s else 0.0,
            1 / self.decode_tokens_per_s if self.decode_tokens_per_s else 0.0,
            self.prefill_context_s,
            self.decode_context_s,
        )

    @property
    def energy(self) -> Work | None:
        """Joules of one warm call; None when nothing is known."""
        if self.prefill_j_per_token is not None or self.decode_j_per_token is not None:
            return Work(
                self.latency_j,
                self.prefill_j_per_token or 0.0,
                self.decode_j_per_token or 0.0,
                self.prefill_context_j,
                self.decode_context_j,
            )
        return None if self.power_w is None else self.time.times(self.power_w)

    def seconds(self, prompt_tokens: float, completion_tokens: float, cached_tokens: float = 0.0) -> float:
        """Expected duration of one warm call in seconds."""
        return self.time.amount(prompt_tokens, completion_tokens, cached_tokens)

    def energy_j(self, prompt_tokens: float, completion_tokens: float, cached_tokens: float = 0.0) -> float | None:
        """Expected energy of one warm call in joules; None when nothing is known (DESIGN: E_prefill + e_decode·N)."""
        work = self.energy
        return None if work is None else work.amount(prompt_tokens, completion_tokens, cached_tokens)


class Serving(Settings):
    """How a deployment is served: what else is on its way there, what fits into memory, how much it allows."""

    concurrency: int | None = Field(default=None, ge=1)
    """Calls its server works on at once; more of them wait. None = no bound."""
    server: str = ""
    """Models of one server share its `concurrency` and its memory; empty = a server of its own."""
    rpm: int | None = Field(default=None, ge=1)
    """Calls a minute that the provider allows."""
    tpm: int | None = Field(default=None, ge=1)
    """Tokens a minute that the provider allows."""
    vram_gb: float | None = Field(default=None, gt=0)
    """Memory its weights and cache take, see `Budget.vram_gb`."""
    keep_alive_s: float | None = Field(default=300.0, gt=0)
    """How long it stays in memory after its last call (Ollama: 5 minutes); None = for ever."""


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
        known = [max(model.price.input, model.price.output) for model in models.values() if model.price != "unknown"]
        self._dearest: float | None = max(known, default=0.0) or None

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
            raise ConfigError(f"models: version of {old.name!r}: seen {new.version!r}; allowed: another than the one it replaces")
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
