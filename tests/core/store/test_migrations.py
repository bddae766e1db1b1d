"""Stores and spools of earlier versions: what they hold stays, and the router goes on where it was."""

from __future__ import annotations

import json
import multiprocessing
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import world
from alembic.operations.ops import CreateTableOp
from doubles import FakeClock
from servers.fixtures import postgres_url  # noqa: F401
from sqlalchemy import Engine, create_engine, inspect, text
from test_shared import new_database

from steproute import Outcome, Task
from steproute.store.connection import store_url
from steproute.store.export import export
from steproute.store.migrate import current_revision, upgrade
from steproute.store.read import StoreReader
from steproute.store.schema import REVISION

TASKS = 8
LATER = {"outcomes": {"written_tokens"}, "snapshots": {"blocks"}}
"""Columns the first revision did not have."""


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return tmp_path / "old.db" if request.param == "sqlite" else new_database(request.getfixturevalue("postgres_url"))


def engine_of(place: Any) -> Engine:
    return create_engine(store_url(place))


def first_revision(place: Any, filled: Path) -> None:
    """A store as the first version left it: made by its migration alone, with the rows of one that was just written."""
    engine = engine_of(place)
    upgrade(engine, "0001")
    old = inspect(engine)
    with sqlite3.connect(filled) as source, engine.begin() as target:
        for table in old.get_table_names():
            if table == "alembic_version":
                continue
            names = [column["name"] for column in old.get_columns(table)]
            kinds = {column["name"]: str(column["type"]) for column in old.get_columns(table)}
            assert not LATER.get(table, set()) & set(names)
            for row in source.execute(f"SELECT {', '.join(names)} FROM {table}"):
                values = {
                    name: bool(value) if kinds[name] == "BOOLEAN" else value
                    for name, value in zip(names, row, strict=True)
                }
                marks = ", ".join(f":{name}" for name in names)
                target.execute(text(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"), values)
            if not store_url(place).drivername.startswith("sqlite") and "n" in names:
                target.execute(
                    text(f"SELECT setval(pg_get_serial_sequence('{table}', 'n'), (SELECT MAX(n) FROM {table}))")
                )
    engine.dispose()


def go_on(place: Any) -> Any:
    return world.make(world.store(place, shared=False, snapshot_every=60))


def test_an_old_store_goes_on_after_the_migration_as_it_would_have_without(tmp_path, place):
    whole = world.make(world.store(tmp_path / "whole.db", snapshot_every=60))
    expected = list(world.run(whole, TASKS))
    router = world.make(world.store(tmp_path / "part.db", snapshot_every=60))
    run = world.run(router, TASKS)
    found = [next(run) for _ in range(22)]
    router.close()
    first_revision(place, tmp_path / "part.db")

    router = go_on(place)
    assert router.errors == 0
    assert found + list(world.run(router, TASKS)) == expected
    decision = router.decide("cached", prompt_tokens=900)
    router.observe(decision, Outcome(call_id="w", prompt_tokens=900, cached_tokens=100, written_tokens=700))
    world.crash(router)

    engine = engine_of(place)
    assert current_revision(engine) == REVISION
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT written_tokens FROM outcomes ORDER BY n")).scalars().all()
        judged = connection.execute(text("SELECT COUNT(*) FROM evidence WHERE late")).scalar()
    engine.dispose()
    assert rows == [0] * (len(rows) - 1) + [700]
    assert judged
    router = go_on(place)
    kept = router.ledger("cached").steps[0].outcome
    assert (kept.prompt_tokens, kept.cached_tokens, kept.written_tokens) == (900, 100, 700)
    router.close()


def test_what_was_written_to_the_cache_is_in_logs_and_exports(tmp_path):
    router = world.make(world.store(tmp_path / "a.db"))
    router.observe(router.decide("t", prompt_tokens=50), Outcome(prompt_tokens=50, written_tokens=40))
    router.close()
    steps = list(StoreReader(tmp_path / "a.db").steps())
    assert steps[0]["written_tokens"] == 40
    export(iter(steps), tmp_path / "a.jsonl")
    assert json.loads((tmp_path / "a.jsonl").read_text())["written_tokens"] == 40
    parquet = pytest.importorskip("pyarrow.parquet")
    export(iter(steps), tmp_path / "a.parquet")
    assert parquet.read_table(tmp_path / "a.parquet")["written_tokens"].to_pylist() == [40]


def test_a_migration_that_breaks_off_leaves_the_old_store(tmp_path, place, monkeypatch):
    router = world.make(world.store(tmp_path / "part.db"))
    list(world.run(router, 1))
    router.close()
    first_revision(place, tmp_path / "part.db")

    engine = engine_of(place)

    def killed(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CreateTableOp, "create_table", killed)  # the second step of the way
        with pytest.raises(KeyboardInterrupt):
            upgrade(engine)
    assert current_revision(engine) == "0001"
    assert "written_tokens" not in {column["name"] for column in inspect(engine).get_columns("outcomes")}
    engine.dispose()
    go_on(place).close()
    assert current_revision(engine_of(place)) == REVISION


@pytest.mark.skipif(os.name == "nt", reason="forks")
def test_two_workers_that_open_an_old_store_at_once_migrate_it_once(tmp_path, place):
    router = world.make(world.store(tmp_path / "part.db"))
    list(world.run(router, 1))
    router.close()
    first_revision(place, tmp_path / "part.db")
    processes = multiprocessing.get_context("fork")
    answers, gate = processes.SimpleQueue(), processes.Barrier(2)

    def open_it() -> None:
        gate.wait(60)
        try:
            world.make(world.store(place, shared=True, spool=tmp_path / "spool")).close()
            answers.put("")
        except BaseException as error:  # noqa: BLE001 — whatever it is, the test has to hear of it
            answers.put(repr(error))

    workers = [processes.Process(target=open_it) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [answers.get() for _ in workers] == ["", ""]
    assert current_revision(engine_of(place)) == REVISION


def test_steps_that_an_older_version_left_in_its_spool_are_written(tmp_path):
    """It knew nothing of the newer columns; what it has of a call is written all the same."""
    clock = FakeClock()
    router = world.make(world.store(tmp_path / "a.db", spool=tmp_path / "spool"), clock=clock)
    world.step(router, Task(id="t", domain="code"))
    router._log.connection.run("PRAGMA query_only = 1")
    world.step(router, Task(id="t", domain="code"))
    file = next((tmp_path / "spool").glob("*.jsonl"))
    router._log.writer.spool.close()
    world.crash(router)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        assert line.pop("revision") == REVISION
        for row, _ in line["outcomes"]:
            assert row.pop() == 0  # written_tokens
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    router = world.make(world.store(tmp_path / "a.db", spool=tmp_path / "spool"), clock=clock)
    assert len(router.ledger("t").steps) == 2
    assert not file.exists()
    router.close()
