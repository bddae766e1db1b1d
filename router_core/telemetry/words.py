"""Texts and numbers that may leave the process: short, without keys, of few kinds where they name a metric."""

from __future__ import annotations

import re
from functools import lru_cache

from steproute.decision import Decision
from steproute.redact import redact
from steproute.taskstate import printable

LONGEST = 200
"""Characters of an id, a role or a reason."""
LONGEST_PROMPT = 20_000
"""Characters of a prompt or an output, where they are asked for."""

_KINDS = (
    ("rate_limit", re.compile(r"\b429\b|rate.?limit|too many requests|quota", re.IGNORECASE)),
    ("timeout", re.compile(r"time[sd]?.?out|\b408\b|\b504\b", re.IGNORECASE)),
    ("content_filter", re.compile(r"content.?(?:filter|policy)", re.IGNORECASE)),
    ("auth", re.compile(r"\b40[13]\b|unauthori[sz]ed|authentication|permission", re.IGNORECASE)),
    ("connection", re.compile(r"connect", re.IGNORECASE)),
    ("server", re.compile(r"\b5\d\d\b|overloaded|bad gateway|unavailable|internal server", re.IGNORECASE)),
    ("request", re.compile(r"\b4\d\d\b|bad ?request|invalid", re.IGNORECASE)),
)
OTHER = "_OTHER"
"""OpenTelemetry's word for an error of no known kind."""


def error_kind(error: str) -> str:
    """Which of a few kinds a failure is of: `rate_limit`, `timeout`, `content_filter`, `auth`, `connection`, `server`,
    `request`, `_OTHER`. Its text may quote the user and is not for metrics."""
    return next((kind for kind, pattern in _KINDS if pattern.search(error)), OTHER)


@lru_cache(maxsize=4096)
def word(text: str) -> str:
    """An id, a role or a reason as it may be shown."""
    return printable(redact(text))[:LONGEST]


def prose(text: str) -> str:
    """A prompt or an output, where they are asked for: without what looks like a key."""
    return printable(redact(text))[:LONGEST_PROMPT]


def kind_of(decision: Decision, pinned: bool) -> str:
    """How a decision came about: `stop`, `fallback`, `pinned`, `explored` or `best`."""
    if decision.stop:
        return "stop"
    if decision.fallback:
        return "fallback"
    if pinned:
        return "pinned"
    return "explored" if decision.explored else "best"


def regret_estimate(decision: Decision) -> float:
    """How much less the chosen model is worth than the best candidate, by the policy's own scores; 0 = nothing.

    A bonus for exploration (the term `exploration` of a score that is the sum of its terms) is no worth and left out. It is
    an estimate: what the others would have reached was not seen.
    """
    values: dict[str, float] = {}
    for item in decision.candidates:
        if item.score is None:
            continue
        terms = item.terms
        bonus = terms.get("exploration", 0.0)
        adds_up = abs(sum(terms.values()) - item.score) <= 1e-3 * max(1.0, abs(item.score))
        values[item.model] = item.score - bonus if bonus and adds_up else item.score
    chosen = values.get(decision.model.name)
    if chosen is None or decision.stop or decision.fallback:
        return 0.0
    gap = max(values.values()) - chosen
    return gap if 0 < gap < float("inf") else 0.0
