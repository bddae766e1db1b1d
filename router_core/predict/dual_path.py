"""The learnt gain estimator of ProgRouter, behind the same two calls as every other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from steproute.embed import Embedder, RecentTexts, make_embedder
from steproute.errors import ConfigError
from steproute.policies.base import Feedback, StepContext, Values
from steproute.predict.base import GainEstimator
from steproute.predict.boosting import load_xgboost
from steproute.predict.buffer import GainBuffer, MemoryBuffer, Sample
from steproute.predict.features import StepFacts, step_facts
from steproute.predict.prior import CapabilityPrior
from steproute.predict.semantic import embed_state
from steproute.predict.trainer import Trainer, TrainerConfig
from steproute.predict.trees import DualPath, TreesConfig


class DualPathConfig(TreesConfig, TrainerConfig):
    """Settings of the estimator: its trees, its trainer, its embedder."""

    embedder: str = "hash"
    """See `make_embedder`."""
    seed: int = Field(default=0, ge=0)


class DualPathEstimator:
    """Capability prior at the start, two tree paths and their meta learner once there is enough to fit them on."""

    def __init__(
        self,
        config: DualPathConfig | None = None,
        *,
        prior: GainEstimator | None = None,
        buffer: GainBuffer | None = None,
        embedder: Embedder | None = None,
    ):
        """Set up the estimator.

        Args:
            config: settings.
            prior: predicts until the first fit, and learns along; None = `CapabilityPrior`.
            buffer: where samples are kept; None = in this process.
            embedder: embeds the state's summary; None = the one the settings name.

        Raises:
            ImportError: XGBoost or the embedder is not installed; names the extra.
            ConfigError: the buffer holds embeddings of another dimension than the embedder's.
        """
        load_xgboost()
        self.config = config or DualPathConfig()
        self.prior: GainEstimator = prior or CapabilityPrior()
        self.texts = RecentTexts(embedder or make_embedder(self.config.embedder))
        kept = buffer if buffer is not None else MemoryBuffer()
        dim = self.texts.embedder.dim
        other = next((row.embedding.shape[0] for row in kept.rows() if row.embedding.shape[0] != dim), None)
        if other is not None:
            raise ConfigError(
                f"the buffer holds embeddings of dimension {other}, embedder {self.texts.embedder.name!r} has dimension "
                f"{dim}; start a new buffer"
            )
        shared = self.config.model_dump()
        self.trainer = Trainer(
            kept,
            TreesConfig(**{name: shared[name] for name in TreesConfig.model_fields}),
            TrainerConfig(**{name: shared[name] for name in TrainerConfig.model_fields}),
            self.config.seed,
        )

    @property
    def mature(self) -> bool:
        """Whether the trees have taken over from the prior."""
        return self.trainer.fitted is not None

    def fit_at_once(self) -> None:
        """From now on fit inside `learn`, so that a seed is a result (replays)."""
        self.trainer.config = self.trainer.config.model_copy(update={"background": False})

    def predict(self, context: StepContext) -> tuple[Values, Values]:
        """See `GainEstimator.predict`."""
        facts = self._facts(context)
        embedding = embed_state(context, self.texts)
        fitted = self.trainer.fitted
        if fitted is None:
            return self.prior.predict(context)
        return fitted.predict(facts.state, facts.models, facts.numbers, embedding)

    def learn(self, feedback: Feedback) -> None:
        """See `GainEstimator.learn`. Samples whose gain is not a number in [−1, 1] are refused.

        Raises:
            ValueError: the gain or the reliability is out of range.
        """
        gain, weight = feedback.gain, feedback.reliability
        if not -1 <= gain <= 1 or not 0 < weight <= 1:
            raise ValueError(f"gain {gain!r} or reliability {weight!r} is out of range [−1, 1] and (0, 1]")
        self.prior.learn(feedback)
        context = feedback.context
        facts = self._facts(context)
        self.trainer.add(
            Sample(
                context.task.id,
                facts.models[feedback.index],
                facts.state,
                facts.numbers[feedback.index],
                embed_state(context, self.texts).astype(np.float16),
                float(gain),
                float(weight),
            )
        )

    def snapshot(self) -> dict[str, Any] | None:
        """The fitted trees as plain JSON values; None before the first fit."""
        fitted = self.trainer.fitted
        return None if fitted is None else fitted.to_json()

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot.

        Raises:
            ConfigError: it is damaged, of another version, or made with an embedder of another dimension.
        """
        fitted = DualPath.from_json(snapshot)
        if fitted.dim != self.texts.embedder.dim:
            raise ConfigError(
                f"predictor snapshot holds embeddings of dimension {fitted.dim}, embedder "
                f"{self.texts.embedder.name!r} has dimension {self.texts.embedder.dim}"
            )
        self.trainer.adopt(fitted)

    def state(self) -> dict[str, Any]:
        """Trees and prior as plain JSON values; the samples they were fitted on stay in the buffer."""
        return {
            "trees": self.snapshot(),
            "fits": self.trainer.fits,
            "fresh": self.trainer.fresh,
            "prior": self._prior_state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave.

        Raises:
            ConfigError: see `restore`.
        """
        if state["trees"] is None:
            self.trainer.fitted = None
        else:
            self.restore(state["trees"])
            self.trainer.fresh = int(state.get("fresh", 0))
        self.trainer.fits = int(state["fits"])
        if state["prior"] is not None and hasattr(self.prior, "load"):
            self.prior.load(state["prior"])

    def refill(self, read: Callable[[], Sequence[Sample]]) -> None:
        """Put samples of before a restart back into an empty buffer, without a fit.

        Args:
            read: gives them, oldest first; called in the background where fits are.
        """
        if not len(self.trainer.buffer):
            self.trainer.fill(read)

    def _prior_state(self) -> Any:
        return self.prior.state() if hasattr(self.prior, "state") else None

    def _facts(self, context: StepContext) -> StepFacts:
        """Read at the decision and kept: by the time the gain is known, the ledger has moved on."""
        if "facts" not in context.memo:
            context.memo["facts"] = step_facts(context)
        found: StepFacts = context.memo["facts"]
        return found
