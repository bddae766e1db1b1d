"""What a store says: `steproute log`, `explain` and `top`, exports, ordinary SQL. And what it never says."""

from __future__ import annotations

import json
import sqlite3

import pytest
import world
from typer.testing import CliRunner

from steproute import ConfigError, Evidence, Outcome, Router, StoreError, Task
from steproute.cli import app
from steproute.config import load_config
from steproute.explain import explain
from steproute.store import Store
from steproute.store.export import export
from steproute.store.read import Filter, StoreReader

KEY = "sk-proj-0123456789abcdefghijkl"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    where = tmp_path_factory.mktemp("store") / "a.db"
    router = world.make(world.store(where))
    run = world.run(router, 6)
    for _ in range(22):
        next(run)
    router.close()
    return where


def command(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(item) for item in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_log_prints_the_latest_steps(path):
    lines = command("log", "--store", path, "--limit", 3).splitlines()
    assert len(lines) == 4
    assert "task-5" in lines[-1]
    assert "01-01 00:16:40" in lines[-1]


def test_the_log_filters(path):
    reader = StoreReader(path)
    whole = list(reader.steps())
    assert [step["n"] for step in whole] == sorted(step["n"] for step in whole)
    assert "no such step among the" in command("log", "--store", path, "--task", "nope")
    mine = json.loads("[" + ",".join(command("log", "--store", path, "--task", "task-1", "--json").splitlines()) + "]")
    assert mine == [step for step in whole if step["task"] == "task-1"]
    for wanted, holds in (
        (Filter(model="large"), lambda step: step["model"] == "large"),
        (Filter(role="coder", policy="pacer"), lambda step: True),
        (Filter(failed=True), lambda step: step["error"] is not None),
        (Filter(failed=False, task="task-2"), lambda step: step["error"] is None and step["task"] == "task-2"),
        (Filter(since=1e9), lambda step: False),
        (Filter(until=1e9), lambda step: True),
    ):
        assert list(reader.steps(wanted)) == [step for step in whole if holds(step)]
    assert [step["n"] for step in reader.steps(limit=4, newest=True)] == [step["n"] for step in whole[::-1][:4]]


def test_a_step_holds_what_off_policy_evaluation_needs(path):
    step = next(StoreReader(path).steps(Filter(failed=False)))
    scored = [item for item in step["candidates"] if item["score"] is not None]
    assert {"model", "score", "propensity", "gain", "gain_sd", "terms", "cost"} <= set(scored[0])
    assert sum(item["propensity"] for item in scored) == pytest.approx(1)
    assert step["propensity"] == next(item["propensity"] for item in scored if item["model"] == step["model"])
    assert all(item["gain_sd"] > 0 for item in scored)
    assert {"reward", "gain", "reliability", "usd", "g", "g_after", "dimension"} <= set(step)
    assert [item["source"] for item in step["evidence"]] == ["syntax", "examples"]


def test_tokens_are_those_the_provider_counted(tmp_path):
    router = world.make(world.store(tmp_path / "a.db"))
    decision = router.decide(Task(id="t", domain="code"), "coder", prompt_tokens=100, max_tokens=50)
    router.observe(decision, Outcome(prompt_tokens=812, completion_tokens=24, tokens_estimated=True))
    router.decide("t", "coder", prompt_tokens=7)
    router.close()
    done, begun = StoreReader(tmp_path / "a.db").steps()
    names = ("expected_prompt_tokens", "prompt_tokens", "completion_tokens", "tokens_estimated")
    assert [done[name] for name in names] == [100, 812, 24, True]
    assert [begun[name] for name in names] == [7, None, None, None]
    assert "812+24" in command("log", "--store", tmp_path / "a.db")


def test_exports_hold_every_step(path, tmp_path):
    assert "steps written" in command("log", "--store", path, "--out", tmp_path / "a.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    whole = list(StoreReader(path).steps())
    assert rows == whole
    with pytest.raises(ConfigError, match=r"seen 'a\.csv'; allowed: a file that ends in \.jsonl or \.parquet"):
        export([], tmp_path / "a.csv")


def test_a_parquet_file_has_typed_columns(path, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    command("log", "--store", path, "--out", tmp_path / "a.parquet", "--failed")
    command("log", "--store", path, "--out", tmp_path / "b.parquet")
    table = parquet.read_table(tmp_path / "b.parquet")
    whole = list(StoreReader(path).steps())
    assert table.column("propensity").to_pylist() == [step["propensity"] for step in whole]
    assert table.schema.field("fallback").type == "bool"
    assert json.loads(table.column("candidates")[0].as_py()) == whole[0]["candidates"]


def test_explain_says_why_and_what_came_of_it(path):
    text = command("explain", "task-1", "0", "--store", path)
    assert text.startswith("task task-1 (code · kind-1 · s1), begun 1970-01-01 00:16:40 UTC, ended")
    assert "task task-1 · step 0 · attempt 1 · role coder · policy pacer" in text
    assert "→ " in text
    assert "V(1-g)y=" in text
    assert "examples: " in text
    assert "learnt: gain" in text
    assert "ended: reward" in explain(path, "task-1")


def test_explain_is_what_the_decision_said_when_it_was_made(tmp_path):
    router = world.make(world.store(tmp_path / "a.db"))
    decision = router.decide(Task(id="t", domain="code"), "coder", prompt_tokens=100, max_tokens=50)
    router.observe(decision, Outcome(prompt_tokens=100))
    router.close()
    assert decision.why() in explain(tmp_path / "a.db", "t")


def test_explain_helps_with_a_wrong_name(path):
    with pytest.raises(StoreError, match="no decision of task 'task'; there is task-"):
        explain(path, "task")
    with pytest.raises(StoreError, match="task 'task-1' has no step '9'; it has 0, 1, 2, 3"):
        explain(path, "task-1", "9")
    with pytest.raises(StoreError, match="no such file; allowed: the path of a store"):
        explain("nowhere.db", "t")


def test_top_shows_models_tasks_and_queues(path, tmp_path):
    from rich.console import Console

    from steproute.store.command import overview

    console = Console(width=120, record=True, file=open(tmp_path / "out", "w"))  # noqa: SIM115
    console.print(overview(StoreReader(path), 15, 1000.0))
    text = console.export_text()
    assert "large" in text
    assert "task-5" in text
    assert "1 tasks running" in text
    assert "long-run queues: seconds" in text
    assert "1 tasks running" in command("top", "--once", "--store", path)


def test_reading_does_not_disturb_the_writer(tmp_path):
    router = world.make(world.store(tmp_path / "a.db"))
    run = world.run(router, 2)
    next(run)
    assert len(list(StoreReader(tmp_path / "a.db").steps())) >= 1
    list(run)
    assert router.errors == 0


def test_times_are_dates_or_ages():
    from steproute.store.command import when

    assert when("15m", 1000.0) == 100.0
    assert when("1970-01-01T00:01", 0.0) == 60.0
    assert when("1970-01-01T01:00+01:00", 0.0) == 0.0
    with pytest.raises(ConfigError, match="time: seen 'soon'"):
        when("soon", 0.0)


def test_the_tables_are_read_with_ordinary_sql(path):
    connection = sqlite3.connect(path)
    share = connection.execute(
        "SELECT model, COUNT(*), AVG(error IS NULL), SUM(usd) FROM outcomes GROUP BY model ORDER BY 2 DESC"
    ).fetchall()
    assert sum(row[1] for row in share) >= 22
    evidence = connection.execute("SELECT source, COUNT(*) FROM evidence GROUP BY 1").fetchall()
    assert dict(evidence)["examples"] >= 20
    first = connection.execute("SELECT json_extract(candidates, '$.model[0]') FROM decisions").fetchone()
    assert first[0] in world.MODELS


def test_no_text_of_the_users_is_kept_unless_it_is_asked_for(tmp_path):
    for prompts in (False, True):
        path = tmp_path / f"{prompts}.db"
        router = world.make(world.store(path, prompts=prompts), "knn")
        list(world.run(router, 4))
        decision = router.decide(Task(id="t", goal="secret goal"), prompt_tokens=10, text="secret text")
        router.observe(decision, Outcome(error=f"401 secret prompt quoted with {KEY}"))
        router.report("t", [Evidence(source="judge", score=1, detail="secret detail")])
        router.close()
        dump = "\n".join(sqlite3.connect(path).iterdump())
        assert KEY not in dump
        assert ("secret" in dump) == prompts
        assert "401" in dump


def test_a_store_is_named_in_the_config(tmp_path):
    config = tmp_path / "steproute.yaml"
    config.write_text("models: [{name: a, price: free}]\nstore: steps.db\n")
    router = Router.from_config(config)
    router.observe(router.decide("t"), Outcome())
    router.close()
    assert (tmp_path / "steps.db").exists()
    assert "task t " in command("explain", "t", "--store", config)
    config.write_text("models: [{name: a, price: free}]\nstore: {target: steps.db, shared: true, poll_s: 2}\n")
    assert load_config(config)["store"] == Store(str(tmp_path / "steps.db"), shared=True, poll_s=2)
    for given, told in (
        ("store: {target: x.db, share: true}", "did you mean 'shared'"),
        ("store: {poll_s: 2}", "allowed: a path, a URL, or `target` and settings"),
        ("store: {target: x.db, poll_s: -2}", "poll_s: seen -2; allowed: 0 or more"),
    ):
        config.write_text(f"models: [{{name: a, price: free}}]\n{given}\n")
        with pytest.raises(ConfigError, match=told):
            load_config(config)


def test_without_a_store_nothing_of_it_is_loaded():
    import subprocess
    import sys

    code = (
        "import sys, steproute; r = steproute.Router([steproute.Model('a', price='free')]); r.observe(r.decide('t'), "
        "steproute.Outcome()); r.finish('t'); r.close(); print([m for m in sys.modules if 'sqlalchemy' in m or '.store' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
