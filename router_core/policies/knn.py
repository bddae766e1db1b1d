"""k nearest neighbours: what the most similar past steps gained, model by model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from steproute.embed import Embedder, RecentTexts, make_embedder
from steproute.errors import ConfigError
from steproute.lasting import Standing, filled, load_memory, memory_state
from steproute.memory import CAPACITY, Experience, ExperienceMemory, check_embedder, make_memory
from steproute.policies.base import Feedback, PolicyConfig, Scores, StepContext
from steproute.policies.rewards import RewardTable, expected_worth, reward
from steproute.predict.semantic import embed_request


class KNN:
    """Mean reward per model among the k most similar steps, weighted by likeness and shrunk towards the model's mean.

    A step without text is no one's neighbour: there the policy abstains and the router's gain estimator decides.
    """

    name = "knn"
    needs_text = True

    class Config(PolicyConfig):
        """Settings of `knn`."""

        k: int = Field(default=10, ge=1)
        """Neighbours asked."""
        strength: float = Field(default=1.0, gt=0)
        """How many neighbours a model's mean over everything is worth."""
        epsilon: float = Field(default=0.3, ge=0, le=1)
        """Share of uniform draws at the start."""
        decay: float = Field(default=0.99, gt=0, le=1)
        """Factor on epsilon after every step learnt from."""
        epsilon_min: float = Field(default=0.02, ge=0, le=1)
        capacity: int = Field(default=CAPACITY, ge=1)
        """Experiences kept, first in, first out."""
        embedder: str = "hash"
        """See `make_embedder`."""
        memory: str = "exact"
        """See `make_memory`."""

    def __init__(
        self, config: Config | None = None, memory: ExperienceMemory | None = None, embedder: Embedder | None = None
    ):
        """Set up the memory; experiences it already holds are neighbours from the start.

        Args:
            config: settings.
            memory: where experiences are kept; None = as the settings say.
            embedder: None = as the settings say.

        Raises:
            ConfigError: memory and embedder have different dimensions.
        """
        self.config = config or self.Config()
        self.texts = RecentTexts(embedder or make_embedder(self.config.embedder))
        made = self.texts.embedder
        if memory is None:
            memory = make_memory(self.config.memory, made.dim, self.config.capacity, made.name)
        check_embedder(memory, made)
        self.memory = memory
        self.epsilon = self.config.epsilon
        self._means = RewardTable()
        for experience in self.memory:
            self._means.add((), experience.model, _reward_of(experience))
        self._standing, self._first = Standing(self.memory), self._means.state()
        self._counted = True
        """Whether what stood in the memory at the start is counted in the means: a snapshot may be from before some of it."""

    def score(self, context: StepContext) -> Scores:
        """Expected reward per model."""
        names = context.names
        embedding = embed_request(context, self.texts)
        found = [] if embedding is None else self.memory.nearest(embedding, self.config.k)
        near = [(max(item.similarity, 0.0), item.experience) for item in found]
        mass = sum(weight for weight, _ in near)
        if mass <= 0:
            values = context.gains - expected_worth(context)
            reason = "no text, the predicted gain decides" if embedding is None else "nothing alike is known yet"
        else:
            level = sum(weight * _reward_of(item) for weight, item in near) / mass
            overall, strength = self._means.centre(()), self.config.strength
            totals = [0.0] * len(names)
            weights = [0.0] * len(names)
            for weight, item in near:
                if item.model in names:
                    i = names.index(item.model)
                    totals[i] += weight * _reward_of(item)
                    weights[i] += weight
            # Centred on the neighbourhood: models that nobody called here are not favoured by a hard one.
            usual = [level + self._means.cell((), name).mean(overall, 1.0) - overall for name in names]
            values = np.array(
                [
                    (total + strength * prior) / (weight + strength)
                    for total, weight, prior in zip(totals, weights, usual, strict=True)
                ]
            )
            reason = f"mean of {len(near)} similar steps"
        n = len(names)
        draw = np.full(n, self.epsilon / n)
        draw[int(np.argmax(values))] += 1 - self.epsilon
        return Scores(values, [{"mean": float(value)} for value in values], propensities=draw, reason=reason)

    def learn(self, feedback: Feedback) -> None:
        """Remember a step that has text."""
        context, value = feedback.context, reward(feedback)
        embedding = embed_request(context, self.texts)
        if embedding is None:
            return
        name = context.names[feedback.index]
        trace = {"task": context.task.id, "step": context.step, "role": context.role, "reward": value}
        experience = Experience(embedding, name, min(max(value, 0.0), 1.0), dict(feedback.cost), trace)
        stands = self._standing.take(experience)
        if not stands:
            self.memory.add(experience)
        if not (stands and self._counted):
            self._means.add((), name, value)
        self.epsilon = max(self.epsilon * self.config.decay, min(self.config.epsilon_min, self.epsilon))

    # --- state -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values; a memory that outlives the process keeps its experiences itself."""
        memory, blocks = memory_state(self.memory)
        return {"epsilon": self.epsilon, "means": self._means.state(), "memory": memory, "blocks": blocks}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave.

        Raises:
            ConfigError: the state is malformed, or of embeddings of another dimension.
        """
        means = RewardTable()
        try:
            means.load(state["means"])
            epsilon = min(max(float(state["epsilon"]), 0.0), 1.0)
            load_memory(self.memory, state["memory"], state["blocks"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"knn state: {type(error).__name__}: {error}") from None
        self._means, self.epsilon, self._counted = means, epsilon, state["means"] == self._first

    def filled(self) -> str | None:
        """A block of the state that became full; a store writes it at once, so that a snapshot need not."""
        return filled(self.memory)


def _reward_of(experience: Experience) -> float:
    """Reward as it was; the score where another policy wrote the experience."""
    value = experience.trace.get("reward")
    return float(value) if isinstance(value, (int, float)) else experience.score
