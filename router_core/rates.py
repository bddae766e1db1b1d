"""Sensitivity and specificity of evidence sources: Beta posteriors that inherit from coarse to fine.

Levels: source → (source, domain) → (source, domain, number of checks). Each level is told only by what its child did not
see itself, so that no outcome counts twice: the source by other domains, the domain by other numbers of checks. A level
moves its child's prior by the log odds of what it saw over what was expected of it, each with `strength` outcomes of
prior; the child then counts that prior as `strength` outcomes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

BUCKETS = (1, 2, 4, 8, 16)
"""Numbers of checks that open a bucket: 1, 2–3, 4–7, 8–15, 16 and more."""

Cell = list[int]
"""[right and passed, right, wrong and failed, wrong]."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What is believed of one source in one domain with one number of checks."""

    sensitivity: float
    """P(pass | right)."""
    specificity: float
    """P(fail | wrong)."""
    sensitivity_sd: float
    specificity_sd: float
    seen: int
    """Outcomes behind it in this domain and bucket."""

    def odds(self, passed: bool) -> float:
        """Log likelihood ratio of right to wrong that a verdict carries."""
        if passed:
            return math.log(self.sensitivity / (1 - self.specificity))
        return math.log((1 - self.sensitivity) / self.specificity)


class RateTable:
    """Counts of verdicts against outcomes, and the rates that follow."""

    def __init__(self, prior: Callable[[str, int], tuple[float, float]], strength: float):
        """Start from prior rates.

        Args:
            prior: sensitivity and specificity of a source that made n checks, before anything was seen, within (0, 1).
            strength: how many outcomes an inherited opinion is worth.
        """
        self._prior, self._strength = prior, strength
        self.counts: dict[str, dict[str, list[Cell]]] = {}
        """Source → domain → one cell per bucket."""
        self._known: dict[tuple[str, str, int], Rates] = {}

    def add(self, source: str, domain: str, bucket: int, passed: bool, right: bool) -> None:
        """Count one verdict. The rates follow at the next `refresh`."""
        cell = self.counts.setdefault(source, {}).setdefault(domain, [[0] * 4 for _ in BUCKETS])[bucket]
        cell[0 if right else 2] += passed == right
        cell[1 if right else 3] += 1

    def refresh(self) -> None:
        """Forget rates worked out before the latest counts."""
        self._known.clear()

    def rates(self, source: str, domain: str, bucket: int) -> Rates:
        """Posterior rates of a source in a domain for one bucket of numbers of checks."""
        key = (source, domain, bucket)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._work_out(source, domain, bucket)
        return found

    def _work_out(self, source: str, domain: str, bucket: int) -> Rates:
        domains, empty = self.counts.get(source, {}), [0, 0, 0, 0]
        others = [cells for name, cells in domains.items() if name != domain]
        elsewhere = [[sum(cells[b][i] for cells in others) for i in range(4)] for b in range(len(BUCKETS))]
        cells = domains.get(domain, [empty] * len(BUCKETS))
        beside = [empty if b == bucket else cell for b, cell in enumerate(cells)]
        priors = [self._prior(source, n) for n in BUCKETS]
        own, k = cells[bucket], self._strength
        means, spreads = [], []
        for side in (0, 1):
            chain = [prior[side] for prior in priors]
            for level in (elsewhere, beside):
                chain = inherit(chain, [(cell[2 * side], cell[2 * side + 1]) for cell in level], k)
            hits, misses = own[2 * side], own[2 * side + 1] - own[2 * side]
            a, b = hits + k * chain[bucket], misses + k * (1 - chain[bucket])
            means.append(a / (a + b))
            spreads.append(math.sqrt(a * b / (a + b + 1)) / (a + b))
        return Rates(means[0], means[1], spreads[0], spreads[1], own[1] + own[3])


def inherit(priors: Sequence[float], seen: Sequence[tuple[int, int]], strength: float) -> list[float]:
    """Move the priors of all buckets by what a level saw over all of them.

    Args:
        priors: rate per bucket, within (0, 1).
        seen: per bucket how often the rate's event came, and out of how many.
        strength: how many outcomes the prior is worth.

    Returns:
        expit(logit p + logit (H + k·p)/(N + k) − logit (E + k·p)/(N + k)) per bucket, with H the events seen, E those
        expected and N the outcomes.
    """
    n = sum(size for _, size in seen)
    if not n:
        return list(priors)
    hits = sum(hit for hit, _ in seen)
    expected = sum(size * prior for (_, size), prior in zip(seen, priors, strict=True))
    moved = []
    for prior in priors:
        observed, foreseen = hits + strength * prior, expected + strength * prior
        total = n + strength
        moved.append(expit(logit(prior) + logit(observed / total) - logit(foreseen / total)))
    return moved


def bucket_of(count: int) -> int:
    """Bucket of a number of checks, at least 1."""
    return bisect_right(BUCKETS, count) - 1


def logit(p: float) -> float:
    """Log odds."""
    return math.log(p / (1 - p))


def expit(odds: float) -> float:
    """Probability of log odds, kept within (1e-9, 1 − 1e-9)."""
    p = 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0
    return min(max(p, 1e-9), 1 - 1e-9)


def plain(counts: Mapping[str, Mapping[str, Sequence[Sequence[int]]]]) -> dict[str, dict[str, list[Cell]]]:
    """A checked copy of counts as JSON gave them.

    Raises:
        ValueError: a cell is malformed.
    """
    copy: dict[str, dict[str, list[Cell]]] = {}
    for source, domains in counts.items():
        for domain, cells in domains.items():
            rows = [[int(value) for value in cell] for cell in cells]
            sound = len(rows) == len(BUCKETS) and all(
                len(row) == 4 and 0 <= row[0] <= row[1] and 0 <= row[2] <= row[3] for row in rows
            )
            if not sound:
                raise ValueError(f"{source!r} in {domain!r}: seen {cells!r}; allowed: {len(BUCKETS)} cells of 4 counts")
            copy.setdefault(source, {})[domain] = rows
    return copy
