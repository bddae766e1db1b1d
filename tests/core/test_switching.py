"""A recorded conversation of thirty calls, billed with and without the price of switching between models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from doubles import FakeClock

from steproute import Model, Outcome, Price, Router
from steproute.policies import Scores, StepContext

STEPS = json.loads((Path(__file__).parent / "recorded" / "conversation.json").read_text())["steps"]
PAUSE_S = 20.0
EARLIER = 3
"""Conversations of the same kind before the one that is billed."""
POOLS: dict[str, dict[str, Price]] = {
    "a cache against a lower list price": {
        "cached": Price(input=3, output=12, cached_input=0.3),
        "listed": Price(input=1.2, output=8),
    },
    "reads and writes": {
        "writer": Price(input=3, output=15, cached_input=0.3, cache_write=3.75),
        "half": Price(input=2.5, output=10, cached_input=1.25),
    },
    "equals": {
        "one": Price(input=2, output=8, cached_input=0.5),
        "two": Price(input=2, output=8, cached_input=0.5),
        "three": Price(input=2, output=8, cached_input=0.5),
    },
    "no shortest prompt": {
        "small": Price(input=1, output=5, cached_input=0.1, cache_write=1.25, cache_min_tokens=0),
        "other": Price(input=0.9, output=5.5, cached_input=0.45, cache_min_tokens=0),
    },
}


class Favours:
    """Prefers another model at every call, by less than a full read of a long prompt costs."""

    name = "favours"

    def __init__(self, worth: float):
        self.worth = worth

    def score(self, context: StepContext) -> Scores:
        turn = int(context.extra["turn"]) % len(context.names)
        gains = [self.worth * (i == turn) for i in range(len(context.names))]
        return Scores(np.array(gains) - context.costs("usd"))


def converse(prices: Mapping[str, Price], policy: object, aware: bool) -> tuple[float, list[str], list[Outcome]]:
    """The last of a few conversations: its bill as the router's books have it, who was called, and the usage."""
    clock = FakeClock()
    blind = {name: Price(input=price.input, output=price.output) for name, price in prices.items()}
    pool = [Model(name, price=price) for name, price in (prices if aware else blind).items()]
    router = Router(pool, policy=policy, on_error="raise", clock=clock, seed=0)  # type: ignore[arg-type]
    for number in range(EARLIER + 1):
        held: dict[str, tuple[int, float]] = {}
        names, usage, bill = [], [], 0.0
        for turn, (prompt, completion) in enumerate(STEPS):
            clock.tick(PAUSE_S)
            decision = router.decide(f"t{number}", "coder", step=str(turn), prompt_tokens=prompt, extra={"turn": turn})
            name = decision.model.name
            price = prices[name]
            tokens, moment = held.get(name, (0, 0.0))
            kept = tokens >= price.cache_min_tokens and clock() - moment <= (price.cache_ttl_s or 1e9)
            cached = tokens if kept and price.cached_input is not None else 0
            written = prompt - cached if price.cache_write is not None else 0
            held[name] = (prompt, clock())
            usd = price.usd(prompt, completion, cached, written)  # as the provider bills it, whatever the router knows
            outcome = Outcome(
                prompt_tokens=prompt,
                completion_tokens=completion,
                cached_tokens=cached,
                written_tokens=written,
                usd=usd,
            )
            router.observe(decision, outcome)
            names.append(name)
            usage.append(outcome)
            bill += usd
        assert router.finish(f"t{number}")["usd"] == pytest.approx(bill, abs=1e-7)
    return bill, names, usage


@pytest.mark.parametrize("policy", ["cheapest", Favours(0.0005), Favours(0.002)], ids=["cheapest", "mild", "strong"])
@pytest.mark.parametrize("pool", POOLS)
def test_the_bill_is_not_higher_when_switching_has_its_price(pool, policy):
    prices = POOLS[pool]
    with_price, _, _ = converse(prices, policy, aware=True)
    without, _, _ = converse(prices, policy, aware=False)
    assert with_price <= without + 1e-9


def test_the_bill_by_hand():
    """One model all along: it reads what it has seen at a tenth of the price, once that is 1,024 tokens."""
    prices = POOLS["a cache against a lower list price"]
    bill, names, usage = converse(prices, "cheapest", aware=True)
    cached, listed = names.count("cached"), names.count("listed")
    assert (cached, listed, names[-20:]) == (len(STEPS) - listed, listed, ["cached"] * 20)
    by_hand, before = 0.0, 0
    for name, (prompt, completion) in zip(names, STEPS, strict=True):
        if name == "listed":
            by_hand += prompt * 1.2 + completion * 8
            continue
        read = before if before >= 1024 else 0
        by_hand += (prompt - read) * 3 + read * 0.3 + completion * 12
        before = prompt
    assert bill == pytest.approx(by_hand / 1e6, rel=1e-12)
    assert sum(outcome.cached_tokens for outcome in usage) > 0.5 * sum(prompt for prompt, _ in STEPS)
