"""What goes wrong with a store: a clear error, or a recovery that loses nothing."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import world
from doubles import FakeClock
from registry import POLICIES, RECORDING, keeps_blocks, spec

from steproute import ConfigError, Model, Outcome, Router, StoreError, Task
from steproute.policies.knn import KNN
from steproute.store import Store
from steproute.store.snapshots import digest

TASKS = 8


def filled(path: Path, **more: object) -> list[object]:
    router = world.make(world.store(path, **more))
    found = list(world.run(router, TASKS))
    router.close()
    return found


def database(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def test_models_that_left_the_pool_teach_nothing_and_are_named(tmp_path, caplog):
    filled(tmp_path / "a.db")
    with caplog.at_level(logging.WARNING, "steproute"):
        router = Router(
            [Model("small", price="free"), Model("new", price="free")],
            store=tmp_path / "a.db",
            on_error="raise",
            seed=1,
        )
    assert "mentions models that the pool does not have: large, middle" in caplog.text
    names = {router.decide("t", "coder", step=str(i), prompt_tokens=5).model.name for i in range(4)}
    assert names <= {"small", "new"}
    assert router.errors == 0


def test_a_standing_decision_for_a_model_that_left_is_made_anew(tmp_path):
    router = world.make(world.store(tmp_path / "a.db"), explore=0.0)
    old = router.decide("t", "coder", step="one", prompt_tokens=800, max_tokens=300, pin="large")
    world.step(router, Task(id="t", domain="code"))
    world.crash(router)
    router = Router([m for m in world.models() if m.name != "large"], store=tmp_path / "a.db", on_error="raise")
    new = router.decide("t", "coder", step="one", prompt_tokens=800)
    assert old.model.name == "large"
    assert (new.model.name != "large", new.attempt) == (True, 2)


def test_a_store_of_a_newer_schema_is_refused_and_left_alone(tmp_path):
    filled(tmp_path / "a.db")
    with database(tmp_path / "a.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0999'")
    before = (tmp_path / "a.db").read_bytes()
    with pytest.raises(StoreError, match=r"schema '0999' is newer than this version of steproute knows \('0004'\)"):
        world.make(world.store(tmp_path / "a.db"))
    assert (tmp_path / "a.db").read_bytes() == before


def test_a_file_that_is_no_store_is_refused(tmp_path):
    (tmp_path / "a.db").write_text("this is a diary, and not a database at all\n" * 100)
    with pytest.raises(StoreError, match="cannot be opened: file is not a database"):
        world.make(world.store(tmp_path / "a.db"))
    with pytest.raises(StoreError, match=r"folder .* does not exist"):
        world.make(world.store(tmp_path / "none" / "a.db"))
    with pytest.raises(StoreError, match="seen a 'mysql' URL; allowed: a path, sqlite"):
        world.make("mysql://somewhere/db")
    with pytest.raises(StoreError, match="a database in memory outlasts nothing"):
        world.make(":memory:")
    with pytest.raises(ConfigError, match="store: seen 3; allowed: a path, a URL"):
        world.make(3)


@pytest.mark.parametrize("harm", ["checksum", "json", "shape", "version"])
def test_a_corrupted_snapshot_is_set_aside_and_rebuilt_from_the_log(tmp_path, harm, caplog):
    whole = filled(tmp_path / "whole.db", snapshot_every=60)
    router = world.make(world.store(tmp_path / "a.db", snapshot_every=60))
    run = world.run(router, TASKS)
    found = [next(run) for _ in range(26)]
    world.crash(router)
    with database(tmp_path / "a.db") as connection:
        rows = connection.execute("SELECT n, state FROM snapshots").fetchall()
        assert rows
        for n, state in rows:
            data = bytes(state)
            if harm == "checksum":
                data = data.replace(b"0", b"1", 1)
            elif harm == "json":
                data = data[: len(data) // 2]
            elif harm == "shape":
                data = json.dumps({**json.loads(data), "learners": {"policy": {"version": 1}}}).encode()
            else:
                data = json.dumps({**json.loads(data), "version": 99}).encode()
            connection.execute("UPDATE snapshots SET state = ? WHERE n = ?", (data, n))
            if harm != "checksum":
                connection.execute("UPDATE snapshots SET digest = ? WHERE n = ?", (digest(data), n))
    with caplog.at_level(logging.WARNING, "steproute"):
        router = world.make(world.store(tmp_path / "a.db", snapshot_every=60))
    assert "is set aside" in caplog.text
    assert found + list(world.run(router, TASKS)) == whole
    with database(tmp_path / "a.db") as connection:
        reasons = [reason for (reason,) in connection.execute("SELECT set_aside FROM snapshots WHERE n <= ?", (n,))]
    assert all(reasons)


def tamper(path: Path, change: Callable[[dict[str, Any]], object]) -> int:
    """Change what every snapshot holds, the checksum with it; gives how many there are."""
    with database(path) as connection:
        rows = connection.execute("SELECT n, state FROM snapshots").fetchall()
        for n, state in rows:
            data = json.loads(bytes(state))
            change(data)
            text = json.dumps(data).encode()
            connection.execute("UPDATE snapshots SET state = ?, digest = ? WHERE n = ?", (text, digest(text), n))
    return len(rows)


def broken_health(data: dict[str, Any]) -> None:
    data["health"] = 7


def test_a_half_loaded_snapshot_leaves_nothing_behind(tmp_path):
    """The policy's part is sound, a later part is not: what was taken over is thrown away before the log is read."""
    router = world.make(world.store(tmp_path / "whole.db", snapshot_every=60))
    whole = list(world.run(router, TASKS))
    seen = router.policy.capability.state()
    router = world.make(world.store(tmp_path / "a.db", snapshot_every=60))
    run = world.run(router, TASKS)
    found = [next(run) for _ in range(26)]
    world.crash(router)
    assert tamper(tmp_path / "a.db", broken_health)
    router = world.make(world.store(tmp_path / "a.db", snapshot_every=60))
    assert found + list(world.run(router, TASKS)) == whole
    assert router.policy.capability.state()["nodes"][-1]["seen"] == seen["nodes"][-1]["seen"]


DAMAGE = [(policy, harm) for policy in POLICIES for harm in ("health", "policy")]
DAMAGE += [(policy, harm) for policy in POLICIES if keeps_blocks(policy) for harm in ("block", "lost block")]


@pytest.mark.parametrize(("policy", "harm"), DAMAGE)
def test_every_policy_is_rebuilt_from_the_log_where_its_snapshots_are_damaged(tmp_path, policy, harm, caplog):
    extra = RECORDING if policy == "oracle" else None
    path = tmp_path / "a.db"
    whole = list(world.run(world.make(world.store(tmp_path / "whole.db"), spec(policy)), TASKS, extra=extra))
    router = world.make(world.store(path, snapshot_every=60), spec(policy))
    learns = hasattr(router.policy, "load")
    run = world.run(router, TASKS, extra=extra)
    found = [next(run) for _ in range(26)]
    world.crash(router)
    if harm == "health":
        assert tamper(path, broken_health)
    elif harm == "policy":
        assert tamper(path, lambda data: data["learners"].update(policy={"epsilon": 0.1}))
    else:
        with database(path) as connection:
            change = "UPDATE blocks SET text = SUBSTR(text, 2)" if harm == "block" else "DELETE FROM blocks"
            assert connection.execute(change).rowcount
    with caplog.at_level(logging.WARNING, "steproute"):
        router = world.make(world.store(path, snapshot_every=60), spec(policy))
    reasons = {
        "health": "'int' object is not subscriptable",
        "policy": "",
        "block": "the checksum does not match",
        "lost block": "is missing",
    }
    if harm != "policy" or (learns and policy != "progrouter"):  # of which there is nothing but an epsilon
        assert "is set aside" in caplog.text
        assert reasons[harm] in caplog.text
        with database(path) as connection:
            asides = connection.execute("SELECT set_aside FROM snapshots").fetchall()
        assert all(reasons[harm] in aside for (aside,) in asides)
    assert found + list(world.run(router, TASKS, extra=extra)) == whole
    router.close()
    caplog.clear()
    router = world.make(world.store(path, snapshot_every=60), spec(policy))
    assert "is set aside" not in caplog.text  # the snapshots that were written since are sound
    router.close()


def test_a_full_disk_keeps_every_step_until_there_is_room(tmp_path, caplog):
    clock = FakeClock()
    router = world.make(world.store(tmp_path / "a.db"), clock=clock)
    task = Task(id="t", domain="code")
    world.step(router, task)
    pages = router._log.connection.rows("PRAGMA page_count")[0][0]
    router._log.connection.run(f"PRAGMA max_page_count = {pages}")
    with caplog.at_level(logging.ERROR, "steproute"):
        for _ in range(3):
            world.step(router, task)
            clock.tick(1)
    assert "does not take what is written (database or disk is full)" in caplog.text
    assert router.errors == 0
    router._log.connection.run("PRAGMA max_page_count = 1000000")
    clock.tick(60)
    world.step(router, task)
    router.close()
    steps = database(tmp_path / "a.db").execute("SELECT COUNT(*) FROM outcomes WHERE answers").fetchone()[0]
    assert steps == 5


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="file modes do not bind this user")
def test_a_read_only_file_is_refused(tmp_path):
    filled(tmp_path / "a.db")
    (tmp_path / "a.db").chmod(0o400)
    with pytest.raises(StoreError):
        world.make(world.store(tmp_path / "a.db"))


def test_a_disk_that_becomes_read_only_stops_no_host(tmp_path, caplog):
    clock = FakeClock()
    router = world.make(world.store(tmp_path / "a.db"), clock=clock)
    router._log.connection.run("PRAGMA query_only = 1")
    with caplog.at_level(logging.ERROR, "steproute"):
        world.step(router, Task(id="t", domain="code"))
    assert "attempt to write a readonly database" in caplog.text
    router._log.connection.run("PRAGMA query_only = 0")
    router.close()
    assert database(tmp_path / "a.db").execute("SELECT COUNT(*) FROM outcomes").fetchone()[0] >= 1


def test_a_read_only_store_is_refused_at_the_start(tmp_path, monkeypatch):
    filled(tmp_path / "a.db")
    from steproute.store.connection import Connection

    opened = Connection.reconnect

    def readonly(self: Connection) -> None:
        opened(self)
        self._raw.execute("PRAGMA query_only = 1")

    monkeypatch.setattr(Connection, "reconnect", readonly)
    with pytest.raises(StoreError, match=r"a\.db: cannot be prepared: attempt to write a readonly database"):
        world.make(world.store(tmp_path / "a.db"))


def _open(path: str, answers: multiprocessing.SimpleQueue) -> None:  # type: ignore[type-arg]
    try:
        world.make(world.store(path)).close()
        answers.put("opened")
    except StoreError as error:
        answers.put(str(error))


@pytest.mark.skipif(os.name == "nt", reason="file locks")
def test_a_second_process_on_one_file_is_told_what_to_do(tmp_path):
    router = world.make(world.store(tmp_path / "a.db"))
    processes = multiprocessing.get_context("fork")
    answers = processes.SimpleQueue()
    other = processes.Process(target=_open, args=(str(tmp_path / "a.db"), answers))
    other.start()
    other.join(60)
    said = answers.get()
    assert f"in use by another process (process {os.getpid()})" in said
    assert "shared=True" in said
    with pytest.raises(StoreError, match="open already in this process; close that router first"):
        world.make(world.store(tmp_path / "a.db", shared=True))
    router.close()
    other = processes.Process(target=_open, args=(str(tmp_path / "a.db"), answers))
    other.start()
    other.join(60)
    assert answers.get() == "opened"


class Embedder:
    def __init__(self, name: str, dim: int):
        self.name, self.dim = name, dim

    def embed(self, texts):
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        rows[:, 0] = 1
        return rows


def test_an_embedder_of_another_dimension_is_refused(tmp_path, caplog):
    router = world.make(world.store(tmp_path / "a.db"), KNN(embedder=Embedder("ours", 8)))
    list(world.run(router, 2))
    assert len(router.policy.memory) > 0
    router.close()
    with pytest.raises(StoreError, match=r"embeddings of 'ours' with dimension 8, .* has dimension 16"):
        world.make(world.store(tmp_path / "a.db"), KNN(embedder=Embedder("ours", 16)))
    with caplog.at_level(logging.WARNING, "steproute"):
        router = world.make(world.store(tmp_path / "a.db"), KNN(embedder=Embedder("another", 16)))
    assert "holds embeddings of ours, the router embeds with another" in caplog.text
    assert len(router.policy.memory) == 0
    router.close()
    router = world.make(world.store(tmp_path / "a.db"), KNN(embedder=Embedder("ours", 8)))
    assert len(router.policy.memory) > 0


def test_a_clock_that_jumps_back_loses_nothing_and_keeps_the_order(tmp_path):
    clock = FakeClock(1e9)
    router = world.make(world.store(tmp_path / "a.db"), clock=clock)
    run = world.run(router, TASKS)
    found = [next(run) for _ in range(10)]
    clock.now = 1e6
    found += [next(run) for _ in range(9)]
    world.crash(router)
    again = FakeClock(1e6)
    router = world.make(world.store(tmp_path / "a.db"), clock=again)
    found += world.run(router, TASKS)
    assert len(found) == len({(task, step) for task, step, *_ in found}) == TASKS * world.STEPS
    rows = database(tmp_path / "a.db").execute("SELECT seq, created FROM outcomes ORDER BY n").fetchall()
    assert [seq for seq, _ in rows] == sorted(seq for seq, _ in rows)
    assert rows[0][1] > rows[-1][1]


def test_text_no_database_takes_is_mended(tmp_path):
    router = world.make(world.store(tmp_path / "a.db", prompts=True))
    decision = router.decide(Task(id="a\x00b", goal="half \ud83d"), "role\x00", prompt_tokens=5, text="\ud800")
    router.observe(decision, Outcome(call_id="x"), output="zero \x00 and half \udfff")
    assert router.errors == 0
    router.close()
    assert database(tmp_path / "a.db").execute("SELECT output FROM outcomes").fetchone()[0] == "zero � and half ?"


def test_a_step_the_database_refuses_is_set_aside_and_the_next_is_written(tmp_path, caplog):
    router = world.make(world.store(tmp_path / "a.db", spool=tmp_path / "spool"))
    decision = router.decide("t", "coder", step="0", prompt_tokens=10)
    with caplog.at_level(logging.ERROR, "steproute"):
        router.observe(decision, Outcome(call_id="big", completion_tokens=2**70))
    assert "refuses a step (OverflowError); it is set aside" in caplog.text
    assert router._log.writer.refused == 1
    decision = router.decide("u", "coder", step="1", prompt_tokens=10)
    router.observe(decision, Outcome(call_id="small"))
    router.close()
    assert database(tmp_path / "a.db").execute("SELECT call_id FROM outcomes").fetchall() == [("small",)]
    assert "big" in next((tmp_path / "spool").glob("*.refused")).read_text()


def test_a_forked_process_does_not_write_through_its_parents_connection(tmp_path):
    router = world.make(world.store(tmp_path / "a.db"))
    router._log.connection.pid = -1
    with pytest.raises(StoreError, match="forked after the store was opened"):
        world.step(router, Task(id="t"))


def test_an_older_store_is_migrated(tmp_path):
    """Built migration by migration, a store has the very tables that a fresh one has."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from sqlalchemy import create_engine

    from steproute.store.migrate import current_revision, upgrade
    from steproute.store.schema import REVISION, metadata

    engine = create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    upgrade(engine)
    assert current_revision(engine) == REVISION
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, metadata) == []
    router = world.make(world.store(tmp_path / "a.db"))
    list(world.run(router, 1))
    assert router.errors == 0


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="store: poll_s: seen -1; allowed: 0 or more"):
        Store("x.db", poll_s=-1)
    with pytest.raises(ConfigError, match="slice_share"):
        Store("x.db", slice_share=0.9)


def test_a_copy_of_a_store_can_be_opened(tmp_path):
    filled(tmp_path / "a.db")
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    assert filled(tmp_path / "b.db") == []  # every task has ended
