"""The main job: policies side by side on the same problems, by the same team, with the same recordings or live models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steproute.benchmarks.backends import cassette_folder
from steproute.benchmarks.humaneval.backends import VERDICTS, recorded_python, recorded_tasks
from steproute.benchmarks.humaneval.frameworks import FRAMEWORKS, framework
from steproute.benchmarks.humaneval.models import candidates
from steproute.benchmarks.humaneval.problems import Problem, load_problems, recording_order
from steproute.benchmarks.humaneval.solve import Solving
from steproute.benchmarks.humaneval.tester import Tester
from steproute.benchmarks.humaneval.tree import Node, build_tree
from steproute.benchmarks.options import RunOptions
from steproute.benchmarks.protocol import Benchmark, ProgressReport, Result, Stage
from steproute.benchmarks.runner import expand, run
from steproute.benchmarks.seat import Played, Seat
from steproute.budget import Budget, Limit
from steproute.errors import ConfigError
from steproute.models import Model
from steproute.router import Router
from steproute.verify.cache import VerdictCache
from steproute.verify.sandbox import Sandbox

__all__ = ["HumanEval", "Options", "Result", "expand"]


@dataclass
class Options(RunOptions):
    """The settings of a run."""

    framework: str = "ag2"
    backend: str = "cassette"
    models: Sequence[str] = ()
    """`name` of a recorded model, or `name=deployment`."""
    price_of_second: float = 0.005
    """What a second of compute is worth in solved problems: 0.005 = 200 s a problem."""
    seconds_limit: float = 120.0
    """Soft limit of compute per problem, for policies that weigh a budget."""
    problems: Path | None = None
    """Another problem file of HumanEval's format."""


class HumanEval:
    """The benchmark, as `steproute run humaneval` starts it."""

    name = "humaneval"

    def run(self, options: Options, progress: ProgressReport = lambda *_: None) -> Result:
        """Run every policy on every problem.

        Raises:
            ConfigError: a setting is wrong, or there is nothing to run.
        """
        options.check()
        return run(_Team(options), candidates(options.models, options.power_w), progress)


class _Team(Benchmark):
    """A team of agents at work on HumanEval."""

    name = HumanEval.name
    frameworks = tuple(FRAMEWORKS)

    def __init__(self, options: Options):
        self.options: Options = options
        self._problems: Mapping[str, Problem] = {}
        self._trees: dict[str, Node] = {}
        self._standing: dict[str, Solving] = {}

    def tasks(self) -> list[str]:
        """The recorded problems, or all for a live backend."""
        self._problems = load_problems(self.options.problems)
        recorded = None
        if self.options.backend == "cassette":
            recorded = recorded_tasks(cassette_folder(self.options.cassettes, self.name))
        elif self.options.problems is not None:
            return list(self._problems)
        wanted = [key for key in recording_order(dict(self._problems)) if recorded is None or key in recorded]
        if not wanted:
            raise ConfigError("no problem to run: the recordings hold none of this problem file")
        return wanted

    def prepare(self, stage: Stage) -> None:
        """Read everything that could happen, where a recording knows it."""
        self._tester = self._judge(stage.folder.parent / "verdicts.jsonl")
        if self.options.backend == "cassette":
            for position, key in enumerate(stage.order):
                stage.progress("reading the recorded trees", position, len(stage.order))
                self._trees[key] = build_tree(self._problems[key], stage.backend, stage.deployments, self._tester)

    def play(self, seat: Seat) -> Played:
        """Let the team work on the problem."""
        root = self._trees.get(seat.id) or Node(0, None, "")
        problem = self._problems[seat.id]
        solving = Solving(problem, seat.router, self._tester, self.options.price_of_second, root)
        if self._trees:
            self._standing[seat.id] = solving
        framework(seat.framework)(solving, seat.backend, seat.deployments)
        return Played(*solving.rows(seat.policy))

    def router(self, policy: str, pool: Sequence[Model]) -> Router:
        """The router of one policy, with the settings this team calls for."""

        def facts(ledger: Any) -> Mapping[str, Any]:
            solving = self._standing.get(ledger.task.id)
            q = None if solving is None else solving.q()
            return {} if q is None else {"q": q}

        if policy == "oracle" and self.options.backend != "cassette":
            raise ConfigError(
                "policy oracle: needs --backend cassette; live models have no known value of every choice"
            )
        price = self.options.price_of_second
        settings: Mapping[str, Mapping[str, Any]] = {
            "progrouter": {"V": 1 / price},  # full progress in seconds, the unit of its budget here
            "cascade": {"failing": "unsolved"},  # two thirds of the examples passed is not solved
        }
        setting: Any = {"name": policy, **settings[policy]} if policy in settings else policy
        budget = Budget(seconds=Limit(limit=self.options.seconds_limit, hard=False, value=price))
        knows = facts if policy == "oracle" else None
        return Router(pool, budget, setting, seed=self.options.seed, facts=knows, idle_timeout=float("inf"))

    def _judge(self, kept: Path) -> Tester:
        verdicts = examples = VerdictCache(kept)
        if self.options.backend == "cassette":
            recorded = cassette_folder(self.options.cassettes, self.name) / VERDICTS
            if recorded.exists():
                examples = VerdictCache(recorded, python=recorded_python(recorded), readonly=True)
        return Tester(Sandbox(), verdicts, examples)
