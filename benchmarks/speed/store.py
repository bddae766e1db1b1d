"""What the store costs, and what it holds.

`python benchmarks/speed/store.py overhead` · CPU that a SQLite store adds to decide + observe, its commit included.
`... million [--rows N]` · explain, log and restart with N logged decisions.
`... restarts --store FILE [--only knn,acrouter]` · every policy of the registry on a file of N decisions, made where there is
none: its start from the log, the longest that a step then waits for snapshots, its restart, whether it then decides as before.
`... workers [--store URL] [--workers 8 --tasks 200 --steps 5]` · several processes on one store: throughput, latency, and
whether an outcome was lost or a limit passed.

All times say what the machine was doing: on a busy one, waits are the other programs'.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from steproute import Budget, BudgetExceeded, Evidence, Limit, Model, Outcome, Price, Router, Task
from steproute.store import Store

out = sys.stdout.write
CANDIDATES = 8
STEPS = 10


def candidates() -> list[Model]:
    """Eight models of doubling size and price."""
    return [Model(f"m{i}", price=Price(input=0.1 * 2**i, output=0.4 * 2**i), size_b=2.0**i) for i in range(CANDIDATES)]


def budget() -> Budget:
    """A hard limit, a soft one and a long-run target, none of which is reached."""
    return Budget(usd=1e6, seconds=Limit(limit=1e9, hard=False), tokens=Limit(target=1e4))


def make(store: Store | None, policy: str) -> Router:
    """A router that lets its faults through."""
    return Router(candidates(), budget(), policy, seed=0, on_error="raise", store=store)


RECORDING = {"q": {f"m{i}": 0.1 * i for i in range(CANDIDATES)}}


def stepper(router: Router, texts: bool = False) -> Callable[[], None]:
    """One decision and its outcome, of a step with a text of its own where asked; a task ends after `STEPS` of them."""
    numbers = iter(range(10**9))

    def step() -> None:
        number = next(numbers)
        task = f"task-{number // STEPS}"
        text = (
            f"ticket {number}: the {number % 89}th function returns {number % 53} for {number % 97}" if texts else None
        )
        decision = router.decide(
            Task(id=task, domain="code"), "coder", prompt_tokens=900, max_tokens=256, text=text, extra=RECORDING
        )
        evidence = [Evidence(source="syntax", score=1.0), Evidence(source="examples", score=0.5, count=4)]
        found = Outcome(prompt_tokens=900, completion_tokens=120, seconds=1.5, evidence=evidence)
        router.observe(decision, found, output="def f(): return 1")
        if number % STEPS == STEPS - 1:
            router.finish(task, success=True)

    return step


def overhead(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """CPU per step without and with a store; rounds of both alternate."""
    target = options.store or str(folder / "overhead.db")
    sides = {"no store": stepper(make(None, options.policy)), "store": stepper(make(Store(target), options.policy))}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for step in sides.values():
        for _ in range(300):
            step()
    for _ in range(options.rounds):
        for name, step in sides.items():
            start = time.process_time_ns()
            for _ in range(50):
                step()
            times[name].append((time.process_time_ns() - start) / 50e6)
    found = {name: {"median_ms": statistics.median(t), "best_ms": min(t)} for name, t in times.items()}
    differences = [b - a for a, b in zip(times["no store"], times["store"], strict=True)]
    found["added"] = {
        "median_ms": statistics.median(differences),
        "best_ms": found["store"]["best_ms"] - found["no store"]["best_ms"],
    }
    return found


def million(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Fill a store by copying real steps many times over, then ask it."""
    path = folder / "million.db"
    router = make(Store(path), options.policy)
    step = stepper(router)
    for _ in range(2000):
        step()
    router.close()
    began = time.perf_counter()
    _multiply(path, options.rows)
    filled = time.perf_counter() - began
    from steproute.explain import explain
    from steproute.store.read import Filter, StoreReader

    reader = StoreReader(path)
    made = reader.counts()["decisions"]
    found: dict[str, Any] = {
        "decisions": made,
        "file_mb": round(path.stat().st_size / 1e6),
        "filled_s": round(filled, 1),
    }
    newest = next(reader.steps(limit=1, newest=True))["task"]
    for name, task in (("first", "task-0"), ("last", newest)):
        took = [_timed(partial(explain, reader, task)) for _ in range(5)]
        found[f"explain_{name}_task_ms"] = round(1e3 * statistics.median(took), 1)
    found["log_latest_50_ms"] = round(1e3 * _timed(lambda: list(reader.steps(limit=50, newest=True))), 1)
    found["log_one_model_50_ms"] = round(1e3 * _timed(lambda: list(reader.steps(Filter(model="m3"), 50))), 1)

    def start() -> None:
        make(Store(path), options.policy).close()

    found["restart_ms"] = round(1e3 * statistics.median([_timed(start) for _ in range(3)]), 1)
    return found


# --- every policy --------------------------------------------------------------------------------------------


def restarts(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Each policy learns from the end of a long log, is snapshotted, and started again in a process of its own."""
    from steproute.policies import policy_names

    path = Path(options.store or folder / "restarts.db")
    if not path.exists():
        _fill(path, options.rows)
    found: dict[str, Any] = {}
    context = multiprocessing.get_context("spawn")
    for name in options.only.split(",") if options.only else policy_names():
        answers: list[dict[str, Any]] = []
        for again in (False, True, True, True):
            ours, theirs = context.Pipe()
            process = context.Process(target=_start, args=(str(path), name, again, theirs))
            process.start()
            answers.append(ours.recv())
            process.join(60)
        _rewind(path, options.rows)
        found[name] = {
            "from_the_log_s": answers[0]["start_s"],
            "stall_ms": answers[0]["stall_ms"],
            "stall_cpu_ms": answers[0]["stall_cpu_ms"],
            "snapshot_mb": answers[0]["mb"],
            "restart_s": statistics.median(answer["start_s"] for answer in answers[1:]),
            "restart_cpu_s": statistics.median(answer["cpu_s"] for answer in answers[1:]),
            "as_before": float(all(answer["next"] == answers[0]["next"] for answer in answers[1:])),
        }
        if not options.json:
            out(f"  {name:16}{'  '.join(f'{key} {value:.3f}' for key, value in found[name].items())}\n")
    return found if options.json else {"decisions": float(options.rows)}


def _fill(path: Path, rows: int) -> None:
    """A store whose rows hold all that any policy reads: embeddings of requests and of states, and the trees' features."""
    from steproute.predict.dual_path import DualPathConfig, DualPathEstimator

    estimator = DualPathEstimator(DualPathConfig(min_rows=10_000_000))
    router = Router(
        candidates(), budget(), "acrouter", estimator=estimator, seed=0, on_error="raise", store=Store(path)
    )
    step = stepper(router, texts=True)
    for _ in range(2000):
        step()
    router.close()
    _multiply(path, rows)


def _start(path: str, name: str, again: bool, pipe: Any) -> None:
    """In a process of its own: start, decide once without an outcome, and (the first time) write a snapshot."""
    began, used = time.perf_counter(), time.process_time()
    router = Router(candidates(), budget(), _policy(name), seed=0, store=Store(path), on_error="raise")
    answer: dict[str, Any] = {"start_s": time.perf_counter() - began, "cpu_s": time.process_time() - used}
    if not again:
        trainer = getattr(router.estimator, "trainer", None)
        if trainer is not None:
            trainer.wait()
        step, took = stepper(router, texts=True), _watch(router)
        for _ in range(2500):
            step()
        if trainer is not None:
            trainer.wait()
        answer["stall_ms"], answer["stall_cpu_ms"] = max(t for t, _ in took), max(t for _, t in took)
        journal: Any = router._log
        journal._snapshots.write(journal.seq, {})
        answer["mb"] = _snapshot_mb(path)
    made = router.decide(Task(id="probe", domain="code"), "coder", prompt_tokens=900, text="ticket 12", extra=RECORDING)
    answer["next"] = (made.model.name, made.propensity, [(item.model, item.score) for item in made.candidates])
    router.close()
    pipe.send(answer)


def _rewind(path: Path, rows: int) -> None:
    """Take away what a policy added to the log, and its snapshots: the next one finds the file as this one did."""
    import sqlite3

    from steproute.store.schema import EVENTS

    connection = sqlite3.connect(path, isolation_level=None)
    top = (
        connection.execute("SELECT seq FROM decisions WHERE n = ?", (rows,)).fetchone()[0] + 3
    )  # its outcome, its lesson, the end of its task
    for table in EVENTS:
        latest = connection.execute(f"SELECT MAX(n) FROM {table.name} WHERE seq <= {top}").fetchone()[0] or 0
        connection.execute(f"DELETE FROM {table.name} WHERE n > {latest}")
    for name in ("snapshots", "blocks"):
        connection.execute(f"DELETE FROM {name}")
    connection.close()


def _watch(router: Router) -> list[tuple[float, float]]:
    """Milliseconds that every step waits for snapshots from now on: by the clock, and of CPU."""
    snapshots: Any = router._log._snapshots  # type: ignore[union-attr]
    after, took = snapshots.after, []

    def timed(*given: Any, **more: Any) -> None:
        began, used = time.perf_counter(), time.process_time()
        after(*given, **more)
        took.append((1e3 * (time.perf_counter() - began), 1e3 * (time.process_time() - used)))

    snapshots.after = timed
    return took


def _policy(name: str) -> Any:
    from steproute.policies.llm import LLMRouter

    if name == "llm":
        return LLMRouter(LLMRouter.Config(model="x", statistics=True), ask=lambda prompt: "")
    given: dict[str, Any] = {"fixed": "fixed:m3", "progrouter": {"name": "progrouter", "predictor": "meta"}}
    return given.get(name, name)


def _snapshot_mb(path: str) -> float:
    import sqlite3

    connection = sqlite3.connect(path)
    state, blocks = connection.execute("SELECT state, blocks FROM snapshots ORDER BY n DESC LIMIT 1").fetchone()
    size = len(state)
    for key in json.loads(blocks):
        size += connection.execute("SELECT LENGTH(text) FROM blocks WHERE digest = ?", (key,)).fetchone()[0]
    connection.close()
    return float(size) / 1e6


def _multiply(path: Path, rows: int) -> None:
    """Copy every event of the store under other tasks until there are so many decisions; a snapshot ends it."""
    import sqlite3

    from steproute.store.schema import EVENTS, metadata

    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    base, step = connection.execute("SELECT COUNT(*), MAX(seq) + 1 FROM decisions").fetchone()
    copies = max(rows // base - 1, 0)
    tables = (*EVENTS, metadata.tables["tasks"])
    ends = {
        table.name: connection.execute(f"SELECT MAX(rowid) FROM {table.name}").fetchone()[0] or 0 for table in tables
    }
    for copy in range(1, copies + 1):
        connection.execute("BEGIN")
        for table in tables:
            names = [column.name for column in table.columns if column.name != "n"]
            key = "id" if table.name == "tasks" else "task"
            picked = [_copied(name, key, copy, step) for name in names]
            connection.execute(
                f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {', '.join(picked)} FROM {table.name} "
                f"WHERE rowid <= {ends[table.name]}"
            )
        connection.execute("COMMIT")
    marks = {
        table.name: connection.execute(f"SELECT COALESCE(MAX(n), 0) FROM {table.name}").fetchone()[0]
        for table in EVENTS
    }
    connection.execute("UPDATE snapshots SET cursors = ?", (json.dumps(marks),))
    connection.close()


def _copied(name: str, key: str, copy: int, step: int) -> str:
    if name == key:
        return f"{name} || '/{copy}'"
    return f"seq + {copy * step}" if name == "seq" else name


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


# --- several workers -----------------------------------------------------------------------------------------

LIMIT = 0.002
"""Hard limit of a task in USD: what its steps ask for is more."""


def work(number: int, options: argparse.Namespace, target: str, pipe: Any) -> None:
    """One worker: its share of the tasks, every fifth of them together with its neighbour."""
    limited = Budget(usd=LIMIT, tokens=Limit(target=1e4))
    store = Store(target, shared=True, spool=Path(target + ".spool") if "://" not in target else None)
    router = Router(candidates(), limited, options.policy, seed=number, store=store, on_error="raise")
    pipe.send("ready")
    pipe.recv()
    times, calls, refused, began = [], 0, 0, time.process_time()
    for task in range(options.tasks):
        name = f"both-{number // 2}-{task}" if task % 5 == 0 else f"task-{number}-{task}"
        for step in range(options.steps):
            start = time.perf_counter()
            try:
                decision = router.decide(
                    Task(id=name, domain="code"), "coder", step=f"{number}-{step}", prompt_tokens=900, max_tokens=256
                )
            except BudgetExceeded:
                refused += 1
                continue
            found = Outcome(
                call_id=f"{name}/{number}/{step}", prompt_tokens=900, completion_tokens=200, seconds=1.0,
                evidence=[Evidence(source="examples", score=0.5, count=4)],
            )  # fmt: skip
            router.observe(decision, found, output="x")
            times.append(time.perf_counter() - start)
            calls += 1
        if task % 5:
            router.finish(name, success=True)
    used = time.process_time() - began
    router.close()
    pipe.send({"times": times, "calls": calls, "refused": refused, "cpu_s": used, "errors": router.errors})


def workers(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Start the workers at once, and count what the store holds when they are done."""
    target = options.store or str(folder / "workers.db")
    context = multiprocessing.get_context("spawn")
    links = []
    for number in range(options.workers):
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(number, options, target, theirs))
        process.start()
        links.append((process, ours))
    for _, pipe in links:
        pipe.recv()
    began = time.perf_counter()
    for _, pipe in links:
        pipe.send("go")
    results = [pipe.recv() for _, pipe in links]
    wall = time.perf_counter() - began
    for process, _ in links:
        process.join(60)
    times = sorted(t for result in results for t in result["times"])
    calls = sum(result["calls"] for result in results)
    held = dict(_held(target))
    return {
        "store": "sqlite" if "://" not in target else target.partition(":")[0],
        "workers": options.workers,
        "calls": calls,
        "refused_by_the_limit": sum(result["refused"] for result in results),
        "lost_outcomes": calls - held["outcomes"],
        "highest_spent_usd": held["highest"],
        "limit_usd": LIMIT,
        "overspent_tasks": held["over"],
        "reservations_left": held["reservations"],
        "errors": sum(result["errors"] for result in results),
        "wall_s": round(wall, 1),
        "steps_per_s": round(calls / wall),
        "p50_ms": round(1e3 * times[len(times) // 2], 2),
        "p99_ms": round(1e3 * times[int(0.99 * len(times))], 2),
        "cpu_ms_per_step": round(1e3 * sum(result["cpu_s"] for result in results) / max(calls, 1), 3),
    }


def _held(target: str) -> Iterator[tuple[str, float]]:
    from sqlalchemy import create_engine, text

    from steproute.store.connection import store_url

    limit = round(LIMIT * 1e9)
    with create_engine(store_url(target)).connect() as connection:
        for name, sql in (
            ("outcomes", "SELECT COUNT(*) FROM outcomes"),
            ("reservations", "SELECT COUNT(*) FROM reservations"),
            ("highest", "SELECT MAX(spent) / 1e9 FROM accounts WHERE resource = 'usd'"),
            ("over", f"SELECT COUNT(*) FROM accounts WHERE resource = 'usd' AND spent > {limit}"),
        ):
            yield name, float(connection.execute(text(sql)).scalar() or 0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead", "million", "restarts", "workers"))
    parser.add_argument("--policy", default="pacer")
    parser.add_argument("--rounds", type=int, default=40, help="overhead: rounds of 50 steps per side")
    parser.add_argument("--rows", type=int, default=1_000_000, help="million, restarts: decisions in the store")
    parser.add_argument("--only", default="", help="restarts: these policies, with commas between them")
    parser.add_argument("--store", help="a URL or path instead of a temporary SQLite file")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=200, help="workers: tasks of each")
    parser.add_argument("--steps", type=int, default=5, help="workers: steps of each task")
    parser.add_argument("--json", action="store_true", help="print one object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure = {"overhead": overhead, "million": million, "restarts": restarts, "workers": workers}[options.what]
        found = measure(options, Path(folder))
    if options.json:
        out(json.dumps(found) + "\n")
        return
    out(f"{options.what}: Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    for name, value in found.items():
        shown = "  ".join(f"{key} {v:.3f}" for key, v in value.items()) if isinstance(value, dict) else str(value)
        out(f"  {name:24}{shown}\n")


if __name__ == "__main__":
    main()
