"""XGBoost as the predictor uses it: imported late, one thread per prediction, saved in its own format."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from steproute.predict.features import Floats32

MAX_BIN = 64
"""Bins per feature: a quarter of the default fits some thrice as fast, and 5,000 rows do not tell more bins apart."""


def load_xgboost() -> Any:
    """XGBoost, imported when it is first needed.

    Raises:
        ImportError: it is not installed; names the extra.
    """
    try:
        import xgboost
    except ImportError as error:
        raise ImportError("the gain predictor's trees need the extra: pip install 'steproute[trees]'") from error
    return xgboost


def train(
    table: Floats32,
    target: Floats32,
    weight: Floats32,
    parameters: Mapping[str, Any],
    rounds: int,
    threads: int,
    seed: int,
) -> Any:
    """Fit squared error by histogram trees.

    Args:
        table: features, shape (n, columns); NaN = missing.
        target: shape (n,).
        weight: weight of each row, shape (n,).
        parameters: XGBoost's own names.
        rounds: number of trees.
        threads: threads of the fit.
        seed: of the row and column samples.

    Returns:
        The booster, set to predict on one thread.

    Raises:
        ImportError: XGBoost is not installed.
    """
    xgboost = load_xgboost()
    data = xgboost.QuantileDMatrix(table, label=target, weight=weight, max_bin=MAX_BIN, nthread=threads)
    fixed = {
        "tree_method": "hist",
        "max_bin": MAX_BIN,
        "nthread": threads,
        "seed": seed,
        "verbosity": 0,
        "base_score": float(np.average(target, weights=weight)),
    }
    booster = xgboost.train({**fixed, **parameters}, data, num_boost_round=rounds)
    booster.set_param({"nthread": 1})  # waking a thread pool for eight rows takes longer than the rows
    return booster


def save_booster(booster: Any) -> str | None:
    """The trees in XGBoost's UBJ, as base64; None stays None."""
    return None if booster is None else base64.b64encode(bytes(booster.save_raw("ubj"))).decode("ascii")


def load_booster(text: str | None) -> Any:
    """Read what `save_booster` made.

    Raises:
        ValueError: it is no model.
        ImportError: XGBoost is not installed.
    """
    if text is None:
        return None
    xgboost = load_xgboost()
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(base64.b64decode(text, validate=True)))
    except xgboost.core.XGBoostError as error:
        raise ValueError(str(error).splitlines()[0]) from None
    booster.set_param({"nthread": 1})
    return booster


def digest(boosters: Mapping[str, str | None]) -> str:
    """Checksum of saved boosters: XGBoost's reader is not made for damaged input, so it never sees any."""
    text = "|".join(f"{name}={boosters[name] or ''}" for name in sorted(boosters))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def check_digest(boosters: Mapping[str, str | None], expected: str) -> None:
    """Refuse saved boosters that changed.

    Raises:
        ValueError: the checksum differs.
    """
    if digest(boosters) != expected:
        raise ValueError("the checksum does not match: the snapshot is damaged")
