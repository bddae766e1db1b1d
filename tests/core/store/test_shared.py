"""One store, several workers: budgets hold, queues advance once, lessons are exchanged, an absent database costs nothing."""

from __future__ import annotations

import json
import logging
import random
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import world
from doubles import FakeClock, Wants, priced
from servers.fixtures import postgres_url  # noqa: F401

from steproute import Budget, BudgetExceeded, Evidence, Limit, Outcome, Router, StoreError, Task
from steproute.store import Store


def new_database(url: str) -> str:
    psycopg = pytest.importorskip("psycopg")
    name = f"d{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{url.rpartition('/')[0]}/{name}"


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    if request.param == "sqlite":
        return tmp_path / "shared.db"
    return new_database(request.getfixturevalue("postgres_url"))


@pytest.fixture
def start(place, tmp_path):
    """Starts a worker; all are let go of at the end."""
    workers: list[Router] = []

    def worker(budget: Budget | None = None, clock: Any = None, **more: Any) -> Router:
        settings = {name: more.pop(name) for name in ("slice_share", "poll_s", "prompts") if name in more}
        store = Store(place, shared=True, spool=tmp_path / "spool", **settings)
        given = {"policy": Wants({"a": 1}), "on_error": "raise", "seed": len(workers), "clock": clock or FakeClock()}
        workers.append(Router([priced("a", 0.2), priced("b", 0.1)], budget, store=store, **{**given, **more}))
        return workers[-1]

    yield worker
    for each in workers:
        if each._log is not None and each._log.connection.alive:
            each.close()


def rows(router: Router, sql: str) -> list[tuple[Any, ...]]:
    return router._log.connection.rows(sql)


def call(router: Router, task: str | Task, step: str, **more: Any) -> None:
    decision = router.decide(task, "w", step=step, prompt_tokens=1000)
    router.observe(decision, Outcome(call_id=f"{decision.task}/{step}", prompt_tokens=1000, **more))


def test_ten_parallel_calls_of_two_workers_under_one_limit_grant_exactly_five(start):
    workers = [start(Budget(usd=1.0), policy="strongest") for _ in range(2)]
    granted, refused = [], []
    gate = threading.Barrier(10)

    def ask(number: int) -> None:
        gate.wait()
        try:
            granted.append(workers[number % 2].decide("t", "w", step=str(number), prompt_tokens=1000, pin="a"))
        except BudgetExceeded as refusal:
            refused.append(refusal)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(granted), len(refused)) == (5, 5)
    assert {refusal.reserved for refusal in refused} == {1.0}
    for decision in granted:
        worker = next(w for w in workers if w.decisions("t") and decision in w.decisions("t"))
        worker.observe(decision, Outcome(usd=0.1))
    assert workers[0].spent("t") == workers[1].spent("t") == {"usd": 0.5, "seconds": 0.0, "tokens": 0.0}
    assert rows(workers[0], "SELECT COUNT(*) FROM reservations") == [(0,)]


def learners(place: Any, tmp_path: Path, policy: str) -> Callable[[int], Router]:
    def worker(seed: int) -> Router:
        store = Store(place, shared=True, spool=tmp_path / "spool", snapshot_every=60, poll_s=0.5)
        models = [priced("a", 0.2), priced("b", 0.1)]
        return Router(models, policy=policy, store=store, on_error="raise", seed=seed, clock=CLOCK)

    return worker


CLOCK = FakeClock()


def one_step(router: Router, task: str, step: str, evidence: bool = True) -> None:
    decision = router.decide(task, "w", step=step, prompt_tokens=10, text=f"fix the {len(task + step) % 7}th bug")
    seen = [Evidence(source="tests", score=0.5, count=3)] if evidence else []
    router.observe(decision, Outcome(call_id=f"{task}/{step}"), output=step, evidence=seen)


@pytest.mark.parametrize("policy", ["knn", "acrouter", "linucb", "pacer"])
def test_a_single_worker_on_a_shared_store_is_snapshotted_too(place, tmp_path, policy):
    worker = learners(place, tmp_path, policy)
    router = worker(0)
    for number in range(60):
        one_step(router, f"t{number}", "0")
        router.finish(f"t{number}", success=True)
    kept = rows(router, "SELECT cursors FROM snapshots ORDER BY n")
    assert len(kept) == 3
    known = router.policy.state()
    router.close()
    late = worker(0)
    assert in_any_order(late.policy.state()) == in_any_order(known)
    late.close()


def in_any_order(state: Any) -> Any:
    """Lists of nodes come back in another order."""
    if isinstance(state, dict):
        return {key: in_any_order(value) for key, value in state.items()}
    return sorted(map(json.dumps, state)) if isinstance(state, list) else state


@pytest.mark.parametrize("policy", ["knn", "acrouter"])
@pytest.mark.parametrize("seed", range(4))
def test_of_what_several_workers_learnt_a_snapshot_loses_and_doubles_nothing(place, tmp_path, policy, seed):
    """Workers hear of each other now and then, in the middle of tasks whose lessons come late; a third starts at any time."""
    rng = random.Random(seed)
    worker = learners(place, tmp_path, policy)
    both, open_ = [worker(number) for number in range(2)], [list[str](), list[str]()]
    for number in range(90):
        mine = rng.randrange(2)
        if open_[mine] and rng.random() < 0.6:
            task = open_[mine][-1]
            one_step(both[mine], task, f"{number}", evidence=rng.random() < 0.5)
            if rng.random() < 0.5:
                both[mine].finish(open_[mine].pop(), success=True)
        else:
            open_[mine].append(f"t{number}")
            one_step(both[mine], f"t{number}", "0", evidence=False)
        if rng.random() < 0.3:
            CLOCK.tick(1.0)
    for router, tasks in zip(both, open_, strict=True):
        for task in tasks:
            router.finish(task, success=True)
    for router in both:
        router._log._merger.catch_up()
        router.close()
    late = worker(2)
    assert rows(late, "SELECT COUNT(*) FROM snapshots")[0][0] > 1
    for router in (*both, late):
        steps = [(item.trace["task"], item.trace["step"]) for item in router.policy.memory]
        assert len(steps) == len(set(steps)) == 90
    stored = {key for (key,) in rows(late, "SELECT digest FROM blocks")}
    found = rows(late, "SELECT blocks FROM snapshots WHERE set_aside IS NULL")
    assert {key for (blocks,) in found for key in json.loads(blocks)} <= stored
    late.close()


def test_threads_may_ask_for_spending_while_others_decide(start):
    router = start(Budget(usd=1000.0))
    failed: list[BaseException] = []
    done = threading.Event()

    def ask() -> None:
        try:
            while not done.is_set():
                router.spent("t0")
                router.accounts.pressure("t1")
        except BaseException as error:  # noqa: BLE001 — whatever it is, the test has to hear of it
            failed.append(error)

    def work(number: int) -> None:
        try:
            for step in range(10):
                call(router, f"t{number}", str(step))
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    working = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in (*asking, *working):
        thread.start()
    for thread in working:
        thread.join()
    done.set()
    for thread in asking:
        thread.join()
    assert failed == []
    assert rows(router, "SELECT COUNT(*) FROM outcomes") == [(30,)]
    assert router.spent("t0")["usd"] == pytest.approx(2.0)


def test_a_child_on_another_worker_spends_its_parents_money(start):
    one, two = start(Budget(usd=0.5)), start(Budget(usd=0.5))
    call(one, "parent", "0")
    call(two, Task(id="child", parent="parent"), "0")
    assert one.spent("parent")["usd"] == pytest.approx(0.4)
    with pytest.raises(BudgetExceeded):
        one.decide("parent", "w", step="1", prompt_tokens=1000, pin="a")
    with pytest.raises(BudgetExceeded, match=r"task 'child': hard limit usd=0.5 of its parent 'parent' reached"):
        two.decide("child", "w", step="1", prompt_tokens=1000, pin="a")
    assert two.decide("child", "w", step="1", prompt_tokens=1000).model.name == "b"


def test_a_killed_workers_reservation_is_freed_by_its_lease(start):
    clock = FakeClock()
    budget = Budget(usd=0.2, lease_s=60)
    dead, alive = start(budget, clock), start(budget, clock)
    dead.decide("t", "w", step="0", prompt_tokens=1000, pin="a")
    world.crash(dead)
    with pytest.raises(BudgetExceeded):
        alive.decide("t", "w", step="1", prompt_tokens=1000)
    clock.tick(61)
    assert alive.decide("t", "w", step="1", prompt_tokens=1000, pin="a").model.name == "a"


def test_a_task_goes_on_at_another_worker_with_its_attempts_and_steps(start):
    one, two = start(), start()
    call(one, "t", "0")
    failed = one.decide("t", "w", step="1", prompt_tokens=1000)
    one.observe(failed, Outcome(error="500", call_id="broken"))
    again = two.decide("t", "w", step="1", prompt_tokens=1000)
    assert (again.attempt, again.model.name) == (2, "b")
    two.observe(again, Outcome(prompt_tokens=1000))
    assert [step.model for step in two.ledger("t").steps] == ["a", "b"]
    third = one.decide("t", "w", step="2", prompt_tokens=1000)  # the first worker has heard of the second's step
    assert [step.model for step in one.ledger("t").steps] == ["a", "b"]
    assert third.step == "2"


def test_a_call_that_two_workers_report_is_billed_once(start):
    one, two = start(), start()
    call(one, "t", "0")
    decision = two.decide("t", "w", step="0", prompt_tokens=1000)
    two.observe(decision, Outcome(call_id="t/0", prompt_tokens=1000))
    assert one.spent("t")["usd"] == two.spent("t")["usd"] == pytest.approx(0.2)


def test_the_queue_advances_once_whoever_ends_the_task(start):
    budget = Budget(usd=Limit(target=0.05))
    one, two = start(budget), start(budget)
    call(one, "t", "0")
    call(two, "t", "1")
    assert one.finish("t", success=True)["usd"] == pytest.approx(0.4)
    two.finish("t", success=True)
    assert rows(one, "SELECT value, advances FROM queues") == [(pytest.approx(0.35), 1)]
    call(two, "u", "0")
    two.finish("u")
    assert rows(one, "SELECT value, advances FROM queues") == [(pytest.approx(0.5), 2)]
    one.decide("v", "w", prompt_tokens=1000)
    assert one.accounts.queues["usd"] == pytest.approx(0.5)
    assert one.ended("u")


def test_what_one_worker_learns_the_others_know(start):
    clock = FakeClock()
    learner, other = (start(clock=clock, policy="pacer") for _ in range(2))
    for number in range(6):
        task = Task(id=f"t{number}", domain="code", dimension="d")
        for step in range(2):
            decision = learner.decide(task, "w", step=str(step), prompt_tokens=1000)
            evidence = [Evidence(source="examples", score=0.5 * step, count=4)]
            learner.observe(decision, Outcome(prompt_tokens=1000, completion_tokens=70), evidence=evidence)
        learner.finish(task.id, success=True)
    clock.tick(2)
    other.decide("mine", "w", prompt_tokens=10)
    other._log._merger.poll(now=True)
    assert other.policy.capability.state() == learner.policy.capability.state()
    assert other.reliability.state()["counts"] == learner.reliability.state()["counts"]
    assert other.forecast.state()["completion"] == learner.forecast.state()["completion"]
    late = start(clock=clock, policy="pacer")  # and so does one that starts later
    assert late.policy.capability.state() == learner.policy.capability.state()


def test_rows_that_commit_out_of_order_are_not_missed():
    from steproute.store.merge import GAP_S, Cursor

    cursor = Cursor("outcomes", 10)
    cursor.take([{"n": 11}, {"n": 14}], now=0.0)
    assert (cursor.last, sorted(cursor.missing), cursor.settled) == (14, [12, 13], 11)
    sql, values = cursor.query(now=1.0)
    assert ("OR n IN (?, ?)" in sql, values) == (True, (14, 12, 13))
    cursor.take([{"n": 13}], now=1.0)
    assert (sorted(cursor.missing), cursor.settled) == ([12], 11)
    cursor.query(now=GAP_S + 1)  # it was never committed
    assert (cursor.missing, cursor.settled) == ({}, 14)


def test_a_dead_workers_task_is_ended_by_being_idle(start):
    clock = FakeClock()
    budget = Budget(usd=Limit(target=0.05), lease_s=60)
    dead, alive = start(budget, clock, idle_timeout=100.0), start(budget, clock, idle_timeout=100.0)
    call(dead, "t", "0")
    world.crash(dead)
    clock.tick(90)
    alive.decide("mine", "w", prompt_tokens=10)
    assert rows(alive, "SELECT COUNT(*) FROM tasks WHERE ended IS NOT NULL") == [(0,)]
    clock.tick(20)
    alive.decide("mine", "w", step="1", prompt_tokens=10)
    assert rows(alive, "SELECT id, idle FROM tasks WHERE ended IS NOT NULL") == [("t", True)]
    assert rows(alive, "SELECT value FROM queues") == [(pytest.approx(0.15),)]


def test_a_task_that_is_idle_here_and_busy_there_goes_on(start):
    clock = FakeClock()
    one, two = (start(clock=clock, idle_timeout=100.0) for _ in range(2))
    call(one, "t", "0")
    clock.tick(90)
    call(two, "t", "1")
    clock.tick(20)
    one.decide("mine", "w", prompt_tokens=10)
    assert rows(one, "SELECT COUNT(*) FROM tasks WHERE ended IS NOT NULL") == [(0,)]


class Outage:
    """The database of a worker is away until told otherwise."""

    def __init__(self, router: Router, monkeypatch: pytest.MonkeyPatch):
        connection = router._log.connection
        self._patch = monkeypatch
        self._opened = connection.reconnect
        monkeypatch.setattr(connection, "reconnect", self._refuse)
        connection._raw.close()
        self._connection = connection

    def _refuse(self) -> None:
        raise StoreError("cannot be opened: away")

    def end(self) -> None:
        self._patch.setattr(self._connection, "reconnect", self._opened)


def test_with_the_database_away_hard_limits_close_and_all_else_goes_on(start, monkeypatch, caplog):
    clock = FakeClock()
    limited, free = start(Budget(usd=5.0), clock), start(Budget(usd=Limit(target=0.05)), clock)
    for worker in (limited, free):
        call(worker, "t", "0")
    outages = [Outage(worker, monkeypatch) for worker in (limited, free)]
    with caplog.at_level(logging.ERROR, "steproute"), pytest.raises(BudgetExceeded):
        limited.decide("t", "w", step="1", prompt_tokens=1000)
    for step in range(1, 4):
        call(free, "t", str(step))
        clock.tick(1)
    call(free, "new", "0")
    free.finish("new", success=True)
    assert free.errors == 0
    assert "does not take what is written" in caplog.text
    assert len(list(free._log.writer.spool.folder.glob("*.jsonl"))) == 1
    for outage in outages:
        outage.end()
    clock.tick(60)
    call(free, "t", "4")
    assert rows(free, "SELECT COUNT(*) FROM outcomes WHERE task = 't'") == [(6 - 1,)]  # both workers' call 0 is one
    assert rows(free, "SELECT COUNT(*) FROM outcomes WHERE task = 'new'") == [(1,)]
    assert free.spent("t")["usd"] == pytest.approx(1.0)
    assert not list(free._log.writer.spool.folder.glob("*.jsonl"))
    assert limited.decide("t", "w", step="9", prompt_tokens=1000).model.name == "a"
    assert rows(free, "SELECT id, idle FROM tasks WHERE ended IS NOT NULL") == [("new", False)]
    assert rows(free, "SELECT value, advances FROM queues") == [(pytest.approx(0.15), 1)]


def test_a_leased_slice_is_what_a_worker_may_spend_meanwhile_and_nobody_else(start, monkeypatch):
    clock = FakeClock()
    budget = Budget(usd=2.0)
    one, two = start(budget, clock, slice_share=0.2), start(budget, clock)
    call(one, "t", "0")
    call(one, "t", "1")
    outage = Outage(one, monkeypatch)
    call(one, "t", "2")
    call(one, "t", "3")
    with pytest.raises(BudgetExceeded):
        one.decide("t", "w", step="4", prompt_tokens=1000)
    spent = 0
    while True:  # the other worker, who knows nothing of this, has what is left
        try:
            call(two, "t", f"two-{spent}")
            spent += 1
        except BudgetExceeded:
            break
    outage.end()
    clock.tick(60)
    call(two, "elsewhere", "0")
    one.decide("elsewhere", "w", step="1", prompt_tokens=1000)
    total = rows(two, "SELECT spent FROM accounts WHERE task = 't' AND resource = 'usd'")[0][0] / 1e9
    assert spent >= 5
    assert 1.7 <= total <= 2.0


def test_a_killed_workers_spool_is_written_by_the_next(start, monkeypatch):
    clock = FakeClock()
    dead = start(clock=clock)
    call(dead, "t", "0")
    Outage(dead, monkeypatch)
    call(dead, "t", "1")
    call(dead, "t", "2")
    dead._log.writer.spool.close()  # the process is gone: the system frees the lock on its file
    dead._log = None
    following = start(clock=clock)
    assert rows(following, "SELECT COUNT(*) FROM outcomes") == [(3,)]
    assert following.spent("t")["usd"] == pytest.approx(0.6)
    assert not list(following._log.writer.spool.folder.glob("*.jsonl"))


def test_a_commit_whose_answer_was_lost_is_not_written_twice(start, monkeypatch):
    clock = FakeClock()
    worker = start(clock=clock)
    call(worker, "t", "0")
    log = worker._log
    write = log.writer._write

    def breaks(batch: Any, writer: str = "") -> None:
        write(batch, writer)
        monkeypatch.setattr(log.writer, "_write", write)
        raise log.connection.failures[0]("the connection broke after the commit")

    monkeypatch.setattr(log.writer, "_write", breaks)
    call(worker, "t", "1")
    clock.tick(60)
    call(worker, "t", "2")
    assert rows(worker, "SELECT COUNT(*) FROM outcomes") == [(3,)]
    assert rows(worker, "SELECT COUNT(*) FROM decisions") == [(3,)]
    assert worker.spent("t")["usd"] == pytest.approx(0.6)


def test_a_connection_the_server_closed_is_opened_anew(postgres_url, tmp_path):  # noqa: F811
    psycopg = pytest.importorskip("psycopg")
    url = new_database(postgres_url)
    clock = FakeClock()
    router = Router([priced("a", 0.2)], store=Store(url, spool=tmp_path), on_error="raise", clock=clock)
    call(router, "t", "0")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                           "AND datname = current_database()")  # fmt: skip
    call(router, "t", "1")
    clock.tick(5)
    call(router, "t", "2")
    assert rows(router, "SELECT COUNT(*) FROM outcomes") == [(3,)]
    router.close()


def test_a_store_on_postgresql_is_migrated_and_read(postgres_url):  # noqa: F811
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from steproute.explain import explain
    from steproute.store.migrate import upgrade
    from steproute.store.read import StoreReader
    from steproute.store.schema import metadata

    url = new_database(postgres_url)
    from sqlalchemy import create_engine

    from steproute.store.connection import store_url

    engine = create_engine(store_url(url))
    upgrade(engine)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    router = Router([priced("a", 0.2)], store=url, on_error="raise")
    decision = router.decide("t", "w", prompt_tokens=1000)
    router.observe(decision, Outcome(prompt_tokens=1000), evidence=[Evidence(source="examples", score=0.5, count=4)])
    router.report("t", [Evidence(source="judge", score=1.0)])
    assert rows(router, "SELECT source, score, count, late FROM evidence ORDER BY late") == [
        ("examples", 0.5, 4, False),
        ("judge", 1.0, 1, True),
    ]
    router.close()
    assert decision.why() in explain(url, "t")
    assert [step["usd"] for step in StoreReader(url).steps()] == [pytest.approx(0.2)]
    assert StoreReader(url).latest(0.0)[0]["calls"] == 1


def test_a_store_on_postgresql_says_what_is_wrong(postgres_url):  # noqa: F811
    url = new_database(postgres_url)
    with pytest.raises(StoreError, match=r"cannot be opened: .*does not exist"):
        Router([priced("a", 0.2)], store=url + "_none")
    router = Router([priced("a", 0.2)], store=url)
    router._log.connection.run("UPDATE alembic_version SET version_num = '0999'")
    router.close()
    with pytest.raises(StoreError, match="schema '0999' is newer"):
        Router([priced("a", 0.2)], store=url)
    with pytest.raises(StoreError) as refusal:
        Router([priced("a", 0.2)], store="postgresql://me:hidden@127.0.0.1:1/x")
    assert "hidden" not in str(refusal.value)
