"""tau2 as a benchmark: its tasks, its user simulator, its orchestrator and its evaluator around our agent."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steproute.approval import SpendingCap, approval_file, approve_beside
from steproute.benchmarks.options import RunOptions
from steproute.benchmarks.protocol import Benchmark
from steproute.benchmarks.seat import Played, Seat
from steproute.benchmarks.tau2.package import load_tau2
from steproute.errors import ConfigError, unknown_name
from steproute.models import Model
from steproute.progress import View
from steproute.progress.outlook import CalibratedToolsView
from steproute.progress.views import ToolsView
from steproute.router import Router

logger = logging.getLogger("steproute")

PROGRESS: Mapping[str, View] = {"outlook": CalibratedToolsView(), "tools": ToolsView()}


@dataclass
class Options(RunOptions):
    """The settings of a run."""

    framework: str = "tau2"
    domain: str = "airline"
    split: str | None = None
    """Task split of the domain; None = the domain's default."""
    tasks: tuple[str, ...] = ()
    """Ids to run; none = all."""
    checkout: Path | None = None
    """A clone of tau2-bench in place of the installed package."""
    user: str = "user_simulator"
    """Name in tau2's registry."""
    user_model: str = "openai/gpt-4.1"
    """LiteLLM name of the model that plays the customer."""
    user_base_url: str | None = None
    """Its server; None = the provider's."""
    temperature: float | None = 0.0
    max_tokens: int | None = None
    max_steps: int = 100
    max_errors: int = 10
    progress: str = "outlook"
    """Progress view: `outlook` = the chance of success, fitted on recorded airline runs; `tools` = what each step moved."""

    def check(self) -> None:
        """See `RunOptions.check`."""
        super().check()
        if self.progress not in PROGRESS:
            raise ConfigError(unknown_name("progress", self.progress, PROGRESS))


class Tau2(Benchmark):
    """One domain of tau2-bench."""

    name = "tau2"
    frameworks = ("tau2",)

    def __init__(self, options: Options):
        self.options: Options = options
        self._tasks: dict[str, Any] = {}
        self._cap: SpendingCap | None = None
        self._dearest = 0.0
        """USD of the customer's dearest conversation so far."""

    def tasks(self) -> list[str]:
        """Ids `DOMAIN/NUMBER`, in the benchmark's order; a customer who would be paid for has to be approved."""
        self._registry = load_tau2(self.options.checkout)
        from steproute.benchmarks.tau2.agent import register

        register(self._registry)
        for name, known in (("domain", self._registry.get_domains()), ("user", self._registry.get_users())):
            if getattr(self.options, name) not in known:
                raise ConfigError(unknown_name(name, getattr(self.options, name), known))
        load = self._registry.get_tasks_loader(self.options.domain)
        loaded = load() if self.options.split is None else load(self.options.split)
        self._tasks = {f"{self.options.domain}/{task.id}": task for task in loaded}
        wanted = [item if item in self._tasks else f"{self.options.domain}/{item}" for item in self.options.tasks]
        for item in wanted:
            if item not in self._tasks:
                raise ConfigError(unknown_name("tasks", item, self._tasks))
        if self.options.user == "user_simulator":
            self._cap = approve_beside(self.options.user_model, self.options.user_base_url, approval_file())
        return wanted or list(self._tasks)

    def router(self, policy: str, pool: Sequence[Model]) -> Router:
        """The router of one policy, with the progress view that the options name."""
        views = {"tools": PROGRESS[self.options.progress]}
        budget, seed = self.options.budget(), self.options.seed
        return Router(pool, budget, policy, seed=seed, views=views, idle_timeout=float("inf"))

    def play(self, seat: Seat) -> Played:
        """One conversation, graded by tau2's evaluator: reward 0 unless it ended by a stop."""
        from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation
        from tau2.orchestrator.orchestrator import Orchestrator

        from steproute.benchmarks.tau2.agent import build

        options, task = self.options, self._tasks[seat.id]
        seat.describe("", "tools", dimension=options.domain, source=self.name)
        environment = self._registry.get_env_constructor(options.domain)()
        sampling = {"temperature": options.temperature, "max_tokens": options.max_tokens}
        agent = build(self._registry, environment, seat, {k: v for k, v in sampling.items() if v is not None})
        conversation = Orchestrator(
            domain=options.domain,
            agent=agent,
            user=self._customer(environment, task),
            environment=environment,
            task=task,
            max_steps=options.max_steps,
            max_errors=options.max_errors,
            seed=options.seed,
        )
        paid = None if self._cap is None else self._cap.reserve(self.name, options.user_model, self._dearest)
        simulation = conversation.run()
        if self._cap is not None and paid is not None:
            self._dearest = max(self._dearest, simulation.user_cost or 0.0)
            self._cap.settle(paid, simulation.user_cost or 0.0)
        score, breakdown = 0.0, {}
        more: dict[str, Any] = {}
        try:
            reward = evaluate_simulation(
                simulation=simulation,
                task=task,
                evaluation_type=EvaluationType.ALL,
                solo_mode=False,
                domain=options.domain,
            )
        except Exception as error:  # a check that misses what it looks for; newer versions say 0 too
            more["evaluation_fault"] = f"{type(error).__name__}: {error}"[:500]
            logger.warning("tau2's evaluator failed on %s (reward 0): %s", seat.id, more["evaluation_fault"])
            logger.debug("traceback", exc_info=True)
        else:
            score, found = float(reward.reward), reward.reward_breakdown or {}
            breakdown = {getattr(key, "value", str(key)): value for key, value in found.items()}
        return seat.played(
            score >= 1 - 1e-6,
            score,
            ended=getattr(simulation.termination_reason, "value", str(simulation.termination_reason)),
            messages=len(simulation.messages),
            tool_errors=sum(bool(getattr(message, "error", False)) for message in simulation.messages),
            reward_breakdown=breakdown,
            user_usd=simulation.user_cost,
            **more,
        )

    def _customer(self, environment: Any, task: Any) -> Any:
        try:
            tools = environment.get_user_tools() or None
        except ValueError:  # tau2's way to say that the domain has none
            tools = None
        settings: dict[str, Any] = {"temperature": 0.0, "num_retries": 3}
        if self.options.user_base_url is not None:
            settings["api_base"] = self.options.user_base_url
        constructor = self._registry.get_user_constructor(self.options.user)
        return constructor(
            tools=tools, instructions=str(task.user_scenario), llm=self.options.user_model, llm_args=settings
        )
