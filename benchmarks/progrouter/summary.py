"""Runs summed up: the budget first, then quality, joules and seconds among those within it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steproute.benchmarks.progrouter.methods import Phase, Run
from steproute.benchmarks.statistics import mean_interval

MEASURES = ("quality", "energy_j", "seconds", "calls")


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds and half the width of its 95 % interval (Student's t)."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """From one value per seed."""
        mean, _, half = mean_interval(values)
        return cls(mean, half)


@dataclass(frozen=True)
class Row:
    """One method in one phase."""

    method: str
    values: Mapping[str, Estimate]
    """By the names of `MEASURES`."""
    family: Mapping[str, Estimate]
    size: Mapping[str, Estimate]
    feasible: bool
    """Its mean energy is within the budget."""
    sure: bool
    """The whole interval is on that side; never with one seed, which has none."""
    best: tuple[str, ...] = ()
    """Measures in which no other feasible method is better."""


def summarise(runs: Sequence[Run], target_j: float, phase: str = "steady") -> list[Row]:
    """One row per method: those within the budget first, by quality; then the others, by energy.

    Args:
        runs: all methods, the same seeds.
        target_j: budget, joules per task on average.
        phase: `steady` or `cold`.
    """
    by_method: dict[str, list[Phase]] = {}
    for item in runs:
        by_method.setdefault(item.method, []).append(item.steady if phase == "steady" else item.cold)
    rows = [_row(method, phases, target_j) for method, phases in by_method.items()]
    inside = sorted((row for row in rows if row.feasible), key=lambda row: -row.values["quality"].mean)
    outside = sorted((row for row in rows if not row.feasible), key=lambda row: row.values["energy_j"].mean)
    return [_marked(row, inside) for row in inside] + outside


def front(rows: Sequence[Row]) -> list[str]:
    """Methods that no other beats in both quality and energy, by rising energy."""
    best, names = -1.0, []
    for row in sorted(rows, key=lambda row: (row.values["energy_j"].mean, -row.values["quality"].mean)):
        if row.values["quality"].mean > best:
            best = row.values["quality"].mean
            names.append(row.method)
    return names


def as_dict(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Plain JSON values."""

    def plain(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, float]]:
        return {name: {"mean": value.mean, "ci95": value.half} for name, value in estimates.items()}

    return [
        {
            "method": row.method,
            "feasible": row.feasible,
            "sure": row.sure,
            "best": list(row.best),
            **plain(row.values),
            "family": plain(row.family),
            "size": plain(row.size),
        }
        for row in rows
    ]


def _row(method: str, phases: Sequence[Phase], target_j: float) -> Row:
    values = {name: Estimate.of([getattr(phase, name) for phase in phases]) for name in MEASURES}
    energy = values["energy_j"]
    return Row(
        method,
        values,
        {name: Estimate.of([phase.family[name] for phase in phases]) for name in phases[0].family},
        {name: Estimate.of([phase.size[name] for phase in phases]) for name in phases[0].size},
        energy.mean <= target_j,
        len(phases) > 1 and abs(energy.mean - target_j) > energy.half,
    )


def _marked(row: Row, inside: Sequence[Row]) -> Row:
    best = []
    for name in ("quality", "energy_j", "seconds"):
        sign = -1 if name == "quality" else 1
        if all(sign * row.values[name].mean <= sign * other.values[name].mean for other in inside):
            best.append(name)
    return Row(row.method, row.values, row.family, row.size, row.feasible, row.sure, tuple(best))
