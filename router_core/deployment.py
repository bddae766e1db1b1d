"""What is known of a deployment: its price, what its calls take, and how it is served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

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
