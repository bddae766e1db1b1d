"""ACRouter (arXiv 2606.22902): context → action → feedback, with three voters and an experience memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from pydantic import Field

from steproute.embed import Embedder, RecentTexts, Vectors, make_embedder
from steproute.errors import ConfigError
from steproute.lasting import Standing, filled, load_memory, memory_state
from steproute.memory import CAPACITY, Experience, ExperienceMemory, Neighbour, check_embedder, make_memory
from steproute.policies.base import Feedback, Floats, PolicyConfig, Scores, StepContext
from steproute.policies.observed import DimensionMeans, dimension_of, observed_score
from steproute.policies.policy_model import SoftmaxPolicyModel
from steproute.predict.semantic import embed_request

if TYPE_CHECKING:
    from steproute.policies.llm import LLMRouter

_MEMO = "acrouter:propensities"


class Voter(Protocol):
    """Stands in for the learnt policy model, e.g. an LLM."""

    def vote(self, context: StepContext) -> Floats | None:
        """Shares of one vote per candidate, shape (n,); None = abstains."""
        ...


class ACRouter:
    """Orchestrator: the weighted sum of three votes; the highest wins.

    * the policy model: a small classifier trained from experience, or an LLM;
    * the dimension: one vote for the model with the best record in it so far;
    * the memory: the k most similar experiences, each speaking for the model that served it.

    Where a step has no text, the memory abstains. Every verified step is written back.
    """

    name = "acrouter"
    text_part = "memory"
    """The part that needs the step's text."""

    class Config(PolicyConfig):
        """Settings of `acrouter`."""

        policy_weight: float = Field(default=1.0, ge=0)
        dimension_weight: float = Field(default=1.0, ge=0)
        memory_weight: float = Field(default=1.0, ge=0)
        k: int = Field(default=10, ge=1)
        """Experiences retrieved per step."""
        usd_weight: float | None = Field(default=None, ge=0)
        """Reward = score − usd_weight · USD; None = the budget's stated value of a dollar, or .1 where it states none."""
        temperature: float = Field(default=0.1, gt=0)
        """Difference in estimated reward that changes the memory's vote by a factor e."""
        epsilon: float = Field(default=0.3, ge=0, le=1)
        """Share of random choices at the start."""
        epsilon_decay: float = Field(default=0.99, gt=0, le=1)
        """Factor on epsilon after every step learnt from."""
        epsilon_min: float = Field(default=0.01, ge=0, le=1)
        embedder: str = "hash"
        """See `make_embedder`."""
        memory: str = "exact"
        """See `make_memory`."""
        capacity: int = Field(default=CAPACITY, ge=1)
        llm: dict[str, Any] | None = None
        """Settings of the policy `llm`; when given, the LLM votes in place of the classifier."""
        seed: int = Field(default=0, ge=0)

    def __init__(
        self,
        config: Config | None = None,
        *,
        memory: ExperienceMemory | None = None,
        embedder: Embedder | None = None,
        voter: Voter | None = None,
    ):
        """Set up the orchestrator; experiences that the memory already holds are learnt from.

        Args:
            config: settings.
            memory: where experiences are kept; None = as the settings say.
            embedder: None = as the settings say.
            voter: votes in place of the classifier.

        Raises:
            ConfigError: memory and embedder have different dimensions.
            ImportError: an extra is missing; names it.
        """
        self.config = config or self.Config()
        self.texts = RecentTexts(embedder or make_embedder(self.config.embedder))
        dim = self.texts.embedder.dim
        if memory is None:
            memory = make_memory(self.config.memory, dim, self.config.capacity, self.texts.embedder.name)
        self.memory: ExperienceMemory = memory
        check_embedder(self.memory, self.texts.embedder)
        self.voter = voter or self._llm()
        self.calls_out = self.voter is not None
        """Scoring makes a call: a restart does not score past steps anew."""
        self.classifier = SoftmaxPolicyModel(dim, seed=self.config.seed)
        self.means = DimensionMeans()
        self.epsilon = self.config.epsilon
        for experience in self.memory:
            self._take(experience)
            self._decay()
        self._standing, self._first = Standing(self.memory), self.means.state()
        self._counted = True
        """Whether what stood in the memory at the start is counted in the means: a snapshot may be from before some of it."""

    def score(self, context: StepContext) -> Scores:
        """The weighted sum of the votes."""
        config, names = self.config, context.names
        dimension = dimension_of(context.group)
        embedding = embed_request(context, self.texts)
        costs = self._usd_weight(context) * context.costs("usd")
        means = self.means.estimate(dimension, {c.name: c.model.prior for c in context.candidates})
        record = np.array([means[name] for name in names]) - costs
        votes = {
            "policy": (config.policy_weight, self._policy_vote(context, dimension, embedding)),
            "dimension": (config.dimension_weight, np.eye(len(names))[int(np.argmax(record))]),
            "memory": (config.memory_weight, self._memory_vote(embedding, names, record, costs)),
        }
        heard = {voter: weight * vote for voter, (weight, vote) in votes.items() if vote is not None}
        values = sum(heard.values(), np.zeros(len(names)))
        terms = [{voter: float(vote[i]) for voter, vote in heard.items()} for i in range(len(names))]
        silent = [voter for voter in votes if voter not in heard]
        reason = "most votes" + (f" ({', '.join(silent)} abstained)" if silent else "")
        draw = np.full(len(names), self.epsilon / len(names))
        draw[int(np.argmax(values))] += 1.0 - self.epsilon
        context.memo[_MEMO] = draw
        return Scores(values, terms, propensities=draw if self.epsilon > 0 else None, reason=reason)

    def learn(self, feedback: Feedback) -> None:
        """Write the verified step back: memory, dimension record, policy model."""
        context, index = feedback.context, feedback.index
        embedding = embed_request(context, self.texts)
        draw = context.memo.get(_MEMO)
        experience = Experience(
            np.zeros(self.memory.dim, dtype=np.float32) if embedding is None else embedding,
            context.candidates[index].name,
            min(max(observed_score(feedback), 0.0), 1.0),
            dict(feedback.cost),
            {
                "task": context.task.id,
                "step": context.step,
                "role": context.role,
                "dimension": dimension_of(context.group),
                "usd_weight": self._usd_weight(context),
                "propensity": 1.0 if draw is None else float(draw[index]),
                "verified": {item.source: item.score for item in feedback.evidence},
            },
        )
        stands = self._standing.take(experience)
        if embedding is not None and not stands:
            self.memory.add(experience)
        if not (stands and self._counted):
            self._take(experience)
            self._decay()

    def set_prior(self, group: Sequence[str], means: Mapping[str, float]) -> None:
        """State published mean scores of a dimension, the first known name of the group."""
        self.means.set_prior(dimension_of(tuple(group)), means)

    # --- state -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values; a memory that outlives the process keeps its experiences itself."""
        memory, experiences = memory_state(self.memory)
        classifier, batches = self.classifier.state()
        return {
            "epsilon": self.epsilon,
            "means": self.means.state(),
            "memory": memory,
            "classifier": classifier,
            "blocks": [*experiences, *batches],
            "experiences": len(experiences),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave.

        Raises:
            ConfigError: the state is malformed, or of embeddings of another dimension.
        """
        means = DimensionMeans()
        try:
            means.load(state["means"])
            epsilon = min(max(float(state["epsilon"]), 0.0), 1.0)
            blocks, n = state["blocks"], int(state["experiences"])
            load_memory(self.memory, state["memory"], blocks[:n])
            self.classifier.load(state["classifier"], blocks[n:])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"acrouter state: {type(error).__name__}: {error}") from None
        self.means, self.epsilon, self._counted = means, epsilon, state["means"] == self._first

    def filled(self) -> str | None:
        """A block of the state that became full; a store writes it at once, so that a snapshot need not."""
        return filled(self.memory) or self.classifier.filled()

    # --- inside ----------------------------------------------------------------------------------------------

    def _usd_weight(self, context: StepContext) -> float:
        if self.config.usd_weight is not None:
            return self.config.usd_weight
        limit = context.budget.limits.get("usd")
        return limit.value if limit is not None and limit.value else 0.1

    def _decay(self) -> None:
        if self.epsilon > 0:
            self.epsilon = max(self.epsilon * self.config.epsilon_decay, self.config.epsilon_min)

    def _take(self, experience: Experience) -> None:
        dimension = str(experience.trace.get("dimension", ""))
        self.means.add(dimension, experience.model, experience.score)
        if self.voter is None:
            worth = float(experience.trace.get("usd_weight", self.config.usd_weight or 0.0))
            reward = experience.score - worth * experience.cost.get("usd", 0.0)
            embedding = experience.embedding if experience.embedding.any() else None
            propensity = float(experience.trace.get("propensity", 1.0))
            self.classifier.learn(dimension, embedding, experience.model, reward, propensity)

    def _policy_vote(self, context: StepContext, dimension: str, embedding: Vectors | None) -> Floats | None:
        if self.voter is not None:
            return self.voter.vote(context)
        return self.classifier.probabilities(dimension, embedding, context.names)

    def _memory_vote(
        self, embedding: Vectors | None, names: Sequence[str], record: Floats, costs: Floats
    ) -> Floats | None:
        """Softmax of each model's mean over the neighbours it served, weighted by likeness, shrunk towards its record."""
        if embedding is None:
            return None
        found = self.memory.nearest(embedding, self.config.k)
        return None if not found else neighbour_vote(found, names, record, costs, self.config.temperature)

    def _llm(self) -> LLMRouter | None:
        if self.config.llm is None:
            return None
        from steproute.policies.llm import LLMRouter

        return LLMRouter(LLMRouter.Config(**self.config.llm))


def neighbour_vote(
    found: Sequence[Neighbour], names: Sequence[str], record: Floats, costs: Floats, temperature: float
) -> Floats:
    """Shares of the memory's vote, shape (n,).

    Args:
        found: the most similar experiences.
        names: the candidates.
        record: what to expect of each without them; worth one neighbour of likeness 1.
        costs: expected cost of each in units of score.
        temperature: of the softmax.
    """
    weights, totals = np.ones(len(names)), record.copy()
    place = {name: i for i, name in enumerate(names)}
    for neighbour in found:
        i = place.get(neighbour.experience.model)
        if i is not None and neighbour.similarity > 0:
            weights[i] += neighbour.similarity
            totals[i] += neighbour.similarity * (neighbour.experience.score - costs[i])
    estimate = totals / weights
    exp = np.exp((estimate - estimate.max()) / temperature)
    return np.asarray(exp / exp.sum(), dtype=np.float64)
