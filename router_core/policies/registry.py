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
    if not isinstance(spec, (str, Mapping)):
        if isinstance(spec, Policy) and not isinstance(spec, type):
            return spec
        raise ConfigError(
            f"policy: seen {spec!r}; allowed: a name, a mapping with `name`, or an object with `name` and `score`"
        )
    name, argument, settings = _parts(spec)
    kind = policy_class(name)
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


def policy_class(spec: str | Mapping[str, Any]) -> Any:
    """The class behind a name or a mapping with `name`, without building it: what a policy needs can be asked first.

    Raises:
        ConfigError: unknown name; names the nearest right one.
    """
    name = _parts(spec)[0]
    target = BUILT_IN.get(name)
    if target is not None:
        module, _, attribute = target.partition(":")
        return getattr(import_module(module), attribute)
    found = [point for point in entry_points(group="steproute.policies") if point.name == name]
    if not found:
        raise ConfigError(unknown_name("policy", name, policy_names()))
    return found[0].load()


def _parts(spec: str | Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Name, argument after the colon, settings."""
    settings = {} if isinstance(spec, str) else {str(key): value for key, value in spec.items()}
    full = spec if isinstance(spec, str) else str(settings.pop("name", None) or "")
    if not full and not isinstance(spec, str):
        raise ConfigError("policy: name: missing; it is required (`steproute policies` lists the names)")
    name, _, argument = full.partition(":")
    return name, argument, settings
