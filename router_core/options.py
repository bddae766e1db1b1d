"""The router's keyword arguments: their types for other places that pass them on, and the checks of their values."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from steproute.budget import BUILT_IN, Budget
from steproute.choice import Facts
from steproute.errors import ConfigError, unknown_name
from steproute.learning import Reliability
from steproute.metering import Meter
from steproute.models import Model, ModelPool
from steproute.policies import Policy
from steproute.predict import GainEstimator
from steproute.progress import View, Weights

if TYPE_CHECKING:
    from steproute.store import Store
    from steproute.telemetry import Telemetry

logger = logging.getLogger("steproute")


class RouterOptions(TypedDict, total=False):
    """Arguments of `Router`."""

    models: Iterable[Model] | ModelPool
    budget: Budget | None
    policy: str | Mapping[str, Any] | Policy
    estimator: GainEstimator | None
    reliability: Reliability | None
    views: Mapping[str, View] | None
    weights: Weights
    explore: float
    seed: int | None
    idle_timeout: float
    cooldown_s: float
    facts: Facts | None
    meter: Meter | str | None
    store: Store | str | Path | None
    telemetry: Telemetry | Mapping[str, Any] | bool | None
    on_error: Literal["fallback", "raise"]
    clock: Callable[[], float]


def check_options(
    pool: ModelPool,
    budget: Budget,
    policy: Policy,
    explore: float,
    idle_timeout: float,
    cooldown_s: float,
    on_error: str,
) -> None:
    """Refuse settings that cannot work, and warn of limits that cannot be held before a call.

    Raises:
        ConfigError: names the setting, what was seen and what is allowed.
    """
    if not isinstance(budget, Budget):
        raise ConfigError(f"budget: seen {budget!r}; allowed: Budget(...) or None")
    if not 0 <= explore < 1:
        raise ConfigError(f"explore: seen {explore!r}; allowed: at least 0 and below 1")
    if not idle_timeout > 0:
        raise ConfigError(f"idle_timeout: seen {idle_timeout!r}; allowed: seconds above 0")
    if not 0 <= cooldown_s < math.inf:
        raise ConfigError(f"cooldown_s: seen {cooldown_s!r}; allowed: seconds of 0 or more")
    if on_error not in ("fallback", "raise"):
        raise ConfigError(unknown_name("on_error", str(on_error), ("fallback", "raise")))
    if hasattr(policy, "check"):
        policy.check(pool.names)
    _check_memory(pool, budget)
    hard = [name for name, limit in budget.limits().items() if limit.hard and limit.limit is not None]
    if "usd" in hard and all(model.price == "unknown" for model in pool):
        raise ConfigError(
            "budget.usd: a hard limit needs prices, and every model has price='unknown'; "
            "give a Price, or make the limit soft: Limit(limit=..., hard=False)"
        )
    for resource in hard:
        blind = [model.name for model in pool if not foreseen(model, resource)]
        if blind:
            logger.warning(
                "steproute: hard limit on %s: no profile says what a call of %s takes; until calls have shown it, "
                "only what was spent is checked, and one call may pass the limit",
                resource,
                ", ".join(blind),
            )


def _check_memory(pool: ModelPool, budget: Budget) -> None:
    room = budget.vram_gb
    for model in pool:
        most = room.get(model.serving.server) if isinstance(room, Mapping) else room
        needed = model.serving.vram_gb
        if most is not None and needed is not None and needed > most:
            raise ConfigError(f"budget.vram_gb: {model.name} needs {needed:g} GB; there are {most:g}")


def foreseen(model: Model, resource: str) -> bool:
    """Whether a model's price and profile tell what a call takes of a resource."""
    profile = model.profile
    if resource == "seconds":
        return profile.seconds(1, 1) > 0
    if resource == "energy_j":
        return (profile.energy_j(1, 1) or 0) > 0 or profile.decode_j_per_token == 0
    return resource in profile.amounts if resource not in BUILT_IN else True
