"""Find a policy by name: built in here, or announced by another package's `steproute.policies` entry point."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from steproute.errors import ConfigError, unknown_name
from steproute.policies.base import Policy

BUILT_IN: dict[str, str] = {
    "acrouter": "steproute.policies.acrouter:ACRouter",
    "cascade": "steproute.policies.cascade:Cascade",
    "cheapest": "steproute.policies.simple:Cheapest",
    "decision-tree": "steproute.policies.decision_tree:DecisionTree",
    "dimension-best": "steproute.policies.dimension_best:DimensionBest",
    "educated-guess": "steproute.policies.educated_guess:EducatedGuess",
    "epsilon-greedy": "steproute.policies.epsilon_greedy:EpsilonGreedy",
    "fixed": "steproute.policies.simple:Fixed",
    "knn": "steproute.policies.knn:KNN",
    "linucb": "steproute.policies.linucb:LinUCB",
    "llm": "steproute.policies.llm:LLMRouter",
    "logreg": "steproute.policies.logreg:LogReg",
    "naive-ratio": "steproute.policies.simple:NaiveRatio",
    "oracle": "steproute.policies.simple:Oracle",
    "pacer": "steproute.policies.pacer:Pacer",
    "progrouter": "steproute.policies.progrouter:ProgRouter",
    "random": "steproute.policies.simple:Random",
    "strongest": "steproute.policies.simple:Strongest",
    "task-level": "steproute.policies.task_level:TaskLevel",
    "thompson": "steproute.policies.thompson:Thompson",
}
"""Name → `module:class`. The part of a spec after a colon (`fixed:large`) goes to the field `Config.argument` names."""


def policy_names() -> list[str]:
    """Every name that `make_policy` knows, sorted."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group="steproute.policies"))})


def make_policy(spec: str | Mapping[str, Any] | Policy) -> Policy:
    """Build a policy.

    Args:
        spec: a policy object (returned as it is), a name such as `"progrouter"` or `"fixed:large"`, or a mapping
            `{"name": ..., **settings}`.

    Raises:
        ConfigError: unknown name or setting; names the nearest right one.
    """
    if isinstance(spec, str):
        name, _, argument = spec.partition(":")
        settings: dict[str, Any] = {}
    elif isinstance(spec, Mapping):
        settings = dict(spec)
        name, _, argument = str(settings.pop("name", "")).partition(":")
        settings = {str(key): value for key, value in settings.items()}
    elif isinstance(spec, Policy) and not isinstance(spec, type):
        return spec
    else:
        raise ConfigError(
            f"policy: seen {spec!r}; allowed: a name, a mapping with `name`, or an object with `name` and `score`"
        )
    target = BUILT_IN.get(name)
    if target is not None:
        module, _, attribute = target.partition(":")
        kind = getattr(import_module(module), attribute)
    else:
        found = [point for point in entry_points(group="steproute.policies") if point.name == name]
        if not found:
            raise ConfigError(unknown_name("policy", name, policy_names()))
        kind = found[0].load()
    if argument:
        field = getattr(kind, "argument", None)
        if field is None:
            raise ConfigError(f"policy {name!r} takes no argument; seen {argument!r} after the colon")
        settings[field] = argument
    if hasattr(kind, "Config"):
        policy: Policy = kind(kind.Config(**settings))
    elif settings:
        raise ConfigError(f"policy {name!r} has no settings; seen {', '.join(map(repr, settings))}")
    else:
        policy = kind()
    return policy
