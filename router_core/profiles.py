"""Fitting a model's profile to measured calls, and the file that profiles are kept in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steproute.errors import ConfigError
from steproute.models import Profile

Floats = npt.NDArray[np.float64]
TOLERANCE = 0.05
"""Relative deviation up to which a call counts in full; beyond, an outlier counts less (Huber)."""
RESAMPLES = 200


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured call."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    seconds: float = 0.0
    """Of the whole call, as its caller saw it."""
    load_s: float = 0.0
    prefill_s: float | None = None
    """Where the server tells its phases: time on the prompt."""
    decode_s: float | None = None
    joules: float | None = None

    @property
    def warm_s(self) -> float:
        """Seconds without the load."""
        return max(self.seconds - self.load_s, 0.0)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Predicted against measured on calls that were not fitted, as |predicted/measured − 1|."""

    calls: int
    median: float
    worst: float


def fit_profile(samples: Sequence[Sample], source: str = "", seed: int = 0) -> Profile:
    """Fit seconds, and joules where they were measured, to calls of one model.

    Coefficients are non-negative and minimise relative deviations, outliers counting less; intervals are the 2.5 and 97.5 %
    quantiles over calls drawn with replacement. Cold calls give the load, and their phases count like others.

    Args:
        samples: at least 4 calls of different lengths.
        source: what to note as the origin.
        seed: of the resampling.

    Raises:
        ConfigError: too few calls, or all of one length.
    """
    if len(samples) < 4 or len({(s.prompt_tokens, s.completion_tokens) for s in samples}) < 3:
        raise ConfigError(f"profile: seen {len(samples)} calls; needed: at least 4, of 3 different lengths")
    fitted = _seconds(samples, seed)
    cold = [s.load_s for s in samples if s.load_s > 0]
    if cold:
        fitted["load_s"] = _interval(_median(cold), cold)
    metered = [s for s in samples if s.joules is not None]
    warm = [s for s in metered if s.load_s == 0]
    if len(warm) >= 4:
        fitted |= _joules(warm, seed)
    values = {name: found[0] for name, found in fitted.items()}
    intervals = {name: (found[1], found[2]) for name, found in fitted.items()}
    whole: dict[str, Any] = {**values, "intervals": intervals, "source": source}
    profile = Profile(**whole)
    if len(warm) >= 4 and len(metered) > len(warm):
        more = [
            (s.joules or 0.0) - (profile.energy_j(s.prompt_tokens, s.completion_tokens, s.cached_tokens) or 0.0)
            for s in metered
            if s.load_s > 0
        ]
        low, high = max(min(more), 0.0), max(*more, 0.0)
        update = {"load_j": max(_median(more), 0.0), "intervals": {**intervals, "load_j": (low, high)}}
        profile = profile.model_copy(update=update)
    return profile


def accuracy(profile: Profile, samples: Sequence[Sample], what: str = "seconds") -> Accuracy | None:
    """How far a profile is from measured warm calls; None without any.

    Args:
        profile: the prediction.
        samples: calls it was not fitted to.
        what: `seconds` or `energy_j`.
    """
    errors = []
    for s in samples:
        tokens = (s.prompt_tokens, s.completion_tokens, s.cached_tokens)
        measured = s.warm_s if what == "seconds" else s.joules
        predicted = profile.seconds(*tokens) if what == "seconds" else profile.energy_j(*tokens)
        if measured and predicted is not None and (what == "seconds" or s.load_s == 0):
            errors.append(abs(predicted / measured - 1))
    return Accuracy(len(errors), _median(errors), max(errors)) if errors else None


# --- the file ------------------------------------------------------------------------------------------------


def write_profiles(path: Path, profiles: Mapping[str, Profile]) -> None:
    """Write profiles as YAML, into what the file holds of other models."""
    import yaml

    known = read_profiles(path) if path.exists() else {}
    whole = {name: _plain(profile) for name, profile in {**known, **profiles}.items()}
    path.write_text(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True), encoding="utf-8")


def read_profiles(path: Path) -> dict[str, Profile]:
    """Read what `write_profiles` wrote: model → profile.

    Raises:
        ConfigError: the file cannot be read, or a profile is wrong; names the field.
    """
    import yaml

    from steproute.handwritten import read_yaml

    try:
        data = read_yaml(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: is not YAML ({getattr(error, 'problem', None) or 'malformed'})") from None
    if not isinstance(data, dict) or not all(isinstance(item, dict) for item in data.values()):
        raise ConfigError(f"{path}: allowed: a mapping from models' names to profiles")
    try:
        return {str(name): Profile(**{str(key): value for key, value in item.items()}) for name, item in data.items()}
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", error.problems) from None


def _plain(profile: Profile) -> dict[str, Any]:
    data = profile.model_dump(exclude_defaults=True)
    for name, value in data.items():
        if isinstance(value, float):
            data[name] = float(f"{value:.5g}")
    if "intervals" in data:
        data["intervals"] = {
            name: [float(f"{bound:.4g}") for bound in bounds] for name, bounds in data["intervals"].items()
        }
    return data


# --- fitting -------------------------------------------------------------------------------------------------

Fitted = dict[str, tuple[float, float, float]]
"""Field of the profile → value, low, high."""


def _seconds(samples: Sequence[Sample], seed: int) -> Fitted:
    phased = [s for s in samples if s.prefill_s and s.decode_s]
    if len(phased) < 4:
        rows = np.array([[1.0, s.prompt_tokens - s.cached_tokens, s.completion_tokens] for s in samples])
        fixed, prefill, decode = _fit(rows, np.array([s.warm_s for s in samples]), seed)
        return {"latency_s": fixed, **_rate("prefill", prefill), **_rate("decode", decode)}
    rows = np.array([[1.0, _uncached(s), _read(s)] for s in phased])
    start, prefill, attention = _fit(rows, np.array([s.prefill_s for s in phased]), seed)
    rows = np.array([[s.completion_tokens, _written(s)] for s in phased])
    decode, growth = _fit(rows, np.array([s.decode_s for s in phased]), seed)
    rest = [max(s.warm_s - (s.prefill_s or 0.0) - (s.decode_s or 0.0), 0.0) for s in phased]
    around = _interval(_median(rest), rest)
    latency = (start[0] + around[0], start[1] + around[1], start[2] + around[2])
    return {
        "latency_s": latency,
        **_rate("prefill", prefill),
        **_rate("decode", decode),
        **_if_any("prefill_context_s", attention),
        **_if_any("decode_context_s", growth),
    }


def _joules(samples: Sequence[Sample], seed: int) -> Fitted:
    rows = np.array([[1.0, _uncached(s), _read(s), s.completion_tokens, _written(s)] for s in samples])
    columns = 5 if len(samples) >= 10 else 4
    if columns == 4:  # too few calls to tell the contexts apart
        rows = rows[:, [0, 1, 3]]
    found = _fit(rows, np.array([s.joules for s in samples]), seed)
    if columns == 4:
        names = ("latency_j", "prefill_j_per_token", "decode_j_per_token")
        return dict(zip(names, found, strict=True))
    names5 = ("latency_j", "prefill_j_per_token", "prefill_context_j", "decode_j_per_token", "decode_context_j")
    return dict(zip(names5, found, strict=True))


def _uncached(s: Sample) -> float:
    return float(max(s.prompt_tokens - s.cached_tokens, 0))


def _read(s: Sample) -> float:
    """Pairs of prompt token and context, as in `Work`."""
    return _uncached(s) * (s.cached_tokens + _uncached(s) / 2)


def _written(s: Sample) -> float:
    """Pairs of completion token and context, as in `Work`."""
    return s.completion_tokens * (s.prompt_tokens + s.completion_tokens / 2)


def _rate(phase: str, found: tuple[float, float, float]) -> Fitted:
    """Tokens per second from seconds per token; nothing where the phase took no time that could be told."""
    value, low, high = found
    if value <= 0:
        return {}
    return {f"{phase}_tokens_per_s": (1 / value, 1 / max(high, 1e-12), 1 / max(low, value * 1e-3))}


def _if_any(name: str, found: tuple[float, float, float]) -> Fitted:
    return {name: found} if found[0] > 0 else {}


def _fit(rows: Floats, amounts: Floats, seed: int) -> list[tuple[float, float, float]]:
    """Value and interval of each coefficient."""
    kept = amounts > 0
    rows, amounts = rows[kept], amounts[kept]
    best = robust(rows, amounts)
    rng = np.random.default_rng(seed)
    n = len(amounts)
    draws = [robust(rows[pick], amounts[pick], 3) for pick in (rng.integers(0, n, n) for _ in range(RESAMPLES))]
    low, high = np.quantile(np.array(draws), [0.025, 0.975], axis=0)
    return [(float(b), float(min(lo, b)), float(max(hi, b))) for b, lo, hi in zip(best, low, high, strict=True)]


def robust(rows: Floats, amounts: Floats, rounds: int = 8) -> Floats:
    """Non-negative least squares of relative deviations, reweighted so that outliers count less (Huber).

    Args:
        rows: shape (n, k), k small.
        amounts: shape (n,), above 0.
        rounds: how often to reweight.

    Returns:
        Coefficients, shape (k,).
    """
    scaled = rows / amounts[:, None]
    weights = np.ones(len(amounts))
    found = np.zeros(rows.shape[1])
    for _ in range(rounds):
        root = np.sqrt(weights)
        found = _non_negative(scaled * root[:, None], root)
        off = np.abs(scaled @ found - 1.0)
        weights = np.minimum(1.0, TOLERANCE / np.maximum(off, 1e-12))
    return found


def _non_negative(rows: Floats, amounts: Floats) -> Floats:
    """Exact, by trying every set of columns: there are at most five."""
    k = rows.shape[1]
    scale = np.linalg.norm(rows, axis=0)
    scale[scale == 0] = 1.0
    unit = rows / scale
    best, least = np.zeros(k), float(amounts @ amounts)
    for size in range(1, k + 1):
        for chosen in combinations(range(k), size):
            part = unit[:, chosen]
            solution = np.linalg.lstsq(part, amounts, rcond=None)[0]
            if (solution < 0).any():
                continue
            off = part @ solution - amounts
            error = float(off @ off)
            if error < least * (1 - 1e-9):
                best, least = np.zeros(k), error
                best[list(chosen)] = solution
    found: Floats = best / scale
    return found


def _interval(value: float, seen: Sequence[float]) -> tuple[float, float, float]:
    low, high = np.quantile(np.array(seen), [0.025, 0.975])
    return value, float(low), float(high)


def _median(values: Sequence[float]) -> float:
    return float(np.median(np.array(values)))
