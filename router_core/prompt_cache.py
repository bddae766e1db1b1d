"""What providers' prompt caches hold of a conversation: what a call would read from them, and a switch would give up."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from steproute.ledger import Outcome
from steproute.models import Model

KEPT = 1_000
"""Most tasks remembered."""
PRIOR_CALLS = 2.0
"""How many calls the belief is worth that a cache keeps what its TTL says."""


@dataclass(slots=True)
class _Conversation:
    calls: int = 0
    longest: int = 0
    """Prompt tokens of its latest call."""
    held: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Model → prompt tokens it has seen, and when."""


class PromptCaches:
    """Remembers, per task and role, how much of the growing prompt each model has read.

    A conversation is taken to grow at its end. When a prompt is shorter than the one before, its prefix was cut or rewritten,
    and no cache holds it any more. Only models whose price has `cached_input` have a cache. A host that knows better says so
    by `decide(cached_tokens=...)`.
    """

    def __init__(self, clock: Callable[[], float]):
        """Start with empty caches.

        Args:
            clock: gives the time in seconds.
        """
        self._clock = clock
        self._tasks: OrderedDict[str, dict[str, _Conversation]] = OrderedDict()
        """Task → role → conversation."""
        self._lengths: dict[str, tuple[float, int]] = {}
        """Role → mean calls of a conversation, and how many ended."""
        self._hits: dict[str, tuple[float, float]] = {}
        """Model → share of the expected tokens that came, and calls, both fading."""

    def expected(self, task: str, role: str, model: Model, prompt_tokens: int) -> int:
        """How many tokens of a prompt a model is expected to read from its cache."""
        price = model.known_price
        if price is None or not price.caches:
            return 0
        held = self._held(task, role, model, prompt_tokens)
        return int(held * self.hit_rate(model.name)) if held >= price.cache_min_tokens else 0

    def saves(self, task: str, role: str, model: Model, prompt_tokens: int, cached_tokens: int) -> float:
        """USD that later calls are expected to save because this one fills the model's cache.

        What is read anew now is read from the cache by each of the h calls to come, if the model is kept: of the premium
        (uncached or write price over cached price) this call owes 1/(1 + h), the later ones the rest. Without that a cheaper
        model would never be worth its first full read.
        """
        price = model.known_price
        if price is None or price.cached_input is None or prompt_tokens < price.cache_min_tokens:
            return 0.0
        conversation = self._tasks.get(task, {}).get(role)
        to_come = self._to_come(role, conversation.calls if conversation is not None else 0)
        fresh = max(prompt_tokens - cached_tokens, 0)
        premium = price.usd(fresh, 0, 0, fresh) - price.usd(fresh, 0, fresh)
        return max(premium, 0.0) * self.hit_rate(model.name) * to_come / (1.0 + to_come)

    def _to_come(self, role: str, calls: int) -> float:
        """Calls still to come in a conversation: as in earlier ones of the role, else as many as there were."""
        length, count = self._lengths.get(role, (0.0, 0))
        return float(calls) if count < 3 else max(length - calls, 0.0)

    def note(
        self, task: str, role: str, model: Model, prompt_tokens: int, outcome: Outcome, at: float | None = None
    ) -> None:
        """Take in a call that was answered.

        Args:
            task: its task.
            role: its role.
            model: the model that answered.
            prompt_tokens: of the prompt as it was counted before the call, so that prompts can be compared.
            outcome: what the provider says.
            at: when, in seconds of the clock; None = now.
        """
        price = model.known_price
        if price is None or outcome.error is not None:
            return
        if price.caches:
            held = self._held(task, role, model, prompt_tokens)
            if held >= max(price.cache_min_tokens, 1):
                came, asked = self._hits.get(model.name, (PRIOR_CALLS, PRIOR_CALLS))
                share = min(outcome.cached_tokens / held, 1.0)
                self._hits[model.name] = (0.9 * came + share, 0.9 * asked + 1.0)
        conversation = self._tasks.setdefault(task, {}).setdefault(role, _Conversation())
        self._tasks.move_to_end(task)
        if prompt_tokens < conversation.longest:
            conversation.held.clear()
        conversation.calls += 1
        conversation.longest = prompt_tokens
        conversation.held[model.name] = (prompt_tokens, self._clock() if at is None else at)
        while len(self._tasks) > KEPT:
            self._tasks.popitem(last=False)

    def forget(self, task: str) -> None:
        """A task ended."""
        for role, conversation in self._tasks.pop(task, {}).items():
            length, count = self._lengths.get(role, (0.0, 0))
            weight = 1.0 / min(count + 1, 50)
            self._lengths[role] = (length + weight * (conversation.calls - length), count + 1)
            while len(self._lengths) > KEPT:
                del self._lengths[next(iter(self._lengths))]

    def state(self) -> dict[str, dict[str, list[float]]]:
        """Hit rates and lengths as plain JSON values; what a conversation holds goes with its task."""
        return {
            "hits": {model: list(pair) for model, pair in self._hits.items()},
            "lengths": {role: list(pair) for role, pair in self._lengths.items()},
        }

    def load(self, state: dict[str, dict[str, list[float]]]) -> None:
        """Take over what `state` gave."""
        hits = {str(model): (float(came), float(asked)) for model, (came, asked) in state["hits"].items()}
        self._lengths = {str(role): (float(mean), int(count)) for role, (mean, count) in state["lengths"].items()}
        self._hits = hits

    def hit_rate(self, model: str) -> float:
        """Share of what a cache should hold that it did hold lately, in [0, 1]."""
        came, asked = self._hits.get(model, (1.0, 1.0))
        return came / asked

    def _held(self, task: str, role: str, model: Model, prompt_tokens: int) -> int:
        conversation = self._tasks.get(task, {}).get(role)
        if conversation is None or prompt_tokens < conversation.longest or model.name not in conversation.held:
            return 0
        tokens, moment = conversation.held[model.name]
        ttl = None if model.known_price is None else model.known_price.cache_ttl_s
        return 0 if ttl is not None and self._clock() - moment > ttl else tokens
