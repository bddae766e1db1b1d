"""What a benchmark is: tasks, how one is played by an agent with a routed model, how it is graded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from steproute.backend import Backend
from steproute.benchmarks.options import RunOptions
from steproute.benchmarks.seat import Played, Seat
from steproute.models import Model
from steproute.router import Router

ProgressReport = Callable[[str, int, int], None]
"""Called with (what is being done, done so far, of how many)."""


@dataclass(frozen=True)
class Stage:
    """What a run has set up before its first task."""

    order: Sequence[str]
    """Ids of the tasks, in the order they will be played."""
    backend: Backend
    deployments: Mapping[str, str]
    """Pool name → name the backend knows."""
    folder: Path
    """The run's folder."""
    progress: ProgressReport


class Benchmark(Protocol):
    """A set of tasks that `run` plays under every policy. Inherit from it for the defaults of `prepare` and `router`.

    One object serves one run. `play` may be called from several threads at once.
    """

    name: str
    """As in `steproute run NAME`."""
    options: RunOptions
    frameworks: Sequence[str]
    """Allowed values of the option `framework`."""

    def tasks(self) -> Sequence[str]:
        """Ids of all tasks, in the benchmark's own order; the runner applies `limit` and shuffles.

        Raises:
            ConfigError: there is nothing to run.
            ImportError: the benchmark's package is missing; names the extra.
        """
        ...

    def play(self, seat: Seat) -> Played:
        """Let the agent work on the task `seat.id` until it ends, grade it, and return `seat.played(...)`.

        The models are called through `seat.call`, or by a plugin given `seat.router`, `seat.backend`, `seat.deployments`
        and `seat.ledger`; evidence and tool results go to `seat.report`. `seat.ledger.task.domain` chooses the progress view.
        """
        ...

    def prepare(self, stage: Stage) -> None:
        """Called once before the first task."""
        return None

    def router(self, policy: str, pool: Sequence[Model]) -> Router:
        """The router of one policy.

        Raises:
            ConfigError: there is no such policy.
        """
        return Router(pool, self.options.budget(), policy, seed=self.options.seed, idle_timeout=float("inf"))


@dataclass
class Result:
    """What a run leaves behind."""

    path: Path
    summary: list[dict[str, Any]] = field(default_factory=list)
    """One object per policy, as in `summary.json`."""
    errors: int = 0
    """Tasks that ended in a fault instead of a result; `--resume` tries them again."""
