"""A restarted router decides as it would have without the restart; a killed one loses at most the step in flight."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

import killed
import numpy as np
import pytest
import world
from registry import POLICIES, RECORDING, spec

from steproute import Evidence, Outcome, Router, Task
from steproute.policies import Scores, make_policy
from steproute.store.samples import SampleLog

TASKS = 12


def start(path: Path, policy: str, every: int) -> Any:
    return world.make(world.store(path, snapshot_every=every), spec(policy))


@pytest.mark.parametrize("every", [0, 20, 5000])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_crash_anywhere_changes_no_decision(tmp_path, policy, every):
    extra = RECORDING if policy == "oracle" else None
    router = start(tmp_path / "whole.db", policy, every)
    whole = list(world.run(router, TASKS, extra=extra))
    queues = dict(router.accounts.queues)
    router.close()
    for cut in (0, 3, 17, 30, len(whole) - 1):
        path = tmp_path / f"{cut}.db"
        router = start(path, policy, every)
        run = world.run(router, TASKS, extra=extra)
        found = [next(run) for _ in range(cut + 1)]
        world.crash(router)
        router = start(path, policy, every)
        found += world.run(router, TASKS, extra=extra)
        assert found == whole
        assert dict(router.accounts.queues) == queues
        router.close()


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_of_the_registry_has_a_snapshot(tmp_path, policy):
    """With it, none of the log from before it is read again."""
    extra = RECORDING if policy == "oracle" else None
    router = start(tmp_path / "a.db", policy, 20)
    list(world.run(router, TASKS, extra=extra))
    router.close()
    with sqlite3.connect(tmp_path / "a.db") as connection:
        rows = connection.execute("SELECT cursors, state, set_aside FROM snapshots ORDER BY n").fetchall()
        assert len(rows) == 3
        assert all(reason is None for *_, reason in rows)
        connection.execute("DELETE FROM experiences")  # only a snapshot can know of them
    marks, state = json.loads(rows[-1][0]), json.loads(rows[-1][1])
    assert marks["experiences"] > 0
    again = start(tmp_path / "a.db", policy, 20)
    if hasattr(again.policy, "state"):
        mine, stored = again.policy.state(), state["learners"]["policy"]
        assert len(mine.get("blocks", ())) == len(stored.get("blocks", ()))
        for one in (mine, stored):
            one.pop("blocks", None)
            for nodes in (one.get("capability", {}).get("nodes", []),):
                nodes.sort(key=json.dumps)  # in no order that means anything
        assert json.loads(json.dumps(mine, allow_nan=False)) == stored
    again.close()


def held(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(path)
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


def test_a_snapshot_writes_what_is_new_and_drops_what_is_old(tmp_path):
    """A memory of 700 steps is three blocks: full ones are written as they fill, once; those that left are dropped one by one."""
    path = tmp_path / "a.db"
    router = world.make(world.store(path, snapshot_every=300), {"name": "knn", "capacity": 700})
    written: list[str] = []
    run_statement = router._log.connection.run

    def noted(sql: str, values: Any = ()) -> Any:
        if sql.startswith("INSERT INTO blocks"):
            written.append(values[0])
        return run_statement(sql, values)

    router._log.connection.run = noted
    list(world.run(router, 500))
    assert len(router.policy.memory) == 700
    assert len(written) == len(set(written))
    snapshots = held(path, "SELECT blocks FROM snapshots ORDER BY n")
    assert len(snapshots) == 3
    sizes = [len(json.loads(blocks)) for (blocks,) in snapshots]
    assert set(sizes) <= {3, 4}
    used = {key for (blocks,) in snapshots for key in json.loads(blocks)}
    stored = {key for (key,) in held(path, "SELECT digest FROM blocks")}
    assert used <= stored
    assert len(stored) <= len(used) + 4  # on their way out, or not referred to yet
    full = 2000 // 256  # two thousand steps, one tail per snapshot
    assert len(written) <= full + held(path, "SELECT MAX(n) FROM snapshots")[0][0]
    before = router.policy.state()
    router.close()
    router = world.make(world.store(path, snapshot_every=300), {"name": "knn", "capacity": 700})
    assert router.policy.state() == before


def test_what_is_learnt_from_a_long_log_is_snapshotted_at_the_start(tmp_path):
    path = tmp_path / "a.db"
    router = world.make(world.store(path, snapshot_every=0), "knn")
    list(world.run(router, TASKS))
    router.close()
    assert held(path, "SELECT COUNT(*) FROM snapshots") == [(0,)]
    world.crash(world.make(world.store(path, snapshot_every=100), "knn"))
    assert held(path, "SELECT COUNT(*) FROM snapshots") == [(1,)]
    world.crash(world.make(world.store(path, snapshot_every=100), "knn"))
    assert held(path, "SELECT COUNT(*) FROM snapshots") == [(1,)]


class Counting:
    """A policy of a user's own that learns, and has no state to keep."""

    name = "counting"

    def __init__(self):
        self.seen = 0

    def score(self, context):
        return Scores(np.zeros(len(context.candidates)))

    def learn(self, feedback):
        self.seen += 1


def test_the_replay_limit_is_for_policies_without_a_state(tmp_path, caplog):
    for name, policy in (("own", Counting()), ("known", "knn")):
        router = world.make(world.store(tmp_path / f"{name}.db", snapshot_every=20), policy)
        list(world.run(router, TASKS))
        router.close()
    again = Counting()
    world.crash(world.make(world.store(tmp_path / "own.db", snapshot_every=20, replay_limit=10), again))
    assert 8 <= again.seen <= 12  # a lesson may come some steps after its decision
    assert "only the latest 10 decisions are learnt from again" in caplog.text
    assert held(tmp_path / "own.db", "SELECT COUNT(*) FROM snapshots") == [(0,)]
    caplog.clear()
    router = world.make(world.store(tmp_path / "known.db", snapshot_every=20, replay_limit=10), "knn")
    assert len(router.policy.memory) == TASKS * world.STEPS
    assert "learnt from again" not in caplog.text


@pytest.mark.parametrize("every", [0, 40])
@pytest.mark.parametrize("predictor", ["meta", "structured", "semantic", "average"])
def test_trees_go_on_from_their_snapshot_and_samples(tmp_path, predictor, every):
    """At every point: also the next fit comes when it would have come, on the rows that it would have had."""
    pytest.importorskip("xgboost")
    settings = {"background": False, "min_rows": 15, "min_tasks": 4, "rounds": 5, "refit_share": 0.4}
    policy = {"name": "progrouter", "predictor": predictor, "predictor_settings": settings}
    router = world.make(world.store(tmp_path / "whole.db", snapshot_every=every), policy)
    whole = list(world.run(router, TASKS))
    fits = router.estimator.trainer.fits
    assert router.estimator.mature
    assert fits >= 3
    for cut in (9, 20, 31, 43):
        path = tmp_path / f"{cut}.db"
        router = world.make(world.store(path, snapshot_every=every), policy)
        run = world.run(router, TASKS)
        found = [next(run) for _ in range(cut)]
        mature = router.estimator.mature
        world.crash(router)
        router = world.make(world.store(path, snapshot_every=every), policy)
        assert router.estimator.mature == mature
        assert found + list(world.run(router, TASKS)) == whole
        assert router.estimator.trainer.fits == fits
        router.close()


@pytest.mark.parametrize("background", [True, False])
def test_the_trees_samples_come_back_in_the_background_and_no_fit_is_made_without_them(tmp_path, background):
    pytest.importorskip("xgboost")
    settings = {"background": background, "min_rows": 20, "min_tasks": 4, "rounds": 5, "refit_share": 0.1}
    policy = {"name": "progrouter", "predictor": "meta", "predictor_settings": settings}
    router = world.make(world.store(tmp_path / "a.db", snapshot_every=20), policy)
    list(world.run(router, TASKS))
    router.estimator.trainer.wait()
    router._log._snapshots.write(router._log.seq, {})
    known = router.estimator.trainer.buffer.rows()
    router.close()
    gate = threading.Event()
    read = SampleLog.latest

    def held_up(*given: Any) -> Any:
        assert gate.wait(60)
        return read(*given)

    with pytest.MonkeyPatch.context() as patch:
        if background:
            patch.setattr(SampleLog, "latest", held_up)
        again = world.make(world.store(tmp_path / "a.db", snapshot_every=20), policy)
        trainer = again.estimator.trainer
        assert again.estimator.mature
        fits = trainer.fits
        if background:
            for task in world.tasks(TASKS + 3)[TASKS:]:
                for _ in range(world.STEPS):
                    world.step(again, task)
            assert trainer.fits == fits  # a fit is due, and waits
            assert 0 < len(trainer.buffer) < 15
            gate.set()
            trainer.wait()
            world.step(again, Task(id="more", domain="code"))
            again.finish("more", success=True)
            trainer.wait()
            assert trainer.fits > fits
    rows = trainer.buffer.rows()[: len(known)]
    assert [(row.task, row.model, row.gain) for row in rows] == [(row.task, row.model, row.gain) for row in known]
    assert again.errors == trainer.failures == 0
    again.close()


def test_a_crash_between_decision_and_answer_loses_that_step_alone(tmp_path):
    router = world.make(world.store(tmp_path / "a.db"))
    task = Task(id="t", domain="code")
    world.step(router, task)
    lost = router.decide(task, "coder", step="1", prompt_tokens=800)
    world.crash(router)
    router = world.make(world.store(tmp_path / "a.db"))
    again = router.decide(task, "coder", step="1", prompt_tokens=800)
    assert (again.model.name, again.propensity, again.score_of("large").score) == (
        lost.model.name,
        lost.propensity,
        lost.score_of("large").score,
    )
    assert len(router.ledger("t").steps) == 1


def test_a_decision_that_was_committed_stands_after_the_restart(tmp_path):
    router = world.make(world.store(tmp_path / "a.db"))
    task = Task(id="t", domain="code")
    waiting = router.decide(task, "coder", step="first", prompt_tokens=800)
    world.step(router, task)  # a parallel call that comes back commits both decisions
    world.crash(router)
    router = world.make(world.store(tmp_path / "a.db"))
    again = router.decide(task, "coder", step="first", prompt_tokens=800)
    assert again.id == waiting.id
    assert router.accounts.spending("t").reserved["usd"] > 0  # the dead call's reservation is made anew


def test_a_call_that_is_reported_again_after_the_restart_is_billed_once(tmp_path):
    router = world.make(world.store(tmp_path / "a.db"))
    decision = router.decide("t", "coder", prompt_tokens=800)
    router.observe(decision, Outcome(call_id="c1", usd=0.01))
    spent = router.spent("t")
    world.crash(router)
    router = world.make(world.store(tmp_path / "a.db"))
    assert router.spent("t") == spent
    again = router.decide("t", "coder", step=decision.step, prompt_tokens=800)
    assert again.id == decision.id
    router.observe(again, Outcome(call_id="c1", usd=0.01))
    assert router.spent("t") == spent
    router.finish("t", success=True)
    world.crash(router)
    router = world.make(world.store(tmp_path / "a.db"))
    before = dict(router.accounts.queues)
    router.observe(again, Outcome(call_id="c1", usd=0.01))  # late, for a task that ended before the restart
    assert dict(router.accounts.queues) == before
    assert router.ended("t")
    assert not router.ended("another")


def test_children_of_a_running_task_count_for_it_after_the_restart(tmp_path):
    router = world.make(world.store(tmp_path / "a.db"))
    router.decide(Task(id="parent"), "lead", step="p", prompt_tokens=10)
    child = router.decide(Task(id="child", parent="parent"), "coder", prompt_tokens=10)
    router.observe(child, Outcome(usd=0.02))
    router.finish("child", success=True)
    world.crash(router)
    router = world.make(world.store(tmp_path / "a.db"))
    assert router.spent("parent")["usd"] == 0.02


def test_an_idle_task_is_finished_by_the_next_process(tmp_path):
    from doubles import FakeClock

    clock = FakeClock()
    router = world.make(world.store(tmp_path / "a.db"), clock=clock)
    router.observe(router.decide("old", "coder", prompt_tokens=10), Outcome(seconds=9.0))
    world.crash(router)
    clock.tick(601)
    router = world.make(world.store(tmp_path / "a.db"), clock=clock)
    assert router.accounts.queues["seconds"] == 0
    router.decide("new", "coder", prompt_tokens=10)
    assert router.accounts.queues["seconds"] == 7.0  # 9 spent − 2 per task
    # and it goes on where it was when it is heard of again, also in a third process
    world.crash(router)
    router = world.make(world.store(tmp_path / "a.db"), clock=clock)
    router.decide("old", "coder", prompt_tokens=10)
    assert len(router.ledger("old").steps) == 1


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
@pytest.mark.parametrize("policy", [name for name in POLICIES if hasattr(make_policy(spec(name)), "load")])
def test_killed_at_fifty_points(tmp_path, monkeypatch, policy):
    """The same run over and over, killed while it runs, 50 times in all (the default policy; others that learn: 3 times): the
    same decisions, nothing billed twice."""
    points = 50 if policy == "pacer" else 3
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # so that the server of processes finds the modules
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["world", "registry", "killed"])

    def start(path: Path) -> tuple[Any, Any]:
        ours, theirs = processes.Pipe(duplex=False)
        process = processes.Process(target=killed.play, args=(str(path), policy, TASKS, theirs))
        process.start()
        theirs.close()
        return process, ours

    def hear(pipe: Any) -> Any:
        try:
            return pipe.recv()
        except EOFError:
            return None

    def held(path: Path) -> list[Any]:
        connection = sqlite3.connect(path)
        steps = connection.execute(
            "SELECT d.task, d.step, d.attempt, d.model, d.propensity FROM decisions d JOIN outcomes o "
            "ON o.task = d.task AND o.decision = d.id WHERE o.answers ORDER BY d.n"
        ).fetchall()
        spent = connection.execute("SELECT task, resource, spent FROM accounts ORDER BY 1, 2").fetchall()
        return [steps, spent, connection.execute("SELECT resource, value FROM queues").fetchall()]

    process, pipe = start(tmp_path / "whole.db")
    told = list(iter(lambda: hear(pipe), None))
    process.join(60)
    whole = held(tmp_path / "whole.db")
    assert told[:-1] == whole[0]
    assert len(whole[0]) == TASKS * world.STEPS
    rng, kills, run = random.Random(5), 0, 0
    while kills < points:
        path, last, lines = tmp_path / f"{run}.db", None, []
        run += 1
        while last != told[-1]:
            process, pipe = start(path)
            wanted = rng.randrange(1, 10)
            for last in iter(lambda: hear(pipe), None):  # noqa: B023
                lines.append(last)
                wanted -= 1
                if wanted == 0 and process.is_alive():
                    os.kill(process.pid, signal.SIGKILL)
                    kills += 1
            process.join(60)
        assert held(path) == whole
        assert all(line in told for line in lines)
        counts = sqlite3.connect(path).execute("SELECT COUNT(*), COUNT(DISTINCT task || '/' || call_id) FROM outcomes")
        calls, distinct = counts.fetchone()
        assert calls == distinct >= TASKS * world.STEPS


def interleaved(router: Router, since: int, until: int) -> list[tuple[str, list[float]]]:
    """Steps of six tasks at a time, the first of which never ends: model chosen and the scores, per step."""
    numbers, steps, found = [0] * 6, [0] * 6, []
    for i in range(until):
        slot = int(6 * world.chance("slot", i))
        name, step = f"task-{slot}-{numbers[slot]}", steps[slot]
        last = slot > 0 and step == int(12 * world.chance("length", name))
        steps[slot] = 0 if last else step + 1
        numbers[slot] += last
        if i < since:
            continue
        task = Task(id=name, domain="code", dimension=f"kind-{slot % 2}")
        decision = router.decide(task, ("coder", "critic")[step % 2], step=str(step), prompt_tokens=200)
        solved = world.chance(name, step, decision.model.name) < {"small": 0.4, "middle": 0.6}.get(
            decision.model.name, 0.9
        )
        late = world.chance("late", i) < 0.4
        evidence = [] if late else [Evidence(source="tests", score=float(solved), count=3)]
        router.observe(decision, Outcome(call_id=f"{name}-{step}", completion_tokens=50), evidence=evidence)
        if late:
            router.report(name, [Evidence(source="judge", score=float(solved))], decision)
        found.append((decision.model.name, [item.score for item in decision.candidates if item.score is not None]))
        if last:
            router.finish(name, success=world.chance(name) < 0.6)
    return found


def test_a_router_that_is_never_without_a_task_goes_on_as_before(tmp_path):
    """Its snapshots are taken while steps are open, whose lessons are then worked out from what was believed at the time."""
    steps = 700
    whole = interleaved(world.make(world.store(tmp_path / "whole.db", snapshot_every=60)), 0, steps)
    found: list[tuple[str, list[float]]] = []
    for end in (33, 190, 191, 402, 560, steps):
        router = world.make(world.store(tmp_path / "a.db", snapshot_every=60))
        found += interleaved(router, len(found), end)
        world.crash(router)
    assert [model for model, _ in found] == [model for model, _ in whole]
    for (_, mine), (_, other) in zip(found, whole, strict=True):
        assert mine == pytest.approx(other, abs=1e-6)


def test_the_children_of_running_tasks_are_found_by_an_index(tmp_path):
    """Else a restart reads all tasks that ever were for each that runs."""
    router = world.make(world.store(tmp_path / "a.db"))
    router.decide(Task(id="child", parent="task"), "coder", step="0")
    world.crash(router)
    with sqlite3.connect(tmp_path / "a.db") as connection:
        plan = connection.execute("EXPLAIN QUERY PLAN SELECT id FROM tasks t WHERE t.parent = 'task'").fetchall()
    assert "tasks_parent" in str(plan)


class Odd:
    """A user's policy with a state that cannot be kept, or not be taken back."""

    name = "odd"

    def __init__(self, kept: Any, fault: Exception | None = None):
        self.kept, self.fault = kept, fault

    def score(self, context: Any) -> Scores:
        numbers = np.arange(len(context.candidates), dtype=np.float32)
        return Scores(numbers, [{"mine": number} for number in numbers])

    def learn(self, feedback: Any) -> None:
        pass

    def state(self) -> Any:
        return self.kept

    def load(self, state: Any) -> None:
        if self.fault is not None and state != {}:
            raise self.fault


@pytest.mark.parametrize("kept", [np.zeros(2), float("nan"), {"a": object()}])
def test_a_state_that_is_no_json_costs_its_snapshots_and_nothing_else(tmp_path, kept, caplog):
    router = world.make(world.store(tmp_path / "a.db", snapshot_every=10), Odd(kept))
    assert len(list(world.run(router, 6))) > 12
    world.crash(router)
    assert "gives no plain JSON" in caplog.text
    with sqlite3.connect(tmp_path / "a.db") as connection:
        assert connection.execute("SELECT COUNT(*) FROM snapshots").fetchone() == (0,)
        assert connection.execute("SELECT COUNT(*) FROM decisions").fetchone()[0] > 12


@pytest.mark.parametrize("fault", [IndexError("x"), RuntimeError("x"), ZeroDivisionError("x")])
def test_a_state_that_is_not_taken_back_is_set_aside(tmp_path, fault, caplog):
    path = tmp_path / "a.db"
    world.crash(_with_snapshots(path, Odd({"a": 1})))
    fresh = Odd({}, fault)
    world.crash(world.make(world.store(path, snapshot_every=10), fresh))
    assert f"is set aside ({type(fault).__name__}: x)" in caplog.text


def test_a_policy_that_takes_no_state_back_is_learnt_from_the_log(tmp_path, caplog):
    path = tmp_path / "a.db"
    world.crash(_with_snapshots(path, Odd({"a": 1})))
    router = world.make(world.store(path, snapshot_every=10), Odd({"a": 1}, IndexError("x")))
    assert "is set aside (IndexError: x)" in caplog.text
    assert "no snapshots of policy:Odd" in caplog.text
    assert "its `load()` does not take its own state back (IndexError: x)" in caplog.text
    assert len(list(world.run(router, 8))) > 0
    assert router.errors == 0
    world.crash(router)


def _with_snapshots(path: Path, policy: Any) -> Router:
    router = world.make(world.store(path, snapshot_every=10), policy)
    list(world.run(router, 6))
    return router
