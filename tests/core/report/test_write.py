"""What goes into the page: files read with care, right numbers, small size, nothing that escapes its script."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from core.report.synthetic import write_lines, write_run
from hypothesis import given, settings
from hypothesis import strategies as st

from steproute.errors import ConfigError
from steproute.report import Run, read_run, write_report
from steproute.report.pack import FIELDS, Packer
from steproute.report.page import render
from steproute.report.summary import summarise, wilson
from steproute.report.values import in_order, natural, number


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="run-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def task_row(policy: str = "p", task: str = "t", **more: Any) -> dict[str, Any]:
    return {"policy": policy, "task": task, "passed": True, "seconds": 2.0, "models": ["m"], **more}


def test_report_lands_in_the_run_folder_and_replaces_an_older_one(tmp_path: Path) -> None:
    write_lines(tmp_path / "tasks.jsonl", [task_row()])
    (tmp_path / "report.html").write_text("old")
    assert write_report(tmp_path) == tmp_path / "report.html"
    assert "old" not in (tmp_path / "report.html").read_text()[:100]
    assert write_report(tmp_path, tmp_path / "new" / "page.html") == tmp_path / "new" / "page.html"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "report.html", "tasks.jsonl"]


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()], ids=["missing", "empty"])
def test_a_folder_without_results_is_an_error_that_says_what_is_allowed(tmp_path: Path, make: Any) -> None:
    folder = tmp_path / "nothing"
    make(folder)
    with pytest.raises(ConfigError, match=r"run: seen '.*nothing'; allowed: a folder with results of `steproute run`"):
        write_report(folder)


def test_page_refers_to_nothing_outside_itself(run_dir: Path) -> None:
    page = render(read_run(run_dir))
    assert set(re.findall(r"(?:https?|wss?|ftp)://[^\s\"'<>)]*", page)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"(?:src|href)=[\"']?([^\"'\s>]+)", page.split("<script", 1)[0]) == [
        "data:,",
        "#plane",
        *("#plane", "#table", "#calls", "#task", "#words", "#again"),
    ]
    assert "@import" not in page
    assert "url(" not in page


def test_page_of_forty_tasks_and_ten_policies_stays_below_a_megabyte(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", count=40))
    extra = [
        {**row, "policy": f"copy of {row['policy']}"} for row in run.steps if row["policy"] in ("random", "cheapest")
    ]
    run.steps.extend(extra)
    data = data_of(render(run))
    assert len(data["policies"]) == 10
    assert len(data["steps"]) == len(run.steps)
    assert len(render(run).encode()) < 1_000_000


def test_a_larger_run_keeps_whole_tasks_evenly_and_says_so(run_dir: Path) -> None:
    run = read_run(run_dir)
    everything = len(render(run))
    small = render(run, limit=20_000)
    data = data_of(small)
    words = data["words"]
    tasks = {words[row[1]] for row in data["steps"]}
    assert len(json.dumps(data, separators=(",", ":"))) <= 20_000
    assert len(small) < everything
    assert 1 <= len(tasks) < 12
    assert tasks == {words[row[1]] for row in data["tasks"]}
    for task in tasks:
        kept = sum(words[row[1]] == task for row in data["steps"])
        assert kept == sum(row["task"] == task for row in run.steps)
    assert any(f"the steps of {len(tasks)} of 12 tasks" in note for note in data["notes"])
    assert sum(sum(map(sum, table)) for table in data["calls"]) == len(run.steps)  # totals stay whole


def test_text_of_models_cannot_end_the_script(tmp_path: Path) -> None:
    nasty = "</script><script>alert(1)</script><!-- & ' \" \u2028 {{style}} \ud800"
    write_lines(tmp_path / "tasks.jsonl", [task_row(nasty, nasty, models=[nasty])])
    write_lines(
        tmp_path / "steps.jsonl", [{"policy": nasty, "task": nasty, "model": nasty, "visible": {"error": nasty}}]
    )
    (tmp_path / "config.json").write_text(json.dumps({"benchmark": nasty}))
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert page.count("<script") == page.count("</script>") == 2
    assert "<!--" not in page
    assert f"<title>{html.escape(nasty).replace(chr(0xD800), '?')} · steproute report</title>" in page
    data = data_of(page)
    assert data["policies"] == [nasty]
    assert data["words"][data["steps"][0][FIELDS["step"].index("visible")][3]] == nasty


def test_torn_lines_and_missing_files_are_told_not_fatal(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task_row()) + "\n\n[1]\n" + '{"policy": "p", "ta')
    run = read_run(tmp_path)
    assert [row["task"] for row in run.tasks] == ["t"]
    assert run.notes == [
        "config.json is missing.",
        "summary.json is missing.",
        "tasks.jsonl: 2 line(s) could not be read and are left out (line 3, 4).",
        "steps.jsonl is missing.",
    ]
    assert data_of(render(run))["notes"][-1] == "The summary was computed from tasks.jsonl for this page."


def test_broken_summary_is_told(tmp_path: Path) -> None:
    write_lines(tmp_path / "tasks.jsonl", [task_row()])
    (tmp_path / "summary.json").write_text("{")
    assert any(note.startswith("summary.json could not be read: Expecting") for note in read_run(tmp_path).notes)


def test_summary_from_tasks_has_means_shares_and_the_interval() -> None:
    rows = [
        task_row(task="a", calls=1, tokens=100, models=["s"], visible_ok=True),
        task_row(task="b", calls=3, tokens=300, models=["s", "l", "l"], passed=False, visible_ok=True, seconds=6.0),
    ]
    assert summarise(rows, price_of_second=0.01) == [
        {
            "policy": "p",
            "tasks": 2,
            "pass_rate": 0.5,
            "pass_rate_ci95": list(wilson(1, 2)),
            "visible_pass_hidden_fail": 0.5,
            "seconds": 4.0,
            "tokens": 200.0,
            "calls_per_task": 2.0,
            "share": {"s": 0.5, "l": 0.5},
            "value": pytest.approx(0.46),
        }
    ]


@pytest.mark.parametrize(
    ("passed", "total", "low", "high"),
    [(0, 0, 0.0, 1.0), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (0, 20, 0.0, 0.1611)],
)
def test_wilson_interval_has_the_published_values(passed: int, total: int, low: float, high: float) -> None:
    assert wilson(passed, total) == pytest.approx((low, high), abs=1e-4)


def test_calls_are_counted_per_position_and_stops_are_no_calls() -> None:
    def step(task: str, model: str, stop: bool = False) -> dict[str, Any]:
        return {"policy": "p", "task": task, "model": model, "decision": {"stop": stop}}

    steps = [step("a", "s"), step("a", "l"), step("a", "l", stop=True), step("b", "l")]
    config = {"models": [{"name": "l", "size_b": 7}, {"name": "s", "size_b": 1}]}
    data = Packer(Run(Path("r"), config, steps=steps)).pack({"a", "b"})
    assert [model["name"] for model in data["models"]] == ["s", "l"]
    assert data["calls"] == [[[1, 1], [0, 1]]]


def test_command_line_is_quoted_or_taken_as_recorded() -> None:
    config: dict[str, Any] = {"benchmark": "b", "policies": ["fixed:a b", {"name": "pacer", "V": 2}], "seed": 0}
    assert (
        Packer(Run(Path("r"), config)).pack(set())["run"]["command"]
        == "steproute run b --policy 'fixed:a b,pacer' --seed 0"
    )
    config["command"] = "steproute run b --config mine.yaml"
    assert Packer(Run(Path("r"), config)).pack(set())["run"]["command"] == "steproute run b --config mine.yaml"


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (1.0, 1),
        (0.123456789, 0.12346),
        (True, None),
        ("3", None),
        (float("nan"), None),
        (float("inf"), None),
        (None, None),
    ],
)
def test_numbers_are_finite_and_short(value: object, rounded: float | None) -> None:
    assert number(value) == rounded


def test_names_come_in_the_wanted_order_then_naturally() -> None:
    assert in_order(["t/10", "t/9", "z", "t/9"], ["z", "absent"]) == ["z", "t/9", "t/10"]
    assert natural("t/9") < natural("t/10")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["g", "m", "stop", "model", "name"]), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = [
    *("policy", "task", "step", "model", "decision", "outcome", "visible", "hidden", "q", "regret", "progress_after"),
    *("models", "passed", "regime_path", "share", "pass_rate", "pass_rate_ci95", "candidates"),
]
RECORDS = st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8), max_size=4)
CONFIG = st.dictionaries(
    st.sampled_from(["benchmark", "policies", "models", "tasks", "versions", "seed", "command"]), JSON
)


@settings(max_examples=60, deadline=None)
@given(CONFIG, RECORDS, RECORDS, RECORDS)
def test_any_json_in_any_field_still_makes_a_page(config: Any, summary: Any, tasks: Any, steps: Any) -> None:
    page = render(Run(Path("r"), config, summary, tasks, steps))
    data = data_of(page)
    assert len(data["steps"]) == len(steps)
    assert page.count("</script>") == 2
