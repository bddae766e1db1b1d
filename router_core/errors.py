"""Errors: the caller's mistakes, and what goes wrong at run time. All are `SteprouteError`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from steproute.redact import redact


class SteprouteError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(SteprouteError, ValueError):
    """A setting is wrong: the message names the field, what was seen and what is allowed."""

    def __init__(self, message: str, problems: Iterable[str] = ()):
        """Keep the message, and the single problems where there are several."""
        super().__init__(message)
        self.problems = tuple(problems) or (message,)

    @classmethod
    def from_validation(cls, where: str, error: ValidationError, names: Iterable[str]) -> ConfigError:
        """Turn a pydantic error into one phrase per problem, with the nearest right name for an unknown key.

        Args:
            where: what was being read, e.g. `"steproute.yaml"` or `"Model"`.
            error: pydantic's error.
            names: the fields there are, to suggest from.
        """
        allowed = list(names)
        problems: dict[str, None] = {}
        for item in error.errors(include_url=False):
            path = ".".join(str(part) for part in item["loc"])
            at = f"{path}: " if path else ""
            cause = item.get("ctx", {}).get("error")
            if isinstance(cause, ConfigError):  # a nested setting has already said what is wrong
                problems.update(dict.fromkeys(f"{path}.{line}" if path else line for line in cause.problems))
            elif item["type"] == "extra_forbidden":
                problems[unknown_name(path, str(item["loc"][-1]), allowed)] = None
            elif item["type"] == "missing":
                problems[f"{at}missing; it is required"] = None
            elif isinstance(cause, ValueError):
                problems[f"{at}{cause}"] = None
            else:
                seen = repr(item["input"])
                problems[f"{at}{item['msg']}; seen {seen if len(seen) <= 120 else seen[:119] + '…'}"] = None
        lines = [redact(line) for line in problems]
        return cls(f"{where}: " + "; ".join(lines), lines)


class LedgerError(SteprouteError, ValueError):
    """A ledger cannot be read: malformed JSON, a missing field, a newer schema."""


class StoreError(SteprouteError):
    """A store cannot be opened, read or kept: says which, what was seen and what to do."""


class NoEligibleModel(SteprouteError):
    """No model of the pool may serve this step; the message says why each was left out."""

    def __init__(self, role: str, reasons: Mapping[str, str]):
        self.role = role
        self.reasons = dict(reasons)
        detail = "; ".join(f"{name}: {reason}" for name, reason in self.reasons.items()) or "the pool is empty"
        super().__init__(f"no model is eligible for role {role!r} ({detail})")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its parts: an error that cannot be read back hangs a pool of processes."""
        return NoEligibleModel, (self.role, self.reasons)


class BudgetExceeded(SteprouteError):
    """A hard limit leaves no model that fits: says which limit, what is spent and what was asked."""

    def __init__(
        self, resource: str, limit: float, spent: float, reserved: float, asked: float, task: str, payer: str = ""
    ):
        """Tell of a limit.

        Args:
            resource: what is limited.
            limit: how much there is.
            spent: how much is gone.
            reserved: how much calls in flight hold.
            asked: what the call may take.
            task: id of the task that asked.
            payer: id of the parent whose limit it is; empty = the task's own.
        """
        self.resource, self.limit, self.task, self.payer = resource, limit, task, payer or task
        self.spent, self.reserved, self.asked = spent, reserved, asked
        whose = f" of its parent {payer!r}" if self.payer != task else ""
        super().__init__(
            f"task {task!r}: hard limit {resource}={limit:g}{whose} reached: spent {spent:g}, "
            f"reserved by calls in flight {reserved:g}, the cheapest candidate asks {asked:g}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its parts, see `NoEligibleModel`."""
        return BudgetExceeded, (
            self.resource, self.limit, self.spent, self.reserved, self.asked, self.task, self.payer,
        )  # fmt: skip


def unknown_name(field: str, seen: str, allowed: Iterable[str]) -> str:
    """One phrase for a name that does not exist, with the nearest one that does."""
    names = sorted(allowed)
    near = difflib.get_close_matches(seen, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{field}: unknown name {seen!r}; {hint}allowed: {', '.join(names) or 'none'}"
