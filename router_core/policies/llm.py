"""A zero-shot LLM as router: it reads what is asked and answers with the name of a model."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Literal

import numpy as np
from pydantic import Field

from steproute.backend import Backend, BackendError, ChatRequest
from steproute.errors import ConfigError, unknown_name
from steproute.policies.base import Feedback, Floats, PolicyConfig, Scores, StepContext
from steproute.policies.observed import DimensionMeans, dimension_of, observed_score
from steproute.policies.simple import total_cost

logger = logging.getLogger("steproute")

Ask = Callable[[str], str]
"""Prompt in, answer out."""

MOST_TEXT = 6000
"""Characters of the request that are shown, both ends."""


class LLMRouter:
    """Asks a language model which candidate should serve the step; a baseline, since asking takes a call of its own.

    The answer must be the JSON object `{"model": "NAME"}` or the bare name, with nothing around it. Anything else, and a
    call that fails, is an abstention: it is counted, and `fallback` decides. `decide` waits for the answer.
    """

    name = "llm"
    calls_out = True
    """Scoring makes a call: a restart does not score past steps anew."""
    argument = "model"
    needs_text = True

    class Config(PolicyConfig):
        """Settings of `llm`."""

        model: str = ""
        """Deployment name of the routing model; for `backend: local` the path of its weights."""
        backend: str = ""
        """Name of the backend that serves it (`ollama`, `litellm`, `local`, ...). Empty = `local` where `model` is a GGUF
        file or `package:NAME` (a small model of your own: `llm:router.gguf`), or when `ask` is given in Python."""
        backend_settings: dict[str, Any] = Field(default_factory=dict)
        """Arguments of the backend."""
        dimension: bool = False
        """Show the kind of task."""
        statistics: bool = False
        """Show how each model has scored so far in this kind of task, and what a request cost."""
        max_tokens: int = Field(default=48, ge=1)
        timeout: float | None = Field(default=30.0, gt=0)
        """Seconds to wait for an answer."""
        fallback: Literal["record", "strongest", "cheapest"] = "record"
        """Who decides after an abstention: the best record so far, the highest prior, or the lowest cost."""

    def __init__(self, config: Config | None = None, *, ask: Ask | None = None, backend: Backend | None = None):
        """Set up the router.

        Args:
            config: settings.
            ask: answers a prompt; or
            backend: serves the routing model; neither = the backend the settings name.

        Raises:
            ConfigError: nothing is given that can answer, or the backend's name or settings are wrong.
        """
        self.config = config or self.Config()
        if ask is None:
            backend = backend or self._load()
        self._ask: Ask = ask or self._through(backend)
        self.asked = 0
        self.abstained = 0
        """Answers that named no candidate, and calls that failed."""
        self.tokens = 0
        """Tokens the routing model used, as far as the backend reports them."""
        self.means = DimensionMeans()
        self._costs: dict[str, tuple[int, float]] = {}

    def score(self, context: StepContext) -> Scores:
        """1 for the model the LLM names; after an abstention the fallback's scores."""
        chosen = self.choose(context)
        if chosen is not None:
            values = np.array([float(name == chosen) for name in context.names])
            return Scores(values, reason=f"the routing model answered {chosen}")
        return Scores(self._fallback(context), reason=f"the routing model abstained; {self.config.fallback} decides")

    def vote(self, context: StepContext) -> Floats | None:
        """One vote for the model the LLM names; None when it abstains."""
        chosen = self.choose(context)
        return None if chosen is None else np.array([float(name == chosen) for name in context.names])

    def choose(self, context: StepContext) -> str | None:
        """The candidate the LLM names, or None."""
        self.asked += 1
        try:
            answer = self._ask(self.prompt(context))
        except BackendError as error:
            logger.warning("llm router: no answer (%s)", error)
            answer = ""
        chosen = parse_answer(answer, context.names) if isinstance(answer, str) else None
        if chosen is None:
            self.abstained += 1
        return chosen

    def learn(self, feedback: Feedback) -> None:
        """Keep the statistics."""
        context = feedback.context
        name = context.candidates[feedback.index].name
        self.means.add(dimension_of(context.group), name, min(max(observed_score(feedback), 0.0), 1.0))
        usd = feedback.cost.get("usd")
        if usd is not None:
            count, total = self._costs.get(name, (0, 0.0))
            self._costs[name] = (count + 1, total + usd)

    def state(self) -> dict[str, Any]:
        """The statistics, as plain JSON values."""
        return {"means": self.means.state(), "costs": {name: list(sums) for name, sums in self._costs.items()}}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave.

        Raises:
            ConfigError: the state is malformed.
        """
        means = DimensionMeans()
        try:
            means.load(state["means"])
            costs = {str(name): (int(count), float(total)) for name, (count, total) in state["costs"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"llm state: {type(error).__name__}: {error}") from None
        self.means, self._costs = means, costs

    def prompt(self, context: StepContext) -> str:
        """What the routing model is asked."""
        lines = [
            "Choose which language model should handle the request below. Prefer the model most likely to get it right; "
            "between equals, the cheaper one.",
            "",
            "Models:",
            *(self._describe(context, i) for i in range(len(context.candidates))),
        ]
        dimension = dimension_of(context.group)
        if self.config.dimension and dimension:
            lines += ["", f"Kind of task: {dimension}"]
        if context.role:
            lines += ["", f"The model will act as: {context.role}"]
        text = context.text or context.task.goal or "(no text)"
        if len(text) > MOST_TEXT:
            text = f"{text[: MOST_TEXT // 2]}\n[...]\n{text[-MOST_TEXT // 2 :]}"
        lines += ["", "Request:", "<<<", text, ">>>", ""]
        lines.append('Answer with one JSON object and nothing else: {"model": "<one of the names above>"}')
        return "\n".join(lines)

    def _describe(self, context: StepContext, index: int) -> str:
        candidate = context.candidates[index]
        model, facts = candidate.model, []
        if model.size_b is not None:
            facts.append(f"{model.size_b:g}B parameters")
        if model.price != "unknown":
            facts.append(f"${model.price.input:g} in, ${model.price.output:g} out per million tokens")
        if self.config.statistics:
            dimension = dimension_of(context.group)
            count, mean = self.means.counted(dimension, candidate.name)
            if count:
                facts.append(f"mean score {mean:.2f} over {count} requests of this kind")
            calls, usd = self._costs.get(candidate.name, (0, 0.0))
            if calls:
                facts.append(f"${usd / calls:.5f} per request so far")
        return f"- {candidate.name}" + (f": {'; '.join(facts)}" if facts else "")

    def _fallback(self, context: StepContext) -> Floats:
        priors = {candidate.name: candidate.model.prior for candidate in context.candidates}
        if self.config.fallback == "cheapest":
            return -total_cost(context)
        if self.config.fallback == "record":
            priors = self.means.estimate(dimension_of(context.group), priors)
        return np.array([priors[name] for name in context.names])

    def _through(self, backend: Backend | None) -> Ask:
        assert backend is not None

        def ask(prompt: str) -> str:
            response = backend.complete(
                ChatRequest(
                    self.config.model,
                    [{"role": "user", "content": prompt}],
                    temperature=0.0,
                    max_tokens=self.config.max_tokens,
                    timeout=self.config.timeout,
                    extra={"role": "router"},
                )
            )
            self.tokens += response.usage.prompt_tokens + response.usage.completion_tokens
            return response.content

        return ask

    def _load(self) -> Backend:
        config = self.config
        points = {point.name: point for point in entry_points(group="steproute.backends")}
        backend = config.backend or ("local" if _weights(config.model) else "")
        if not backend or not config.model:
            raise ConfigError(
                f"policy llm: backend and model: seen {config.backend!r} and {config.model!r}; needed: the routing model's "
                f"name and one of {', '.join(sorted(points))}; or give `ask` or `backend` in Python"
            )
        if backend not in points:
            raise ConfigError(unknown_name("policy llm: backend", backend, points))
        settings = dict(config.backend_settings)
        if backend == "local":
            settings.setdefault("models", {config.model: config.model})
        try:
            loaded: Backend = points[backend].load()(**settings)
        except TypeError as error:
            raise ConfigError(f"policy llm: backend_settings: {error}") from None
        return loaded


def parse_answer(answer: str, names: list[str]) -> str | None:
    """The candidate an answer names: `{"model": NAME}` or NAME alone, spaces around it aside; None for anything else."""
    text = answer.strip()
    if text in names:
        return text
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(data, dict) and set(data) == {"model"} and data["model"] in names:
        return str(data["model"])
    return None


def _weights(model: str) -> bool:
    """Whether a model's name is that of weights which this machine can load."""
    return model.startswith("package:") or model.lower().endswith(".gguf")
