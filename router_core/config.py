"""Read `steproute.yaml`: models, budget, policy and the router's own settings; unknown keys are refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from steproute.budget import Budget
from steproute.errors import ConfigError
from steproute.models import Model, ModelPool
from steproute.policies.registry import make_policy


class RouterSettings(BaseModel):
    """The keys of `steproute.yaml`."""

    model_config = ConfigDict(extra="forbid")

    models: list[dict[str, Any]] = Field(min_length=1)
    """One mapping per model, see `Model`."""
    default: str | None = None
    """Model used when the router itself fails."""
    budget: dict[str, Any] = Field(default_factory=dict)
    """See `Budget`."""
    policy: str | dict[str, Any] | None = None
    """A name, or `name` and settings."""
    explore: float | None = None
    seed: int | None = None
    idle_timeout: float | None = None


def load_config(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for `Router` from a YAML file or a mapping.

    Raises:
        ConfigError: names the field, what was seen and what is allowed; for an unknown key the nearest right one.
    """
    where = "config"
    if isinstance(source, Mapping):
        data: Any = dict(source)
    else:
        import yaml

        where = str(source)
        try:
            data = yaml.safe_load(Path(source).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{where}: cannot be read ({error.strerror})") from None
        except yaml.YAMLError as error:
            raise ConfigError(f"{where}: is not YAML ({str(error).splitlines()[0]})") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: seen {type(data).__name__}; allowed: a mapping with the key `models`")
    try:
        settings = RouterSettings(**data)
    except ValidationError as error:
        raise ConfigError.from_validation(where, error, {"": list(RouterSettings.model_fields)}) from None
    arguments: dict[str, Any] = {
        "models": ModelPool((Model(**item) for item in settings.models), default=settings.default),
        "budget": Budget(**settings.budget),
    }
    if settings.policy is not None:
        arguments["policy"] = make_policy(settings.policy)
    for name in ("explore", "seed", "idle_timeout"):
        if getattr(settings, name) is not None:
            arguments[name] = getattr(settings, name)
    return arguments
