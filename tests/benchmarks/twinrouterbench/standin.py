"""A stand-in for TwinRouterBench's seam, written from its public documentation: NOT the harness.

It has the names, fields, checks, import rule, prices and cache rules a router meets there, and a scripted conversation
in place of models and containers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

PRICES = {
    "big/model": {"input_per_m": 5.0, "output_per_m": 25.0, "cache_read_per_m": 0.5, "cache_write_per_m": 6.25},
    "mid/model": {"input_per_m": 0.5, "output_per_m": 3.0, "cache_read_per_m": 0.05, "cache_write_per_m": 0.08},
    "tiny/model": {"input_per_m": 0.25, "output_per_m": 0.4, "cache_read_per_m": 0.025, "cache_write_per_m": 0.25},
}
TTL_S = 300


@dataclass(frozen=True)
class ModelCacheView:
    model_id: str
    last_call_ts: float | None
    prefix_token_count: int
    prefix_hash: str | None


@dataclass(frozen=True)
class CacheStateSnapshot:
    wallclock_ttl_sec: int
    now_ts: float
    by_model: Mapping[str, ModelCacheView]


@dataclass(frozen=True)
class RunConfig:
    max_steps: int
    budget_usd: float
    wallclock_ttl_sec: int
    select_timeout_sec: float


@dataclass(frozen=True)
class RouterContext:
    instance_id: str
    step_index: int
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    available_models: tuple[str, ...]
    cache_state: CacheStateSnapshot
    budget_so_far_usd: float
    run_config: RunConfig


@dataclass(frozen=True)
class RouterDecision:
    model_id: str
    rationale: str | None = None


def load(router_import: str, arguments: dict[str, str]) -> Any:
    """`--router-import module:attribute.path`, called with the `--router-arg`s, which are text."""
    module, _, path = router_import.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    made = found(**arguments)
    assert callable(made.select)
    return made


def validate_decision(decision: Any, *, available_models: tuple[str, ...]) -> RouterDecision:
    """The harness raises on anything but a decision for a model of its pool."""
    if not isinstance(decision, RouterDecision):
        raise TypeError(f"select must return RouterDecision, got {type(decision).__name__}")
    if not decision.model_id or decision.model_id not in available_models:
        raise ValueError(f"{decision.model_id!r} is not in the pool")
    return decision


@dataclass
class Harness:
    """Runs one instance: `play(model, turn)` gives (command, return code, output) until the command is `submit`."""

    router: Any
    play: Callable[[str, int], tuple[str, int, str]]
    max_steps: int = 20
    budget_usd: float = 3.0
    pace_s: float = 20.0
    module: Any = None
    """Where the seam's classes come from; None = this file."""
    clock: float = 1_000_000.0
    contexts: list[Any] = field(default_factory=list)

    def run(self, instance: str) -> list[str]:
        """The models, step by step."""
        seam: Any = self.module or importlib.import_module(__name__)
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "You are an engineer."},
            {"role": "user", "content": f"Please solve this issue: {instance} is broken."},
        ]
        cache: dict[str, tuple[float, int]] = {}
        cost, chosen = 0.0, []
        for step in range(self.max_steps):
            views = {
                name: seam.ModelCacheView(name, *cache.get(name, (None, 0)), "hash" if name in cache else None)
                for name in PRICES
            }
            ctx = seam.RouterContext(
                instance_id=instance,
                step_index=step,
                messages=tuple(messages),
                tools=(),
                available_models=tuple(PRICES),
                cache_state=seam.CacheStateSnapshot(TTL_S, self.clock, views),
                budget_so_far_usd=cost,
                run_config=seam.RunConfig(self.max_steps, self.budget_usd, TTL_S, 30.0),
            )
            self.contexts.append(ctx)
            answer = self.router.select(ctx)
            model = seam.validate_decision(answer, available_models=ctx.available_models).model_id
            chosen.append(model)
            command, code, output = self.play(model, step)
            cost += self._bill(messages, cache, model, command)
            if command == "submit" or cost > self.budget_usd:
                break
            messages.append(
                {"role": "user", "content": f"<returncode>{code}</returncode>\n{output}", "extra": {"returncode": code}}
            )
            self.clock += self.pace_s
        return chosen

    def _bill(
        self, messages: list[dict[str, Any]], cache: dict[str, tuple[float, int]], model: str, command: str
    ) -> float:
        """Four buckets: fresh input, cache read, cache write, output; a warm prefix is read."""
        prompt = sum(len(str(message["content"])) for message in messages) // 4
        last = cache.get(model)
        read = min(last[1], prompt) if last is not None and self.clock - last[0] <= TTL_S else 0
        write, price = prompt - read, PRICES[model]
        cost = (
            read * price["cache_read_per_m"] + write * price["cache_write_per_m"] + 50 * price["output_per_m"]
        ) / 1e6
        cache[model] = (self.clock, prompt)
        usage = {"input_tokens": 0, "cache_read_tokens": read, "cache_write_tokens": write, "output_tokens": 50}
        told = {"model_id": model, "usage": usage, "step_cost_usd": cost, "latency_ms": 1500.0}
        extra = {"actions": [{"command": command}], "cost": cost, "swerouter": told}
        messages.append({"role": "assistant", "content": f"I run {command}", "extra": extra})
        return cost
