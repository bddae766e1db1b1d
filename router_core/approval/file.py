"""The approval file: which models may be paid for, how much may be spent, until when."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from steproute.errors import ConfigError
from steproute.models import Model, Price
from steproute.settings import Settings

FILE = "approval.yaml"
"""Where the approval is looked for, in the folder the command runs in."""
VARIABLE = "STEPROUTE_APPROVAL"
"""Environment variable that names another file."""


class ApprovalError(ConfigError):
    """A paid call that is not approved, or that the cap leaves no room for: says which file, what was seen, what to do."""


class Approval(Settings):
    """What `approval.yaml` says."""

    models: dict[str, Price | None] = Field(min_length=1)
    """Models that may be paid for, by name in the pool or by deployment; a list of names, or name → its price."""
    usd: float = Field(gt=0)
    """Most that all runs under this file may spend together."""
    live: bool = True
    """`false` switches every paid call off, whatever else the file says."""
    expires: date | datetime | None = None
    """Last day, or the moment, until which it holds (UTC)."""

    @field_validator("models", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            if not all(isinstance(name, str) and name for name in value):
                raise ValueError("allowed: names of models")
            return dict.fromkeys(value)
        if isinstance(value, Mapping):
            free = Price(input=0, output=0)
            return {str(name): free if price in ("free", 0) else price for name, price in value.items()}
        return value

    @property
    def until(self) -> float:
        """Unix time at which it ends; infinity = never."""
        if self.expires is None:
            return math.inf
        if isinstance(self.expires, datetime):
            given = self.expires if self.expires.tzinfo is not None else self.expires.replace(tzinfo=timezone.utc)
            return given.timestamp()
        day = datetime(self.expires.year, self.expires.month, self.expires.day, tzinfo=timezone.utc)
        return (day + timedelta(days=1)).timestamp()

    def prices(self, pool: Sequence[Model], where: str) -> dict[str, Price]:
        """What a call of each deployment costs: by the file where it says so, else by the pool.

        Raises:
            ApprovalError: a model is not named, or has no price a cap could be held with.
        """
        found: dict[str, Price] = {}
        for model in pool:
            name = next((key for key in (model.name, model.provider_name) if key in self.models), None)
            if name is None:
                raise ApprovalError(
                    f"{where}: models: {model.name!r} ({model.provider_name}) is not approved; "
                    f"named: {', '.join(self.models)}"
                )
            price = self.models[name]
            if price is None:
                if model.price == "unknown" or not costs(model.price):
                    raise ApprovalError(
                        f"{where}: models: {model.name!r} has {'no price' if model.price == 'unknown' else 'the price 0'}, "
                        "and a cap cannot be held without one; give it in steproute.yaml, or here as "
                        f"`{model.name}: {{input: …, output: …}}` in USD per million tokens, or `{model.name}: free`"
                    )
                price = model.price
            found[model.provider_name] = price
        return found


def costs(price: Price) -> bool:
    """Whether a call is paid for at all."""
    return price.input > 0 or price.output > 0


def read_approval(path: Path, now: float | None = None) -> Approval:
    """The approval in a file, if it holds now.

    Args:
        path: of the file.
        now: Unix time in seconds; None = the clock's.

    Raises:
        ApprovalError: there is none, it is malformed, switched off, or has expired.
    """
    import yaml

    from steproute.handwritten import read_yaml

    if not path.is_file():
        raise ApprovalError(
            f"{path}: missing: live paid calls are off until it names `models` and `usd`, the most they may spend "
            f"(set {VARIABLE} to use another file)"
        )
    try:
        data = read_yaml(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ApprovalError(f"{path}: cannot be read ({type(error).__name__})") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ApprovalError(f"{path}: is not YAML ({getattr(error, 'problem', None) or 'malformed'})") from None
    if not isinstance(data, dict):
        raise ApprovalError(f"{path}: seen a {type(data).__name__}; allowed: a mapping with `models` and `usd`")
    try:
        approval = Approval.model_validate({str(key): value for key, value in data.items()})
    except ValidationError as error:
        found = ConfigError.from_validation(str(path), error, Approval.model_fields)
        raise ApprovalError(str(found), found.problems) from None
    except ConfigError as error:
        raise ApprovalError(f"{path}: {error}") from None
    if not approval.live:
        raise ApprovalError(f"{path}: live: false: live paid calls are switched off")
    if (time.time() if now is None else now) >= approval.until:
        raise ApprovalError(f"{path}: expires: {approval.expires} has passed; renew it to make paid calls")
    return approval


def approval_file() -> Path:
    """The file of this session."""
    return Path(os.environ.get(VARIABLE) or FILE)
