"""Every policy of the registry, made so that it learns something in a few tasks of the small world."""

from __future__ import annotations

from typing import Any

import world

from steproute.policies.llm import LLMRouter
from steproute.policies.registry import BUILT_IN, make_policy

RECORDING = {"q": {"small": 0.2, "middle": 0.5, "large": 0.4}}


def answer(prompt: str) -> str:
    """Stands in for a routing model: what it names hangs on the statistics it is shown, and now and then it names nobody."""
    number = world.chance(prompt)
    return "no idea" if number < 0.4 else f'{{"model": "{("small", "middle", "large")[int(number * 97) % 3]}"}}'


MADE: dict[str, Any] = {
    "fixed": lambda: "fixed:middle",
    "llm": lambda: LLMRouter(LLMRouter.Config(model="x", statistics=True), ask=answer),
    "logreg": lambda: {"name": "logreg", "warmup": 15},
    "decision-tree": lambda: {"name": "decision-tree", "warmup": 15, "leaf": 2},
    "knn, a small memory": lambda: {"name": "knn", "capacity": 11},
    "acrouter, a small memory": lambda: {"name": "acrouter", "capacity": 11, "k": 3},
    "cascade, per role": lambda: {"name": "cascade", "per_role": True, "failing": "unsolved"},
}
"""Policies that a name alone does not make, and settings under which something else happens."""
POLICIES = sorted({*BUILT_IN, *MADE})


def spec(name: str) -> Any:
    return MADE[name]() if name in MADE else name


def keeps_blocks(name: str) -> bool:
    """Whether its snapshots have parts that are written once."""
    return hasattr(make_policy(spec(name)), "memory")
