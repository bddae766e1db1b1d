"""Plays a benchmark's tasks under one policy after the other: resumable, in parallel, never losing what is done."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from steproute.approval import stop_if_refused
from steproute.backend import Backend
from steproute.benchmarks.backends import open_backend
from steproute.benchmarks.options import RunOptions
from steproute.benchmarks.protocol import Benchmark, ProgressReport, Result, Stage
from steproute.benchmarks.resume import teach
from steproute.benchmarks.rundir import RunDirectory
from steproute.benchmarks.seat import Played, Seat
from steproute.benchmarks.summary import judged, summarise
from steproute.errors import BudgetExceeded, ConfigError, NoEligibleModel, unknown_name
from steproute.ledger import Ledger, Task
from steproute.models import Model
from steproute.router import Router
from steproute.testing.mismatch import CassetteMismatch

logger = logging.getLogger("steproute")


def run(
    benchmark: Benchmark,
    pool: Sequence[Model],
    progress: ProgressReport = lambda *_: None,
    backend: Backend | None = None,
) -> Result:
    """Play every task of the benchmark under every policy.

    A task that ends in a fault (a server that stays away, an error of the benchmark's own package) is logged, counted
    and written with its error; the run goes on. A hard limit that is reached ends its task as failed.

    Args:
        benchmark: what to play; its `options` are the run's settings.
        pool: the candidate models.
        progress: called as the run goes on.
        backend: serves the models; None = the one the options name.

    Raises:
        ConfigError: a setting is wrong, there is nothing to run, or paid calls are not approved (any more).
        CassetteMismatch: the recordings do not hold a request.
    """
    options = benchmark.options
    options.check()
    policies = expand(options.policies, pool)
    for policy in policies:
        benchmark.router(policy, pool)  # a wrong name shows before minutes of reading
    if options.framework not in benchmark.frameworks:
        raise ConfigError(unknown_name("framework", options.framework, benchmark.frameworks))
    order = shuffled(benchmark.tasks(), options)
    deployments = {model.name: model.provider_name for model in pool}
    with open_backend(options, pool, benchmark.name) if backend is None else nullcontext(backend) as models:
        settings = _settings(options, policies, pool, order)
        if options.resume and options.out is not None:
            folder = RunDirectory.reopen(options.out, benchmark.name, settings)
        else:
            folder = RunDirectory.create(benchmark.name, settings, options.out)
        benchmark.prepare(Stage(order, models, deployments, folder.path, progress))
        rows: list[dict[str, Any]] = []
        verdicts: dict[str, dict[str, float]] = {}
        for number, policy in enumerate(policies):
            router = benchmark.router(policy, pool)
            done = {row["task"]: row for row in folder.tasks() if row["policy"] == policy}
            teach(router, [row for row in folder.steps() if row["policy"] == policy], done, options.outcomes)
            rows += done.values()
            seat = partial(_seat, policy, options.framework, router, models, deployments)
            todo = [partial(_play, benchmark, seat(key), options.outcomes) for key in order if key not in done]
            at = number * len(order) + len(done)
            progress(policy, at, len(policies) * len(order))
            for position, played in enumerate(_results(todo, options.jobs), start=1):
                folder.add(played.steps, played.task)
                rows.append(played.task)
                progress(policy, at + position, len(policies) * len(order))
            verdicts[policy] = judged(router)
        progress("done", 1, 1)
    summary = summarise(rows, pool, options.price_of_second or 0.0, options.power_w, options.value_usd or 0.0)
    summary = [{**row, **({"evidence": found} if (found := verdicts.get(row["policy"])) else {})} for row in summary]
    folder.summary(summary)
    return Result(folder.path, summary, sum(bool(row.get("error")) for row in rows))


def expand(policies: Sequence[str], pool: Sequence[Model]) -> list[str]:
    """`fixed:*` becomes one policy per model."""
    named: list[str] = []
    for policy in policies:
        named += [f"fixed:{model.name}" for model in pool] if policy == "fixed:*" else [policy]
    return list(dict.fromkeys(named))


def shuffled(tasks: Sequence[str], options: RunOptions) -> list[str]:
    """The first `limit` tasks, in an order drawn by the seed.

    Raises:
        ConfigError: there are none.
    """
    wanted = list(tasks)[: options.limit]
    if not wanted:
        raise ConfigError("no task to run")
    return [wanted[i] for i in np.random.default_rng(options.seed).permutation(len(wanted))]


def _seat(
    policy: str, framework: str, router: Router, backend: Backend, deployments: dict[str, str], task: str
) -> Seat:
    return Seat(task, policy, framework, router, backend, deployments, Ledger(task=Task(id=task)))


def _play(benchmark: Benchmark, seat: Seat, outcomes: bool) -> Played:
    try:
        played = benchmark.play(seat)
    except (CassetteMismatch, ConfigError, ImportError):
        raise
    except (BudgetExceeded, NoEligibleModel) as error:
        played = seat.played(False, ended=str(error))
    except Exception as error:  # one task's fault must not take the run along: it is logged and counted in the summary
        logger.warning("task %s under %s failed: %s: %s", seat.id, seat.policy, type(error).__name__, error)
        logger.debug("traceback", exc_info=True)
        played = seat.played(False, error=f"{type(error).__name__}: {error}"[:1000])
    stop_if_refused(seat.backend)
    known = outcomes and not played.task.get("error")
    seat.router.finish(
        seat.id,
        success=bool(played.task["passed"]) if known else None,
        reward=played.task.get("reward") if known else None,
    )
    return played


def _results(todo: Sequence[Callable[[], Played]], jobs: int) -> Iterator[Played]:
    """What the calls give, in order of completion; at most `jobs` run at one time."""
    if jobs == 1:
        for play in todo:
            yield play()
        return
    with ThreadPoolExecutor(jobs) as workers:
        waiting: set[Future[Played]] = set()
        left = iter(todo)
        try:
            while True:
                for play in left:
                    waiting.add(workers.submit(play))
                    if len(waiting) == jobs:
                        break
                if not waiting:
                    return
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for item in finished:
                    yield item.result()
        finally:
            workers.shutdown(wait=False, cancel_futures=True)


def _settings(
    options: RunOptions, policies: Sequence[str], pool: Sequence[Model], order: Sequence[str]
) -> dict[str, Any]:
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
