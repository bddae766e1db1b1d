"""The main job: policies side by side on the same problems, by the same team, with the same recordings or live models."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steproute.backend import Backend
from steproute.benchmarks.humaneval import backends
from steproute.benchmarks.humaneval.frameworks import framework
from steproute.benchmarks.humaneval.models import candidates
from steproute.benchmarks.humaneval.problems import Problem, load_problems, recording_order
from steproute.benchmarks.humaneval.solve import Solving
from steproute.benchmarks.humaneval.tester import Tester
from steproute.benchmarks.humaneval.tree import Node, build_tree
from steproute.benchmarks.rundir import RunDirectory
from steproute.benchmarks.summary import summarise
from steproute.budget import Budget, Limit
from steproute.errors import ConfigError
from steproute.models import Model
from steproute.router import Router
from steproute.verify.cache import VerdictCache
from steproute.verify.sandbox import Sandbox

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, done so far, of how many)."""


@dataclass
class Options:
    """The settings of a run; the command line's options have the same names."""

    policies: Sequence[str]
    framework: str = "ag2"
    backend: str = "cassette"
    seed: int = 0
    limit: int | None = None
    """Take only the first so many problems."""
    models: Sequence[str] = ()
    """`name` of a recorded model, or `name=deployment`."""
    cassettes: Path | None = None
    base_url: str | None = None
    """Server of a live backend."""
    problems: Path | None = None
    """Another problem file of HumanEval's format."""
    price_of_second: float = 0.005
    """What a second of compute is worth in solved problems: 0.005 = 200 s a problem."""
    seconds_limit: float = 120.0
    """Soft limit of compute per problem, for policies that weigh a budget."""
    power_w: float | None = None
    outcomes: bool = False
    """Tell the router each task's final result, as a user who accepts or rejects it would; else it never learns it."""
    out: Path | None = None

    def check(self) -> None:
        """Refuse what no run could use.

        Raises:
            ConfigError: names the option, what was seen and what is allowed.
        """
        if not self.policies:
            raise ConfigError("policy: none given; `steproute policies` lists them")
        for name, least in (("seed", 0), ("limit", 1)):
            whole = getattr(self, name)
            if whole is not None and whole < least:
                raise ConfigError(f"{name}: seen {whole}; allowed: a whole number of {least} or more")
        for name in ("price_of_second", "seconds_limit", "power_w"):
            amount = getattr(self, name)
            if amount is not None and not (math.isfinite(amount) and amount > 0):
                raise ConfigError(f"{name}: seen {amount:g}; allowed: a finite number above 0")


@dataclass
class Result:
    """What a run leaves behind."""

    path: Path
    summary: list[dict[str, Any]]


class HumanEval:
    """The benchmark, as `steproute run humaneval` starts it."""

    name = "humaneval"
    options = Options

    def run(self, options: Options, progress: Progress = lambda *_: None) -> Result:
        """Run every policy on every problem.

        Raises:
            ConfigError: a setting is wrong, or there is nothing to run.
        """
        options.check()
        pool = candidates(options.models, options.power_w)
        policies = expand(options.policies, pool)
        for policy in policies:
            self._router(options, policy, pool)  # a wrong name shows before minutes of reading
        team = framework(options.framework)
        problems = load_problems(options.problems)
        deployments = {model.name: model.provider_name for model in pool}
        with backends.open_backend(options, pool) as backend:
            order = self._tasks(options, problems)
            folder = RunDirectory.create(self.name, _settings(options, policies, pool, order), options.out)
            tester = self._tester(options, folder.path.parent / "verdicts.jsonl")
            trees = self._trees(options, order, problems, backend, deployments, tester, progress)
            rows: list[dict[str, Any]] = []
            for number, policy in enumerate(policies):
                router = self._router(options, policy, pool)
                for position, key in enumerate(order):
                    progress(policy, number * len(order) + position, len(policies) * len(order))
                    root = trees.get(key) or Node(0, None, "")
                    solving = Solving(problems[key], router, tester, options.price_of_second, root)
                    if trees:
                        self._standing[key] = solving
                    team(solving, backend, deployments)
                    steps, task = solving.rows(policy)
                    router.finish(key, success=task["passed"] if options.outcomes else None)
                    for step in steps:
                        folder.step(step)
                    folder.task(task)
                    rows.append(task)
            progress("done", 1, 1)
        summary = summarise(rows, pool, options.price_of_second, options.power_w)
        folder.summary(summary)
        return Result(folder.path, summary)

    def __init__(self) -> None:
        self._standing: dict[str, Solving] = {}

    def _tester(self, options: Options, kept: Path) -> Tester:
        verdicts = examples = VerdictCache(kept)
        if options.backend == "cassette":
            recorded = backends.cassette_folder(options.cassettes) / backends.VERDICTS
            if recorded.exists():
                examples = VerdictCache(recorded, python=backends.recorded_python(recorded), readonly=True)
        return Tester(Sandbox(), verdicts, examples)

    def _tasks(self, options: Options, problems: Mapping[str, Problem]) -> list[str]:
        """The problems of the run, in an order shuffled by the seed: the recorded ones, or all for a live backend."""
        recorded = None
        if options.backend == "cassette":
            recorded = backends.recorded_tasks(backends.cassette_folder(options.cassettes))
        wanted = [key for key in recording_order(dict(problems)) if recorded is None or key in recorded]
        if options.problems is not None and recorded is None:
            wanted = list(problems)
        if options.limit is not None:
            wanted = wanted[: options.limit]
        if not wanted:
            raise ConfigError("no problem to run: the recordings hold none of this problem file")
        return [wanted[i] for i in np.random.default_rng(options.seed).permutation(len(wanted))]

    def _trees(
        self,
        options: Options,
        order: Sequence[str],
        problems: Mapping[str, Problem],
        backend: Backend,
        deployments: Mapping[str, str],
        tester: Tester,
        progress: Progress,
    ) -> dict[str, Node]:
        """Everything that could happen, where a recording knows it; empty for live models."""
        if options.backend != "cassette":
            return {}
        trees = {}
        for position, key in enumerate(order):
            progress("reading the recorded trees", position, len(order))
            trees[key] = build_tree(problems[key], backend, deployments, tester)
        return trees

    def _router(self, options: Options, policy: str, pool: Sequence[Model]) -> Router:
        def facts(ledger: Any) -> Mapping[str, Any]:
            solving = self._standing.get(ledger.task.id)
            q = None if solving is None else solving.q()
            return {} if q is None else {"q": q}

        if policy == "oracle" and options.backend != "cassette":
            raise ConfigError(
                "policy oracle: needs --backend cassette; live models have no known value of every choice"
            )
        settings: Mapping[str, Mapping[str, Any]] = {
            "progrouter": {"V": 1 / options.price_of_second},  # full progress in seconds, the unit of its budget here
            "cascade": {"failing": "unsolved"},  # two thirds of the examples passed is not solved
        }
        setting: Any = {"name": policy, **settings[policy]} if policy in settings else policy
        budget = Budget(seconds=Limit(limit=options.seconds_limit, hard=False, value=options.price_of_second))
        knows = facts if policy == "oracle" else None
        return Router(pool, budget, setting, seed=options.seed, facts=knows, idle_timeout=float("inf"))


def expand(policies: Sequence[str], pool: Sequence[Model]) -> list[str]:
    """`fixed:*` becomes one policy per model."""
    named: list[str] = []
    for policy in policies:
        named += [f"fixed:{model.name}" for model in pool] if policy == "fixed:*" else [policy]
    return list(dict.fromkeys(named))


def _settings(options: Options, policies: Sequence[str], pool: Sequence[Model], order: Sequence[str]) -> dict[str, Any]:
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()}
    return {
        **plain,
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "policies": list(policies),
        "models": [
            {
                "name": model.name,
                "deployment": model.provider_name,
                "size_b": model.size_b,
                "family": model.family,
                "price": "unknown" if model.price == "unknown" else model.price.model_dump(),
            }
            for model in pool
        ],
        "tasks": list(order),
    }
