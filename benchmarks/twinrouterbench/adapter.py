"""`select(ctx)`: what happened since the last call is read from the conversation and the bill, then a model is chosen.

The harness tells a router nothing of outcomes or of an instance's end. What a step did is seen at the next one; the last
step of an instance is never seen, and a task ends by being idle.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steproute.benchmarks.swebench.evidence import evidence_of
from steproute.benchmarks.twinrouterbench.prices import pool_of, price_table
from steproute.budget import Budget, Limit
from steproute.decision import Decision
from steproute.errors import ConfigError
from steproute.ledger import Evidence, Ledger, Outcome, Task
from steproute.router import Router

logger = logging.getLogger("steproute")

ROLE = "engineer"
IDLE_S = 1800.0
"""An instance without calls for this long has ended."""
_CODE = re.compile(r"<returncode>\s*(-?\d+)\s*</returncode>")
_WRITES = re.compile(
    r"sed -i|git apply|\bpatch -|\btee\b|>>?\s*[\w./-]+\.\w+|str_replace|write_file|apply_patch|edit_file"
)


@dataclass
class _Seat:
    """One instance in progress."""

    ledger: Ledger
    decision: Decision | None = None
    """The step whose outcome is still to be read."""
    seen: int = 0
    """Messages read so far."""
    spent: float = 0.0
    """The harness's bill when the step was decided, in USD."""
    next_step: int = 0


class StepRouter:
    """A router for TwinRouterBench's dynamic track, safe to share between its workers."""

    def __init__(self, policy: str = "pacer", pricing: str = "", value_usd: float = 0.2, seed: int = 0):
        """Set up; the pool is taken from the first context, since the harness locks it.

        Args:
            policy: as in `steproute policies`.
            pricing: path of the price table; empty = the checkout's own.
            value_usd: worth of a dollar in resolved instances.
            seed: of every random draw.

        Raises:
            ConfigError: a setting is wrong, or there is no price table.
        """
        self.policy, self.value_usd, self.seed = policy, value_usd, seed
        self.router: Router | None = None
        self._prices = price_table(pricing)
        self._seats: dict[str, _Seat] = {}
        self._runs: dict[str, int] = {}
        self._lock = threading.RLock()

    def select(self, ctx: Any) -> Any:
        """Choose the model of the next call; returns the harness's own `RouterDecision`.

        Raises:
            ConfigError: the pool has a model without a price.
        """
        with self._lock:
            router = self._router(ctx)
            seat = self._seat(ctx)
            self._hear(router, seat, ctx)
            decision = router.decide(
                seat.ledger,
                ROLE,
                step=str(ctx.step_index),
                prompt_tokens=sum(len(_text(message)) for message in ctx.messages) // 4,
                cached_tokens=warm(ctx.cache_state),
                text=_text(ctx.messages[-1])[-4000:] if ctx.messages else "",
            )
            seat.decision, seat.seen, seat.spent = decision, len(ctx.messages), ctx.budget_so_far_usd
            seat.next_step = ctx.step_index + 1
            answer = sys.modules[type(ctx).__module__].RouterDecision
            return answer(model_id=decision.model.name, rationale=decision.reason)

    def _router(self, ctx: Any) -> Router:
        """The router over the harness's pool; the money it may spend is the harness's budget."""
        if self.router is None:
            limit = ctx.run_config.budget_usd or None
            budget = Budget(usd=Limit(limit=limit, hard=False, value=self.value_usd))
            pool = pool_of(ctx.available_models, self._prices)
            self.router = Router(pool, budget, self.policy, seed=self.seed, idle_timeout=IDLE_S)
        return self.router

    def _seat(self, ctx: Any) -> _Seat:
        """The instance's seat; one that starts again at an earlier step is another task."""
        seat = self._seats.get(ctx.instance_id)
        if seat is None or ctx.step_index < seat.next_step:
            self._runs[ctx.instance_id] = run = self._runs.get(ctx.instance_id, 0) + 1
            name = ctx.instance_id if run == 1 else f"{ctx.instance_id}#{run}"
            goal = next((_text(message) for message in ctx.messages if message.get("role") == "user"), "")
            repo = ctx.instance_id.partition("-")[0]
            task = Task(id=name, goal=goal[:4000], domain="swe", dimension=repo, source="twinrouterbench")
            seat = self._seats[ctx.instance_id] = _Seat(Ledger(task=task))
        return seat

    def _hear(self, router: Router, seat: _Seat, ctx: Any) -> None:
        """Take in the step before: its tokens, what it cost by the harness's bill, and how its commands ended."""
        if seat.decision is None:
            return
        new = ctx.messages[seat.seen :]
        said = next((message for message in new if message.get("role") == "assistant"), None)
        outcome = _outcome(said, max(0.0, ctx.budget_so_far_usd - seat.spent), seat.decision)
        evidence = _evidence(said, [message for message in new if message.get("role") in ("tool", "user")])
        router.observe(seat.decision, outcome, output="" if said is None else _text(said), evidence=evidence)
        seat.decision = None


def warm(cache: Any) -> dict[str, int]:
    """Tokens each model may still have in its cache: the harness's view, with its time to live applied.

    Args:
        cache: a `CacheStateSnapshot`.
    """
    tokens = {}
    for name, view in cache.by_model.items():
        fresh = view.last_call_ts is not None and cache.now_ts - view.last_call_ts <= cache.wallclock_ttl_sec
        tokens[name] = view.prefix_token_count if fresh else 0
    return tokens


def make_router(policy: str = "pacer", pricing: str = "", value_usd: str = "0.2", seed: str = "0") -> StepRouter:
    """What `--router-import` calls; every `--router-arg key=value` arrives as text.

    Raises:
        ConfigError: a value is no number.
    """
    try:
        return StepRouter(policy, pricing, float(value_usd), int(seed))
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"router-arg: value_usd={value_usd!r}, seed={seed!r}; allowed: a number, a whole number"
        ) from None


def _outcome(said: Mapping[str, Any] | None, usd: float, decision: Decision) -> Outcome:
    told = {} if said is None else (said.get("extra") or {}).get("swerouter") or {}
    usage = told.get("usage") or {}
    read = [int(usage.get(name) or 0) for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens")]
    prompt = sum(read) or decision.prompt_tokens
    return Outcome(
        prompt_tokens=prompt,
        completion_tokens=int(usage.get("output_tokens") or 0) or (0 if said is None else len(_text(said)) // 4),
        cached_tokens=min(read[1], prompt),
        tokens_estimated=not usage,
        usd=usd,
        seconds=max(0.0, float(told.get("latency_ms") or 0.0)) / 1000,
    )


def _evidence(said: Mapping[str, Any] | None, results: Sequence[Mapping[str, Any]]) -> list[Evidence]:
    """How the commands ended; and, where one that ended well looks like an edit, that a change is there."""
    if said is None:
        return [Evidence(source="command", score=0, detail="no usable reply")]
    found = []
    for result in results:
        extra, text = result.get("extra") or {}, _text(result)
        code = extra.get("returncode")
        if code is None:
            shown = _CODE.search(text)
            code = int(shown.group(1)) if shown else None
        if code is not None:
            found += evidence_of({**extra, "returncode": code, "output": extra.get("raw_output") or text})
    good = bool(found) and all(item.score >= 1 for item in found if item.source == "command")
    if good and _WRITES.search(_asked(said)):
        found.append(Evidence(source="patch", score=1, detail="a command that writes files"))
    return found


def _asked(said: Mapping[str, Any]) -> str:
    actions = (said.get("extra") or {}).get("actions") or ()
    calls = [str(call.get("function") or {}) for call in said.get("tool_calls") or () if isinstance(call, Mapping)]
    return "\n".join([*(str(action.get("command", "")) for action in actions), *calls])


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return str(content or "")
