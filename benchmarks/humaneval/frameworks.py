"""How the team is run: as an AG2 group chat, or as a plain loop with the same messages and decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from steproute.backend import Backend, BackendError
from steproute.benchmarks.humaneval import team
from steproute.benchmarks.humaneval.solve import Solving
from steproute.benchmarks.humaneval.tree import request
from steproute.errors import ConfigError, unknown_name
from steproute.ledger import Outcome

Run = Callable[[Solving, Backend, Mapping[str, str]], None]
"""Takes a problem, the backend and the pool (name → deployment), and lets the team work until it ends."""


def run_ag2(solving: Solving, backend: Backend, models: Mapping[str, str]) -> None:
    """A real AG2 (≥ 1.0) group chat in fixed speaker order; `attach` is what routes it."""
    from steproute.benchmarks.humaneval.ag2_chat import run_chat
    from steproute.plugins.ag2 import attach
    from steproute.plugins.ag2.backend import BackendConfig

    configs = {
        name: BackendConfig(
            backend,
            deployment,
            temperature=0,
            max_tokens=team.MAX_TOKENS,
            stop=team.STOP,
            seed=0,
            extra={"task": solving.problem.id},
        )
        for name, deployment in models.items()
    }
    first = next(iter(configs.values()))

    def route(agents: Any, hub: Any) -> None:
        attach(solving.router, *agents, models=configs, task=solving.ledger)

    asyncio.run(
        run_chat(
            team.problem_message(solving.problem.prompt),
            team.CODER,
            team.FIXER,
            first,
            first,
            solving.test,
            team.MAX_ATTEMPTS,
            setup=route,
        )
    )


def run_plain(solving: Solving, backend: Backend, models: Mapping[str, str]) -> None:
    """The same team without a framework."""
    role = "coder"
    while True:
        messages = solving.node.messages(solving.problem)
        decision = solving.router.decide(
            solving.ledger, role, prompt_tokens=solving.prompt_tokens(), max_tokens=team.MAX_TOKENS
        )
        ask = request(solving.problem, messages, models[decision.model.name])
        try:
            response = backend.complete(ask)
        except BackendError as error:
            solving.router.observe(decision, Outcome(error=str(error)))
            if len(solving.router.decisions(solving.task.id)) >= len(models) * team.MAX_ATTEMPTS:
                raise
            continue
        outcome = Outcome(
            prompt_tokens=response.usage.prompt_tokens,
            completion_tokens=response.usage.completion_tokens,
            cached_tokens=response.usage.cached_tokens,
            tokens_estimated=response.usage.estimated,
            seconds=response.seconds,
        )
        solving.router.observe(decision, outcome, output=response.content)
        if solving.test(response.content) is None:
            return
        role = "fixer"


def run_langgraph(solving: Solving, backend: Backend, models: Mapping[str, str]) -> None:
    """A LangGraph graph of coder, tester and fixer; a `RoutedChatModel` is what routes it."""
    from steproute.benchmarks.humaneval.langgraph_chat import run_langgraph

    run_langgraph(solving, backend, models)


def run_litellm(solving: Solving, backend: Backend, models: Mapping[str, str]) -> None:
    """A plain loop through `litellm.Router`; a `StepRouting` among its callbacks is what routes it."""
    from steproute.benchmarks.humaneval.litellm_chat import run_litellm

    run_litellm(solving, backend, models)


FRAMEWORKS: Mapping[str, Run] = {
    "ag2": run_ag2,
    "langgraph": run_langgraph,
    "litellm": run_litellm,
    "plain": run_plain,
}


def framework(name: str) -> Run:
    """The framework of that name.

    Raises:
        ConfigError: there is none.
    """
    try:
        return FRAMEWORKS[name]
    except KeyError:
        raise ConfigError(unknown_name("framework", name, FRAMEWORKS)) from None
