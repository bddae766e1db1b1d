"""Which models answer at all: one whose provider is out or refuses more calls rests at once, one that fails in a row soon."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_OUT = re.compile(
    r"\b(?:429|502|503|504|529)\b|rate.?limit|too many requests|overloaded|service unavailable|bad gateway"
    r"|connect failed|connection (?:error|refused|reset|aborted)|APIConnectionError|ConnectError",
    re.IGNORECASE,
)
_RETRY = re.compile(r"(?:retry|try again)[ _-]?(?:after|in)\W{0,3}(\d+(?:\.\d+)?) ?(ms|m(?!s)|s)?", re.IGNORECASE)
RECOVERY_S = 60.0
"""Without calls, half of what availability lost comes back in so many seconds."""
MEMORY = 0.8
"""Weight of what was known of availability before the latest call."""


@dataclass(slots=True)
class _Record:
    failures: int = 0
    until: float = 0.0
    out: bool = False
    """The latest failure was an outage or a rate limit."""


@dataclass(slots=True)
class _Share:
    answered: float
    at: float


class Health:
    """Counts failures in a row per model; one answer ends them.

    The third failure leads to a rest, an outage or a rate limit the first, and each more doubles it. After the rest one call
    tries the model; the others follow when it has answered.
    """

    def __init__(
        self, clock: Callable[[], float], cooldown_s: float = 30.0, allowed: int = 3, longest_s: float = 600.0
    ):
        """Start with every model healthy.

        Args:
            clock: gives the time in seconds.
            cooldown_s: first rest in seconds; 0 = a model never rests.
            allowed: failures in a row that lead to a rest, at least 1.
            longest_s: longest rest in seconds.
        """
        self._clock, self._cooldown, self._allowed, self._longest = clock, cooldown_s, allowed, longest_s
        self._records: dict[str, _Record] = {}
        self._shares: dict[str, _Share] = {}

    def note(self, model: str, failed: bool, at: float | None = None, error: str | None = None) -> None:
        """Take in how a call went.

        Args:
            model: its name.
            failed: whether there was no answer.
            at: when, in seconds of the clock; None = now.
            error: what the failure said; an outage or a rate limit is known by its words.
        """
        now = self._clock() if at is None else at
        if failed or model in self._shares:
            share = self.availability(model, now)
            self._shares[model] = _Share(MEMORY * share + (1 - MEMORY) * (not failed), now)
        if not failed:
            self._records.pop(model, None)
            return
        record = self._records.setdefault(model, _Record())
        record.failures += 1
        record.out = is_outage(error)
        allowed = 1 if record.out else self._allowed
        if self._cooldown > 0 and record.failures >= allowed:
            doubled = min(record.failures - allowed, 20)
            rest = min(self._cooldown * 2**doubled, self._longest)
            record.until = now + max(rest, min(retry_after_s(error), self._longest))

    def state(self) -> dict[str, Any]:
        """Models that failed last, as plain JSON values."""
        records = {name: [record.failures, record.until, record.out] for name, record in self._records.items()}
        return {
            "records": records,
            "shares": {name: [share.answered, share.at] for name, share in self._shares.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
        records = {str(name): _Record(int(n), float(u), bool(out)) for name, (n, u, out) in state["records"].items()}
        self._shares = {str(name): _Share(float(share), float(at)) for name, (share, at) in state["shares"].items()}
        self._records = records

    def rests(self, model: str, tried: bool = False) -> str:
        """Why a model is not to be used for now; empty when it may be.

        Args:
            model: its name.
            tried: whether a call to it is on its way.
        """
        record = self._records.get(model)
        if record is None or record.until == 0.0:
            return ""
        now = self._clock()
        if record.until > now:
            what = "is out or refuses calls" if record.out else f"failed {record.failures} times in a row"
            return f"{what}; rests for {record.until - now:.0f} s more"
        return "a first call after its rest is on its way" if tried else ""

    @property
    def perfect(self) -> bool:
        """Whether every model has answered every call, as far as is remembered."""
        return not self._records and not self._shares

    def returned(self, model: str) -> float | None:
        """When the rest of a model that has not answered since ended or will end; None when it had none."""
        record = self._records.get(model)
        return record.until if record is not None and record.until > 0.0 else None

    def availability(self, model: str, now: float | None = None) -> float:
        """Share of calls that get an answer, in (0, 1]: the latest count most, and time heals."""
        share = self._shares.get(model)
        if share is None:
            return 1.0
        passed = max((self._clock() if now is None else now) - share.at, 0.0)
        healed: float = 0.5 ** (passed / RECOVERY_S)
        return 1.0 - (1.0 - share.answered) * healed


def is_outage(error: str | None) -> bool:
    """Whether a failure says that nobody is there, or that the provider takes no more calls for now."""
    return error is not None and _OUT.search(error) is not None


def retry_after_s(error: str | None) -> float:
    """How long a failure's text asks to wait, in seconds; 0 where it does not say."""
    found = None if error is None else _RETRY.search(error)
    if found is None:
        return 0.0
    return float(found[1]) * {"ms": 0.001, "m": 60.0}.get(found[2] or "s", 1.0)
