"""Errors: the caller's mistakes, and what goes wrong at run time. All are `SteprouteError`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from pydantic import ValidationError


class SteprouteError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(SteprouteError, ValueError):
    """A setting is wrong: the message names the field, what was seen and what is allowed."""

    @classmethod
    def from_validation(cls, where: str, error: ValidationError, allowed: Mapping[str, Iterable[str]]) -> ConfigError:
        """Turn a pydantic error into one line per problem, with the nearest right name for an unknown key.

        Args:
            where: what was being read, e.g. `"steproute.yaml"` or `"Model"`.
            error: pydantic's error.
            allowed: field names per location prefix (`""` is the top level), to suggest from.
        """
        lines = []
        for item in error.errors(include_url=False):
            path = ".".join(str(part) for part in item["loc"]) or where
            if item["type"] == "extra_forbidden":
                prefix = ".".join(str(part) for part in item["loc"][:-1] if not isinstance(part, int))
                names = list(allowed.get(prefix, allowed.get("", ())))
                lines.append(unknown_name(path, str(item["loc"][-1]), names))
            elif item["type"] == "missing":
                lines.append(f"{path}: missing; it is required")
            else:
                lines.append(f"{path}: {item['msg']}; seen {item['input']!r}"[:300])
        return cls(f"{where}: " + "; ".join(lines))


class LedgerError(SteprouteError, ValueError):
    """A ledger cannot be read: malformed JSON, a missing field, a newer schema."""


class NoEligibleModel(SteprouteError):
    """No model of the pool may serve this step; the message says why each was left out."""

    def __init__(self, role: str, reasons: Mapping[str, str]):
        self.role = role
        self.reasons = dict(reasons)
        detail = "; ".join(f"{name}: {reason}" for name, reason in self.reasons.items()) or "the pool is empty"
        super().__init__(f"no model is eligible for role {role!r} ({detail})")


class BudgetExceeded(SteprouteError):
    """A hard limit leaves no model that fits: says which limit, what is spent and what was asked."""

    def __init__(self, resource: str, limit: float, spent: float, reserved: float, asked: float, task: str):
        self.resource, self.limit, self.spent, self.reserved, self.asked, self.task = (
            resource,
            limit,
            spent,
            reserved,
            asked,
            task,
        )
        super().__init__(
            f"task {task!r}: hard limit {resource}={limit:g} reached: spent {spent:g}, "
            f"reserved by calls in flight {reserved:g}, the cheapest candidate asks {asked:g}"
        )


def unknown_name(field: str, seen: str, allowed: Iterable[str]) -> str:
    """One phrase for a name that does not exist, with the nearest one that does."""
    names = sorted(allowed)
    near = difflib.get_close_matches(seen, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{field}: unknown name {seen!r}; {hint}allowed: {', '.join(names) or 'none'}"
