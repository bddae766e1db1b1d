"""Base of everything a user sets: no unknown keys, finite numbers, and errors that name the field."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from steproute.errors import ConfigError


class Settings(BaseModel):
    """Frozen settings; a wrong value raises `ConfigError` instead of pydantic's own error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            where = type(self).__qualname__.removesuffix(".Config")
            if isinstance(name := data.get("name"), str):
                where += f" {name!r}"
            raise ConfigError.from_validation(where, error, type(self).model_fields) from None
