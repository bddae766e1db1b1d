"""Outcome tables in their published formats, cut down to a few rows of our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from steproute.benchmarks.coderouterbench import ReplaySettings, replay
from steproute.benchmarks.outcomes import cli
from steproute.benchmarks.outcomes.cells import usd_per_call
from steproute.benchmarks.outcomes.readers import read_plain, read_routellm, read_routerarena, read_swebench
from steproute.errors import ConfigError


def lines(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_row_per_cell(tmp_path: Path) -> None:
    file = tmp_path / "cells.csv"
    file.write_text(
        "task_id,model,score,cost_usd,dimension\nt1,a,1,0.5,d\nt1,b,0.25,,d\nt2,a,true,0,e\nt2,b,False,2,e\n"
    )
    table = read_plain(file, {"b": 0.125})
    assert (table.tasks, table.models, table.dimensions) == (["t1", "t2"], ["a", "b"], ["d", "e"])
    np.testing.assert_array_equal(table.scores, [[1, 0.25], [1, 0]])
    np.testing.assert_array_equal(table.usd, [[0.5, 0.125], [0, 2]])


def test_a_row_per_task(tmp_path: Path) -> None:
    file = tmp_path / "tasks.csv"
    file.write_text("task_id,prompt,small,large,large_usd\nt1,Add.,0,1,0.5\nt2,Sort.,1,1,0.25\n")
    table = read_plain(file, {"small": 0.01})
    assert table.models == ["small", "large"]
    assert table.prompts == {"t1": "Add.", "t2": "Sort."}
    assert table.dimensions == ["all", "all"]
    np.testing.assert_array_equal(table.usd, [[0.01, 0.5], [0.01, 0.25]])


def test_routellm(tmp_path: Path) -> None:
    folder = tmp_path / "responses"
    folder.mkdir()
    (folder / "mmlu_anatomy.csv").write_text('prompt,weak,strong\n"Which?\nA. 1",True,True\nOther?,False,True\n')
    (folder / "mmlu_law.csv").write_text(
        "prompt,weak,strong\nSeen before?,True,True\nOther?,False,False\nOther?,False,False\n"
    )
    lines(tmp_path / "contaminated_prompts.jsonl", {"eval_prompt": "Seen before?"})
    table = read_routellm(folder, {"weak": 0.001, "strong": 0.02})
    assert table.dimensions == ["anatomy", "anatomy", "law"]
    np.testing.assert_array_equal(table.scores, [[1, 1], [0, 1], [0, 0]])
    assert table.usd.tolist() == [[0.001, 0.02]] * 3
    assert "Which?\nA. 1" in table.prompts.values()
    (tmp_path / "gsm8k_responses.csv").write_text(
        "prompt,weak,strong,weak_response,strong_response\nHow many?,True,False,3,4\n"
    )
    gsm8k = read_routellm(tmp_path / "gsm8k_responses.csv")
    assert (gsm8k.models, gsm8k.dimensions, gsm8k.scores.tolist()) == (["weak", "strong"], ["gsm8k"], [[1, 0]])


def arena(task: str, model: str, score: float | None, usd: float = 0.1) -> dict[str, Any]:
    graded = None if score is None else {"score": score, "inference_cost": usd, "metric": "m"}
    return {"global_index": task, "question": f"q {task}", "llm_selected": model, "evaluation_result": graded}


def test_routerarena(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines(tmp_path / "a.jsonl", arena("AIME_1", "a", 0.0), arena("ArcMMLU_2", "a", 1.0), arena("AIME_3", "a", 1.0))
    lines(
        tmp_path / "b.jsonl", arena("AIME_1", "b", 1.0, 0.5), arena("ArcMMLU_2", "b", 0.5), arena("AIME_3", "b", None)
    )
    table = read_routerarena(tmp_path)
    assert (table.tasks, table.dimensions) == (["AIME_1", "ArcMMLU_2"], ["AIME", "ArcMMLU"])
    np.testing.assert_array_equal(table.scores, [[0, 1], [1, 0.5]])
    np.testing.assert_array_equal(table.usd, [[0.1, 0.5], [0.1, 0.1]])
    assert "1 of 3 tasks lack a model" in caplog.text


def test_swebench(tmp_path: Path) -> None:
    def write(name: str, content: object) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))

    write(
        "mini-a/per_instance_details.json",
        {"x__y-1": {"resolved": True, "cost": 0.25, "api_calls": 9}, "x__y-2": {"resolved": False, "cost": 0.5}},
    )
    write("agent-b/results/results.json", {"resolved": ["z__z-7"], "no_generation": ["x__y-1"], "no_logs": []})
    write("c.run.json", {"total_instances": 2, "submitted_ids": ["x__y-2", "z__z-7"], "resolved_ids": ["x__y-2"]})
    table = read_swebench(tmp_path, {"agent-b": 1.0})
    assert table.models == ["agent-b", "c", "mini-a"]
    cells = dict(zip(table.tasks, table.scores.tolist(), strict=True))
    assert cells == {"x__y-1": [0, 0, 1], "z__z-7": [1, 0, 0], "x__y-2": [0, 1, 0]}
    assert dict(zip(table.tasks, table.dimensions, strict=True))["z__z-7"] == "z__z"
    assert table.usd[table.tasks.index("x__y-2")].tolist() == [1.0, 0.0, 0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task_id,model,score\nt,a,2\nt,b,1\n", r"t.csv line 2: score: seen '2'; allowed: a number in \[0, 1\]"),
        ("task_id,model,score\nt,a,1\nt,a,1\n", "t.csv line 3: task 't' and model 'a' are given twice"),
        ("task_id,model,score,cost_usd\nt,a,1,-1\n", "line 2: cost: seen '-1'; allowed: a finite number, 0 or more"),
        ("task_id,model,score,cost_usd\nt,a,1,\nt,b,1,\n", "usd: .*'x'"),
        ("task_id,model\nt,a\n", "line 2: field 'score' is missing"),
        ("task_id,model,score\n,a,1\n", "line 2: task or model is empty"),
        ("task_id,model,score\nt,a,1\n", r"holds 1 model\(s\); a table needs at least two"),
        ("task_id,model,score\nt,a,1\nu,b,1\n", r"no task has an outcome of every model \(a, b\)"),
        ("task_id,a,b\nt,1\n", "line 2: score: seen None"),
        ("task_id,a,b\nt,1,1,1\n", "line 2: has more columns than the first line names"),
    ],
)
def test_bad_tables_are_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_plain(tmp_path / "t.csv", {"x": 1.0} if "usd" in message else None)


def test_a_policy_learns_from_a_table_without_kinds(tmp_path: Path) -> None:
    rows = "".join(f"t{i},{i % 2},1\n" for i in range(60))
    (tmp_path / "t.csv").write_text("task_id,small,large\n" + rows)
    table = read_plain(tmp_path / "t.csv", {"small": 0.001, "large": 0.002})
    (got,) = replay(table, "pacer", [0], ReplaySettings(usd_weight=2.0))
    assert got.avg_perf > 90  # always small: 50


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is no folder with \*\.jsonl files"):
        read_routerarena(tmp_path)
    with pytest.raises(ConfigError, match=r"holds no \.csv file"):
        read_routellm(tmp_path)
    with pytest.raises(ConfigError, match=r"holds no per_instance_details\.json"):
        read_swebench(tmp_path)
    (tmp_path / "m.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"m\.json: seen list; allowed: an object"):
        read_swebench(tmp_path)
    (tmp_path / "m.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"m\.json: field 'resolved_ids' is missing"):
        read_swebench(tmp_path)


def test_prices_of_calls() -> None:
    assert usd_per_call("a=0.1, b/c=2,") == {"a": 0.1, "b/c": 2.0}
    for wrong in ("a", "=1", "a=-1", "a=x"):
        with pytest.raises(ConfigError, match="usd"):
            usd_per_call(wrong)


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("task_id,small,large\n" + "".join(f"t{i},{i % 2},1\n" for i in range(8)))
    asked = ["--data", str(tmp_path / "t.csv"), "--usd", "small=0.01,large=0.1", "--policy", "fixed:*,oracle"]
    done = CliRunner().invoke(cli.plain, [*asked, "--seeds", "2", "--json"], catch_exceptions=False)
    rows = {row["policy"]: row for row in json.loads(done.stdout)}
    assert rows["fixed:small"]["avg_perf"]["mean"] == 50
    assert rows["fixed:large"]["usd"]["mean"] == pytest.approx(0.8)
    assert rows["oracle"]["cum_reg"]["mean"] == pytest.approx(0)
    for name in ("plain", "routellm", "routerarena", "swebench"):
        shown = CliRunner().invoke(getattr(cli, name), ["--help"], env={"COLUMNS": "200"}, catch_exceptions=False)
        assert "--usd" in shown.output
        assert "--policy" in shown.output
