"""ProgRouter's dual path (arXiv 2608.25992, section 2.3): structured trees, semantic trees, and a meta learner on both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from steproute.errors import ConfigError
from steproute.policies.base import Floats, PolicyConfig
from steproute.predict.boosting import check_digest, digest, load_booster, load_xgboost, save_booster, train
from steproute.predict.buffer import Sample
from steproute.predict.encode import Vocabulary
from steproute.predict.features import FEATURE_VERSION, MODEL, STATE, Floats32, StateFacts

Path = Literal["meta", "structured", "semantic", "average"]
REGIMES = 4
PATHS = ("structured", "semantic", "meta")


class TreesConfig(PolicyConfig):
    """Settings of the dual path."""

    path: Path = "meta"
    """`meta`: both paths, stacked; the others are ablations: one path alone, or the plain average of both."""
    rounds: int = Field(default=100, ge=1, le=2000)
    """Trees per path."""
    depth: int = Field(default=4, ge=1, le=12)
    eta: float = Field(default=0.1, gt=0, le=1)
    """Learning rate."""
    folds: int = Field(default=3, ge=2, le=20)
    """Folds, cut by task, of the out-of-fold predictions that the meta learner and the spread are fitted on."""
    meta_rounds: int = Field(default=40, ge=1, le=500)
    """Trees of the meta learner; its inputs are the two predictions and nothing else."""
    meta_depth: int = Field(default=2, ge=1, le=6)
    threads: int = Field(default=1, ge=1)
    """Threads of a fit; a prediction always takes one."""


@dataclass(frozen=True)
class DualPath:
    """Fitted trees. Never changed after `fit`, so that predicting needs no lock."""

    config: TreesConfig
    vocabulary: Vocabulary
    dim: int
    """Dimension of the embeddings it was fitted on."""
    structured: Any
    semantic: Any
    meta: Any
    """Boosters; None where the path does not use them."""
    spread: tuple[float, ...]
    """Root mean square of the out-of-fold residuals per regime of the state."""
    rows: int

    @classmethod
    def fit(cls, samples: Sequence[Sample], config: TreesConfig, seed: int = 0) -> DualPath:
        """Fit both paths, then the meta learner on their out-of-fold predictions.

        Args:
            samples: of at least `config.folds` tasks.
            config: settings.
            seed: of the folds and of the row samples.

        Raises:
            ValueError: samples of too few tasks, or embeddings of several dimensions.
            ImportError: XGBoost is not installed.
        """
        dims = {sample.embedding.shape[0] for sample in samples}
        if len(dims) != 1:
            raise ValueError(f"embeddings of dimensions {sorted(dims)}; needed: one dimension and at least one sample")
        vocabulary = Vocabulary.of(samples)
        models = [sample.model for sample in samples]
        numbers = np.stack([sample.numbers for sample in samples])
        target = np.array([sample.gain for sample in samples], dtype=np.float32)
        weight = np.array([sample.weight for sample in samples], dtype=np.float32)
        tables: list[Floats32 | None] = [None, None]
        if config.path != "semantic":
            tables[0] = vocabulary.structured([sample.state for sample in samples], models, numbers)
        if config.path != "structured":
            embeddings = np.stack([sample.embedding for sample in samples]).astype(np.float32)
            tables[1] = vocabulary.semantic(embeddings, models, numbers)
        fold = folds_by_task([sample.task for sample in samples], config.folds, seed)
        unseen = np.zeros((len(samples), 2), dtype=np.float32)
        boosters: list[Any] = [None, None]
        for path, table in enumerate(tables):
            if table is None:
                continue
            for part in range(config.folds):
                rest = fold != part
                booster = _boost(table[rest], target[rest], weight[rest], config, seed)
                unseen[~rest, path] = booster.inplace_predict(table[~rest])
            boosters[path] = _boost(table, target, weight, config, seed)
        meta = None
        if config.path == "meta":
            meta = _boost_meta(unseen, target, weight, config, seed)
            blended = _cross_fit_meta(unseen, target, weight, fold, config, seed)
        else:
            blended = _blend(unseen, config.path)
        regimes = np.array([int(sample.state.numbers[STATE.index("regime")]) for sample in samples])
        return cls(
            config,
            vocabulary,
            dims.pop(),
            boosters[0],
            boosters[1],
            meta,
            _spread(target - blended, weight, regimes),
            len(samples),
        )

    def predict(
        self, state: StateFacts, models: Sequence[str], numbers: Floats32, embedding: Floats32
    ) -> tuple[Floats, Floats]:
        """Gain of every candidate in one batch per path.

        Args:
            state: what is known before the choice.
            models: names of the candidates.
            numbers: shape (n, len(MODEL)).
            embedding: of the state's summary, shape (dim,).

        Returns:
            Mean and spread, each of shape (n,); the mean is kept within what is left of g: [−g, 1 − g].
        """
        both = self.predict_paths([state], models, numbers, embedding[None, :])
        g, regime = float(state.numbers[0]), int(state.numbers[STATE.index("regime")])
        mean = np.clip(self.blend(both), -g, 1.0 - g)
        return mean, np.full(len(models), self.spread[regime])

    def predict_paths(
        self, states: Sequence[StateFacts], models: Sequence[str], numbers: Floats32, embeddings: Floats32
    ) -> Floats32:
        """Predictions of the structured and the semantic path, shape (n, 2); zeros for a path that is not used."""
        both = np.zeros((len(models), 2), dtype=np.float32)
        if self.structured is not None:
            both[:, 0] = self.structured.inplace_predict(self.vocabulary.structured(states, models, numbers))
        if self.semantic is not None:
            # In half precision, as the rows it was fitted on were.
            halved = embeddings.astype(np.float16).astype(np.float32)
            both[:, 1] = self.semantic.inplace_predict(self.vocabulary.semantic(halved, models, numbers))
        return both

    def blend(self, both: Floats32) -> Floats:
        """One prediction from two, shape (n,)."""
        if self.meta is not None:
            return np.asarray(self.meta.inplace_predict(both), dtype=np.float64)
        return _blend(both, self.config.path)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; the trees in XGBoost's own UBJ, as base64."""
        boosters = {name: save_booster(getattr(self, name)) for name in PATHS}
        return {
            "version": FEATURE_VERSION,
            "config": self.config.model_dump(),
            "models": list(self.vocabulary.models),
            "roles": list(self.vocabulary.roles),
            "dim": self.dim,
            "spread": list(self.spread),
            "rows": self.rows,
            "digest": digest(boosters),
            **boosters,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DualPath:
        """Read what `to_json` made.

        Raises:
            ConfigError: it is damaged or of another version; the reason is in the message.
            ImportError: XGBoost is not installed.
        """
        load_xgboost()
        try:
            if data["version"] != FEATURE_VERSION:
                raise ValueError(f"features of version {data['version']!r}; this is version {FEATURE_VERSION}")
            check_digest({name: data[name] for name in PATHS}, data["digest"])
            boosters = {name: load_booster(data[name]) for name in PATHS}
            spread = tuple(float(value) for value in data["spread"])
            if len(spread) != REGIMES:
                raise ValueError(f"spread: seen {len(spread)} values; needed {REGIMES}")
            fitted = cls(
                TreesConfig(**data["config"]),
                Vocabulary(tuple(data["models"]), tuple(data["roles"])),
                int(data["dim"]),
                **boosters,
                spread=spread,
                rows=int(data["rows"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"predictor snapshot: {type(error).__name__}: {error}"[:300]) from None
        fitted.predict(_BLANK, fitted.vocabulary.models, _blank_numbers(fitted), np.zeros(fitted.dim, np.float32))
        return fitted


def folds_by_task(tasks: Sequence[str], folds: int, seed: int) -> Any:
    """Fold of every row, shape (n,): all rows of a task share one, tasks are dealt out evenly in random order.

    Raises:
        ValueError: fewer tasks than folds.
    """
    names = list(dict.fromkeys(tasks))
    if len(names) < folds:
        raise ValueError(f"samples of {len(names)} task(s); {folds} folds by task need at least {folds}")
    order = np.random.default_rng(seed).permutation(len(names))
    place = {names[index]: position % folds for position, index in enumerate(order)}
    return np.array([place[task] for task in tasks])


_BLANK = StateFacts(np.zeros(len(STATE), dtype=np.float32), "", "", {}, {})


def _blank_numbers(fitted: DualPath) -> Floats32:
    return np.zeros((len(fitted.vocabulary.models), len(MODEL)), dtype=np.float32)


def _boost(table: Floats32, target: Floats32, weight: Floats32, config: TreesConfig, seed: int) -> Any:
    parameters = {
        "max_depth": config.depth,
        "eta": config.eta,
        "subsample": 0.8,
        "colsample_bytree": 0.3,
        "min_child_weight": 2.0,
    }
    return train(table, target, weight, parameters, config.rounds, config.threads, seed)


def _boost_meta(both: Floats32, target: Floats32, weight: Floats32, config: TreesConfig, seed: int) -> Any:
    parameters = {"max_depth": config.meta_depth, "eta": 0.15, "min_child_weight": 10.0}
    return train(both, target, weight, parameters, config.meta_rounds, config.threads, seed)


def _cross_fit_meta(
    both: Floats32, target: Floats32, weight: Floats32, fold: Any, config: TreesConfig, seed: int
) -> Floats:
    """The meta learner's own out-of-fold predictions, for an honest spread."""
    blended = np.zeros(len(target))
    for part in range(config.folds):
        rest = fold != part
        blended[~rest] = _boost_meta(both[rest], target[rest], weight[rest], config, seed).inplace_predict(both[~rest])
    return blended


def _blend(both: Floats32, path: Path) -> Floats:
    column = {"structured": both[:, 0], "semantic": both[:, 1]}.get(path)
    return np.asarray(both.mean(axis=1) if column is None else column, dtype=np.float64)


def _spread(residual: Any, weight: Any, regimes: Any) -> tuple[float, ...]:
    """Root mean square per regime, each shrunk to the overall one with the weight of ten rows."""
    overall = float(np.average(residual**2, weights=weight))
    found = []
    for regime in range(REGIMES):
        here = regimes == regime
        mass = float(weight[here].sum())
        total = float((weight[here] * residual[here] ** 2).sum())
        found.append(float(np.sqrt((total + 10 * overall) / (mass + 10))))
    return tuple(found)
