"""What the model servers are doing: calls in flight, models in memory, room for more, and rate limits.

All of it becomes expected seconds and joules of a call: the wait for a free slot, the load of a cold model, the time until a
rate limit lets one through.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from steproute.decision import Decision
from steproute.ledger import Outcome
from steproute.metering import Meter
from steproute.models import Model, ModelPool, Serving

WINDOW_S = 60.0
"""Rate limits count calls and tokens per minute."""
OVERDUE = 0.25
"""A call that takes longer than expected is expected to take this share of its time more."""
TRIAL_S = 60.0
"""How long the call that tries a model after its rest keeps others from it."""


@dataclass(slots=True)
class _Flight:
    decision: str
    model: str
    server: str
    began: float
    expected_s: float
    span: int | None
    """The meter's key."""


class Fleet:
    """Calls from `begin` to `end`, and what they mean for the next one. The caller holds the lock."""

    def __init__(
        self,
        pool: ModelPool,
        clock: Callable[[], float],
        lease_s: float,
        meter: Meter | None = None,
        vram_gb: float | Mapping[str, float] | None = None,
    ):
        """Start with nothing in flight and nothing in memory.

        Args:
            pool: the candidates.
            clock: gives the time in seconds.
            lease_s: a call that nobody reports is given up after so many seconds.
            meter: measures every call; None = nothing is measured.
            vram_gb: memory for weights: of all models together, or per server; None = no bound is known.
        """
        self._pool, self._clock, self._lease, self._meter = pool, clock, lease_s, meter
        self._room = vram_gb
        self.bounded = vram_gb is not None
        """Whether there may be no memory for a model."""
        self._flights: OrderedDict[tuple[str, str], _Flight] = OrderedDict()
        """One call per task and step; a later one takes the place of an earlier one."""
        self._loaded: OrderedDict[str, float] = OrderedDict()
        """Model → when it was last used, oldest first."""
        self._recent: dict[str, deque[tuple[float, float]]] = {}
        """Model → moment and tokens of its calls within the last minute, where it has a rate limit."""

    # --- what happens ----------------------------------------------------------------------------------------

    def begin(self, decision: Decision) -> None:
        """The call of a decision is about to be made; the same step's earlier call is given up."""
        now = self._clock()
        key, model = (decision.task, decision.step), decision.model
        again = key in self._flights and self._flights[key].decision == decision.id
        self._drop(key)
        while self._flights and next(iter(self._flights.values())).began + self._lease <= now:
            self._drop(next(iter(self._flights)))
        cost = decision.score_of(model.name).cost
        expected = cost.get("seconds", 0.0)
        if model.may_wait:
            expected = max(expected - self.wait_s(model, now) - self.load_s(model, now), 0.0)
        server = model.serving.server or model.name
        span = None if self._meter is None else self._meter.begin(model.name)
        self._flights[key] = _Flight(decision.id, model.name, server, now, expected, span)
        if not again and (model.serving.rpm is not None or model.serving.tpm is not None):
            self._recent.setdefault(model.name, deque()).append((now, cost.get("tokens", 0.0)))
        if _is_loaded_on_demand(model):
            self._use(model, now)

    def end(self, decision: Decision, outcome: Outcome) -> None:
        """The call of a decision was answered, or failed; fills in the joules unless the host has measured them."""
        flight = self._flights.get((decision.task, decision.step))
        if flight is None or flight.decision != decision.id:
            return
        del self._flights[decision.task, decision.step]
        if flight.span is not None and self._meter is not None:
            measured = self._meter.end(flight.span)
            if measured is not None and outcome.energy_j is None:
                outcome.energy_j, outcome.energy_source = measured.joules, measured.label
        if outcome.error is not None:
            self._loaded.pop(flight.model, None)  # it may never have been loaded
        elif flight.model in self._loaded:
            self._loaded[flight.model] = self._clock()
            self._loaded.move_to_end(flight.model)

    def remember(self, model: Model, tokens: float, at: float) -> None:
        """Take in a call of the time before a restart."""
        if _is_loaded_on_demand(model):
            self._use(model, at)
        if model.serving.rpm is not None or model.serving.tpm is not None:
            self._recent.setdefault(model.name, deque()).append((at, tokens))

    def withdraw(self, decision: Decision) -> None:
        """The call of a decision is given up: it says nothing about its model."""
        key = (decision.task, decision.step)
        if key in self._flights and self._flights[key].decision == decision.id:
            self._drop(key)

    def finish(self, task: str) -> None:
        """A task ended: nobody will report its calls."""
        for key in [key for key in self._flights if key[0] == task]:
            self._drop(key)

    def told(self, loaded: Iterable[str]) -> None:
        """Take over which models are in memory, as a server says (`ps`), by name in the pool or deployment.

        Models without `load_s` or `load_j` in their profile, or without VRAM, need not be named: they are never cold.
        """
        now = self._clock()
        names = {model.name for name in loaded if (model := self._pool.resolve(name)) is not None}
        for name in [name for name in self._loaded if name not in names and not self.in_flight(name)]:
            del self._loaded[name]
        for name in names:
            self._loaded.setdefault(name, now)

    # --- what it means for the next call ---------------------------------------------------------------------

    def in_flight(self, model: str) -> int:
        """How many calls to a model are on their way."""
        return sum(flight.model == model for flight in self._flights.values())

    def is_tried(self, model: str, since: float) -> bool:
        """Whether a call that began since a moment is on its way; one that takes too long is not waited for."""
        oldest = max(since, self._clock() - TRIAL_S)
        return any(flight.model == model and flight.began >= oldest for flight in self._flights.values())

    def is_loaded(self, model: Model, now: float | None = None) -> bool:
        """Whether a call needs no load, as far as is known."""
        if not _is_loaded_on_demand(model):
            return True
        used = self._loaded.get(model.name)
        if used is None:
            return False
        keep = model.serving.keep_alive_s
        return keep is None or (self._clock() if now is None else now) - used <= keep or self.in_flight(model.name) > 0

    def load_s(self, model: Model, now: float) -> float:
        """Seconds its load will take."""
        return 0.0 if not model.profile.load_s or self.is_loaded(model, now) else model.profile.load_s

    def wait_s(self, model: Model, now: float) -> float:
        """Seconds until the call is worked on: for a free slot, or for the rate limit."""
        serving = model.serving
        wait = 0.0
        if serving.concurrency is not None:
            wait = self._slot_s(serving.server or model.name, serving.concurrency, now)
        if serving.rpm is not None or serving.tpm is not None:
            wait = max(wait, self._allowed_s(model.name, serving, now))
        return wait

    def add(self, model: Model, cost: dict[str, float], worst: dict[str, float], bounded: bool) -> None:
        """Add wait and load to what a call is expected to take.

        Args:
            model: the candidate.
            cost: expected amounts, changed in place.
            worst: worst case, changed in place.
            bounded: True = the host's timeout is the worst case of time already.
        """
        if not model.may_wait:
            return
        now = self._clock()
        more = self.wait_s(model, now) + self.load_s(model, now)
        if more:
            cost["seconds"] = cost.get("seconds", 0.0) + more
            if not bounded and "seconds" in worst:
                worst["seconds"] += more
        if model.profile.load_j and not self.is_loaded(model, now):
            for amounts in (cost, worst):
                if "energy_j" in amounts:
                    amounts["energy_j"] += model.profile.load_j

    def blocked(self, model: Model) -> str:
        """Why there is no memory for a model now; empty when there is, or when nobody said how much there is."""
        needed = model.serving.vram_gb
        room = None if needed is None else self._room_of(model.serving.server)
        if needed is None or room is None:
            return ""
        if needed > room:
            return f"needs {needed:g} GB of memory; there are {room:g}"
        if model.name in self._loaded:
            return ""
        held = {flight.model for flight in self._flights.values()}
        used = sum(self._memory(name, model.serving.server) for name in held)
        if needed + used > room:
            return f"needs {needed:g} GB of memory; models with calls in flight hold {used:g} of {room:g}"
        return ""

    # --- inside ----------------------------------------------------------------------------------------------

    def _slot_s(self, server: str, slots: int, now: float) -> float:
        left = []
        for flight in self._flights.values():
            if flight.server == server:
                expected = flight.expected_s
                left.append(max(expected - (now - flight.began), OVERDUE * expected))
        if len(left) < slots:
            return 0.0
        ends: list[float] = left[:slots]
        heapq.heapify(ends)
        for seconds in left[slots:]:  # those that wait already come first
            heapq.heapreplace(ends, ends[0] + seconds)
        return ends[0]

    def _allowed_s(self, model: str, serving: Serving, now: float) -> float:
        recent = self._recent.get(model)
        if not recent:
            return 0.0
        while recent and recent[0][0] <= now - WINDOW_S:
            recent.popleft()
        free = now
        if serving.rpm is not None and len(recent) >= serving.rpm:
            free = recent[len(recent) - serving.rpm][0] + WINDOW_S
        if serving.tpm is not None:
            total = sum(tokens for _, tokens in recent)
            for moment, tokens in recent:
                if total < serving.tpm:
                    break
                total -= tokens
                free = max(free, moment + WINDOW_S)
        return max(free - now, 0.0)

    def _use(self, model: Model, now: float) -> None:
        """A model is in memory from now on; those used least recently make room for it."""
        self._loaded[model.name] = now
        self._loaded.move_to_end(model.name)
        server = model.serving.server
        room = self._room_of(server)
        if room is None:
            return
        used = sum(self._memory(name, server) for name in self._loaded)
        for name in [name for name in self._loaded if name != model.name]:
            if used <= room:
                return
            if self._memory(name, server) and not self.in_flight(name):
                used -= self._memory(name, server)
                del self._loaded[name]

    def _memory(self, name: str, server: str) -> float:
        """GB a model takes where that server is."""
        if name not in self._pool:
            return 0.0
        serving = self._pool[name].serving
        shared = not isinstance(self._room, Mapping) or serving.server == server
        return (serving.vram_gb or 0.0) if shared else 0.0

    def _room_of(self, server: str) -> float | None:
        return self._room.get(server) if isinstance(self._room, Mapping) else self._room

    def _drop(self, key: tuple[str, str]) -> None:
        flight = self._flights.pop(key, None)
        if flight is not None and flight.span is not None and self._meter is not None:
            self._meter.cancel(flight.span)

    @property
    def loaded(self) -> Collection[str]:
        """Models known to be in memory."""
        return tuple(self._loaded)


def _is_loaded_on_demand(model: Model) -> bool:
    """Whether calls to it may find it cold; a hosted API never is."""
    return bool(model.profile.load_s or model.profile.load_j or model.serving.vram_gb)
