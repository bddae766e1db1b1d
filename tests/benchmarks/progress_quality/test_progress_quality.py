"""How well progress foretells outcomes: the measures by hand, the readers, the fit, and no leak of a run's length."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from steproute.benchmarks.progress_quality.__main__ import app
from steproute.benchmarks.progress_quality.fit import fit_outlook, on_unseen_tasks
from steproute.benchmarks.progress_quality.measures import auc, calibrated, folds, quality
from steproute.benchmarks.progress_quality.records import Record, read_run, read_taubench
from steproute.benchmarks.progress_quality.report import report
from steproute.errors import ConfigError
from steproute.ledger import Ledger, Step, ToolCall
from steproute.progress import ProgressTracker, Regime
from steproute.progress.outlook import CalibratedToolsView, Outlook, kinds


def called(*names: str, ok: bool = True) -> Step:
    return Step(id=",".join(names), tool_calls=[ToolCall(name=name, ok=ok) for name in names])


def test_auc_by_hand() -> None:
    assert auc([1, 2, 3, 4], [False, False, True, True]) == 1
    assert auc([4, 1, 2, 2], [False, False, True, True]) == 0.5
    assert auc([1, 1], [True, False]) == 0.5
    assert math.isnan(auc([1, 2], [True, True]))


def test_runs_of_a_task_are_on_one_side() -> None:
    tasks = [f"t{i // 4}" for i in range(40)]
    for split in range(5):
        parts = folds(tasks, split)
        assert np.sum(parts, axis=0).tolist() == [1] * 40
        assert all(
            len({tasks[i] for i in np.flatnonzero(part)} & {tasks[i] for i in np.flatnonzero(~part)}) == 0
            for part in parts
        )
    assert calibrated([1.0, 2.0], [True, False], ["t", "t"], 0) is None


def test_a_good_signal_and_none() -> None:
    rng = np.random.default_rng(0)
    tasks = [f"t{i // 2}" for i in range(80)]
    success = [bool(x) for x in rng.random(80) < 0.5]
    good = quality([float(x) for x in success], success, tasks, draws=200)
    assert (good.auc, good.low, good.high) == (1.0, 1.0, 1.0)
    assert good.brier < 0.01
    noise = quality(rng.random(80).tolist(), success, tasks, draws=200)
    assert noise.low < 0.5 < noise.high
    assert noise.brier > 0.24


def test_kinds_of_calls() -> None:
    step = called(
        "get_user", "find_order", "calculate", "think", "search_flight", "update_booking", "transfer_to_human_agents"
    )
    assert kinds(step) == (1, 2)
    assert kinds(Step()) == (0, 0)


def test_an_outlook_by_hand() -> None:
    outlook = Outlook(0.5, 2.0, -1.0)
    assert outlook(False, 0) == pytest.approx(1 / (1 + math.exp(-0.5)))
    assert outlook(True, 3) == pytest.approx(1 / (1 + math.exp(-(2.5 - math.log(4)))))


def test_the_view_says_the_outlook_and_falls_back_on_an_error() -> None:
    view = CalibratedToolsView(outlook=Outlook(0.0, 2.0, -1.0))
    ledger = Ledger()
    tracker = ProgressTracker(view)
    ledger.steps.append(called("search_flight"))
    searched = tracker.update(ledger)
    assert (searched.regime, searched.r) == (Regime.PARTIAL, pytest.approx(1 / 3))
    ledger.steps.append(called("book", ok=False))
    failed = tracker.update(ledger)
    assert (failed.regime, failed.r) == (Regime.RECOVERABLE, pytest.approx(1 / 4))
    ledger.steps.append(called("transfer_to_human_agents"))
    handed = tracker.update(ledger)
    assert handed.regime is Regime.PARTIAL
    assert handed.r == pytest.approx(1 / (1 + math.exp(-2) * 3))
    assert tracker.update(ledger) == handed  # reading the newest step again counts nothing twice
    assert ProgressTracker(view).update(ledger) == handed


def conversation(task: int, reward: float, turns: int, tool: str = "get_user") -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "rules"}, {"role": "user", "content": "hi"}]
    for turn in range(turns):
        call = {"id": str(turn), "function": {"name": tool, "arguments": f'{{"n": {turn}}}'}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": str(turn), "content": "Error: no seat" if turn == 1 else "{}"},
        ]
    return {"task_id": task, "reward": reward, "traj": messages, "info": {"answer": "key"}}


def test_conversations_become_steps(tmp_path: Path) -> None:
    (tmp_path / "runs.json").write_text(json.dumps([conversation(3, 1.0, 2), conversation(3, 0.0, 7)]))
    first, second = read_taubench(tmp_path)
    assert (first.task, first.success, len(first.steps)) == ("runs/3", True, 2)
    assert [call.ok for step in first.steps for call in step.tool_calls] == [True, False]
    assert first.steps[1].tool_calls[0].error == "Error: no seat"
    assert (second.success, len(second.steps)) == (False, 7)
    # what comes after the cut, and so the length of the run, cannot be seen
    for view in (None, CalibratedToolsView()):
        assert second.after(2, view) == first.after(2, view) == first.after(9, view)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": "x"}, "row 1: field 'reward': seen 'x'; allowed: a number"),
        ({"reward": 2}, "row 1: field 'reward': seen 2.0; allowed: a number in"),
        ({"traj": [3]}, "row 1: field 'traj': seen 3; allowed: messages with a role"),
        ({"traj": None}, "row 1: field 'traj': seen None; allowed: a list"),
    ],
)
def test_bad_runs_are_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "runs.json").write_text(json.dumps([{**conversation(1, 1.0, 1), **change}]))
    with pytest.raises(ConfigError, match=f"runs.json {message}"):
        read_taubench(tmp_path / "runs.json")


def test_the_runs_of_our_own_benchmarks(tmp_path: Path) -> None:
    tool = {"name": "get", "ok": True, "error": "", "fingerprint": "f"}
    steps = [
        {"policy": "p", "task": "t", "model": "m", "tools": [tool], "g_after": 0.2},
        {"policy": "p", "task": "t", "model": "m", "g_after": None},  # it failed: nothing moved
        {"policy": "p", "task": "t", "model": None},
    ]
    tasks = [
        {"policy": "p", "task": "t", "passed": True, "about": {"domain": "math"}},
        {"policy": "p", "task": "u", "passed": False, "error": "away"},
    ]
    for name, rows in (("steps", steps), ("tasks", tasks)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (record,) = read_run(tmp_path)
    assert (record.domain, record.success, record.after(1), record.after(5)) == ("math", True, 0.2, 0.2)
    assert len(record.steps) == 2
    with pytest.raises(ConfigError, match=r"holds no tasks\.jsonl"):
        read_run(tmp_path / "nowhere")


def made(count: int = 24) -> list[Record]:
    """Tasks with searches fail, others succeed, but for one in four."""
    records = []
    for task in range(count):
        hard = task % 2 == 0
        for trial in range(4):
            steps = [called("search_flight" if hard else "get_user") for _ in range(6)]
            records.append(Record("tools", f"t{task}", hard == (trial == 0), steps))
    return records


def test_a_fit_finds_what_is_there_and_holds_on_unseen_tasks() -> None:
    outlook = fit_outlook(made())
    assert outlook.demanding < -0.5
    assert abs(outlook.handed_over) < 1e-6  # nobody was handed over
    mean, _ = on_unseen_tasks(made(), 10, splits=5)
    assert mean == pytest.approx(0.75, abs=0.02)  # halves are not equally mixed
    with pytest.raises(ConfigError, match="needed: some of both"):
        fit_outlook([record for record in made() if record.success])


def test_a_report_beside_simpler_signals() -> None:
    rows = {(row["turns"], row["signal"]): row for row in report(made(8), {"outlook": CalibratedToolsView()}, (5,))}
    assert set(rows) == {
        (5, name) for name in ("g", "g, outlook", "fewer tool calls", "fewer errors", "fewer messages")
    }
    assert rows[5, "g, outlook"]["auc"] == pytest.approx(0.75)
    assert rows[5, "fewer tool calls"]["auc"] == 0.5
    assert rows[5, "g"]["going"] == 32


def test_the_command(tmp_path: Path) -> None:
    runs = [conversation(i // 2, float(i // 2 % 2), 6, "search" if i // 2 % 2 else "get") for i in range(12)]
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    done = CliRunner().invoke(app, ["--taubench", str(tmp_path), "--fit", "--json"], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert {row["signal"] for row in found["rows"]} >= {"g", "g, outlook", "fewer errors"}
    assert found["fit"]["demanding"] > 0
    shown = CliRunner().invoke(app, ["--taubench", str(tmp_path), "--turns", "2"], catch_exceptions=False)
    assert "fewer tool calls" in shown.output
    assert isinstance(CliRunner().invoke(app, []).exception, ConfigError)
    for wrong in ("0", "x", "1,", "0.5"):
        asked = CliRunner().invoke(app, ["--taubench", str(tmp_path), "--turns", wrong])
        assert str(asked.exception).startswith(f"turns: seen '{wrong}'")
