"""What a host hands in, read so that nonsense is noted as a fault and never stops its call.

Each function gives back something sound. With `Faults(raising=True)` (tests) what is wrong raises `ConfigError` instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from steproute.decision import Decision
from steproute.errors import ConfigError, unknown_name
from steproute.faults import Faults
from steproute.ids import sound
from steproute.ledger import Evidence, Ledger, Outcome, Task
from steproute.models import Needs

_FLAGS = tuple(item.name for item in fields(Needs) if item.name != "context_tokens")
_NUMBERS = ("prompt_tokens", "completion_tokens", "cached_tokens", "usd", "seconds", "energy_j")
_NOTHING = Needs()
_MOST = 10**15
"""More tokens than any text has."""


def whole(faults: Faults, field: str, seen: Any) -> int | None:
    """A number of tokens; what is no finite number counts as not given."""
    if seen is None or (type(seen) is int and -_MOST < seen < _MOST):
        return seen
    found = number(faults, field, seen, _MOST)
    return None if found is None else int(found)


def counts_of(faults: Faults, field: str, seen: Any) -> dict[str, int]:
    """Tokens per model; entries that are no finite number are left out."""
    if not seen:
        return {}
    if not isinstance(seen, Mapping):
        with faults.kept(field):
            raise ConfigError(f"{field}: seen {_short(seen)}; allowed: model name → tokens")
        return {}
    return {name: found for name, value in seen.items() if (found := whole(faults, field, value)) is not None}


def number(faults: Faults, field: str, seen: Any, most: float = math.inf) -> float | None:
    """A finite number of that size at most; anything else counts as not given."""
    if seen is None:
        return None
    with faults.kept(field):
        try:
            found = float(seen)
        except (TypeError, ValueError, OverflowError):
            found = math.nan
        if not math.isfinite(found) or abs(found) > most or isinstance(seen, (str, bytes)):
            raise ConfigError(f"{field}: seen {_short(seen)}; allowed: a finite number")
        return found
    return None


def needs_of(faults: Faults, seen: Any) -> Needs:
    """Capabilities: a `Needs`, the names of some (`["tools"]`), or a mapping of its fields; what is unknown is left out."""
    if seen is None:
        return _NOTHING
    if isinstance(seen, Needs):
        if type(seen.context_tokens) is int:
            return seen
        return Needs(
            seen.tools, seen.vision, seen.structured, whole(faults, "needs.context_tokens", seen.context_tokens) or 0
        )
    given: dict[str, Any] = {}
    with faults.kept("needs"):
        if isinstance(seen, Mapping):
            given = dict(seen)
        elif isinstance(seen, (list, tuple, set, frozenset)):
            given = dict.fromkeys(seen, True)
        else:
            raise ConfigError(f"needs: seen {_short(seen)}; allowed: Needs(...), or names of {', '.join(_FLAGS)}")
    found: dict[str, Any] = {}
    for name, value in given.items():
        with faults.kept("needs"):
            if name == "context_tokens":
                found[name] = whole(faults, "needs.context_tokens", value) or 0
            elif name in _FLAGS:
                found[name] = bool(value)
            else:
                raise ConfigError(unknown_name("needs", str(name)[:80], [*_FLAGS, "context_tokens"]))
    return Needs(**found)


def names_of(faults: Faults, field: str, seen: Any) -> tuple[str, ...]:
    """Names of models; one alone needs no list."""
    if seen == ():
        return ()
    if isinstance(seen, str):
        return (seen,)
    if seen is None or not isinstance(seen, Iterable):
        with faults.kept(field):
            if seen is not None:
                raise ConfigError(f"{field}: seen {_short(seen)}; allowed: a list of names")
        return ()
    found = []
    for item in seen:
        with faults.kept(field):
            if not isinstance(item, str):
                raise ConfigError(f"{field}: seen {_short(item)}; allowed: names of models")
            found.append(item)
    return tuple(found)


def task_of(seen: Any) -> Ledger | Task | str:
    """The task a call belongs to; a whole number is read as its id.

    Raises:
        ConfigError: it is something else: without a task there is nothing to decide.
    """
    if isinstance(seen, (str, Ledger, Task)):
        return seen
    if isinstance(seen, int):
        return str(seen)
    raise ConfigError(f"ledger: seen {_short(seen)}; allowed: a Ledger, a Task, or the task's id as text")


def id_of(seen: Any) -> str:
    """A task's id as `decide` knows it, from whatever `decide` takes for the task."""
    if isinstance(seen, (Ledger, Task)):
        return seen.task.id if isinstance(seen, Ledger) else seen.id
    return sound(seen if isinstance(seen, str) else str(seen))


def evidence_of(faults: Faults, seen: Any) -> list[Evidence]:
    """The items that are evidence."""
    if type(seen) in (list, tuple) and all(isinstance(item, Evidence) for item in seen):
        return list(seen)
    if isinstance(seen, Evidence):
        return [seen]
    if not isinstance(seen, Iterable) or isinstance(seen, (str, bytes, Mapping)):
        with faults.kept("evidence"):
            if seen is not None:
                raise ConfigError(f"evidence: seen {_short(seen)}; allowed: a list of Evidence(...)")
        return []
    found = []
    for item in seen:
        with faults.kept("evidence"):
            if not isinstance(item, Evidence):
                raise ConfigError(f"evidence: seen {_short(item)}; allowed: Evidence(source=…, score=0 to 1, count=…)")
            found.append(item)
    return found


def mend(faults: Faults, decision: Any, outcome: Any) -> None:
    """Put amounts that are no amounts (set after the outcome was made) to unknown, in place: one of them would keep the
    whole call from being billed.

    Raises:
        ConfigError: it is no call at all: there is nothing to bill, or nobody to bill it to.
    """
    if not isinstance(decision, Decision):
        raise ConfigError(f"decision: seen {_short(decision)}; allowed: what `decide` or `book` returned")
    if not isinstance(outcome, Outcome):
        raise ConfigError(f"outcome: seen {_short(outcome)}; allowed: Outcome(...)")
    for name in _NUMBERS:
        value = getattr(outcome, name)
        if value is None or (isinstance(value, (int, float)) and 0 <= value < math.inf):
            continue
        setattr(outcome, name, None if name in ("usd", "energy_j") else 0)
        with faults.kept("outcome"):
            raise ConfigError(f"outcome.{name}: seen {_short(value)}; allowed: a finite number, 0 or more")
    for name, value in list(outcome.amounts.items()) if outcome.amounts else ():
        if not (isinstance(value, (int, float)) and 0 <= value < math.inf):
            del outcome.amounts[name]
            with faults.kept("outcome"):
                raise ConfigError(f"outcome.amounts.{name}: seen {_short(value)}; allowed: a finite number, 0 or more")


def reward_of(faults: Faults, success: Any, reward: Any) -> float | None:
    """The final reward in [0, 1]; one that is none counts as unknown."""
    seen = reward if reward is not None else success
    if seen is None or isinstance(seen, bool):
        return None if seen is None else float(seen)
    found = number(faults, "reward" if reward is not None else "success", seen)
    if found is None or 0 <= found <= 1:
        return found
    with faults.kept("finish"):
        raise ConfigError(f"reward: seen {found!r}; allowed: 0 to 1")
    return None


def _short(seen: Any) -> str:
    """Numbers are shown, of anything else its type alone: it may hold the user's text."""
    return repr(seen) if isinstance(seen, (int, float)) else f"a {type(seen).__name__}"
