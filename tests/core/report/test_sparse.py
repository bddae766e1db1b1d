"""Runs that lack things, or hold strange or long ones, still make a page that draws without a complaint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from core.report.browser import Browser
from core.report.synthetic import write_lines

from steproute.report import write_report

NASTY = "</script><img src=x onerror=\"document.title='owned'\"> & 'é✓中' " + "unbreakable" * 12
Lines = list[dict[str, Any]]


def long_task() -> Lines:
    def step(i: int) -> dict[str, Any]:
        regime = ["invalid", "recoverable", "partial"][i % 3]
        progress = {"g": [0.05, 0.3, 0.7][i % 3], "regime": regime}
        candidates = [{"model": f"m{k}", "score": float((i + k) % 7), "terms": {}} for k in range(7)]
        best = max(candidates, key=lambda item: item["score"])
        decision = {"progress": progress, "candidates": candidates, "role": f"worker {i % 4}", "propensity": 1.0}
        return {"policy": "p", "task": "long", "step": str(i), "model": best["model"], "decision": decision}

    return [step(i) for i in range(60)]


RUNS: dict[str, dict[str, Any]] = {
    "only a summary": {
        "summary": [{"policy": "p", "pass_rate": 0.5, "seconds": 1.0}, {"policy": "q", "pass_rate": 0.7}]
    },
    "only tasks": {"tasks": [{"policy": "p", "task": "t", "passed": False}]},
    "only steps": {"steps": [{"policy": "p", "task": "t", "model": "m"}, {"policy": "p", "task": "t"}]},
    "all null": {
        "config": dict.fromkeys(
            ["benchmark", "framework", "policies", "seed", "models", "versions", "price_of_second"]
        ),
        "summary": [
            dict.fromkeys(["pass_rate", "seconds", "share", "pass_rate_ci95", "value"], None) | {"policy": "p"}
        ],
        "tasks": [{"policy": "p", "task": "t", "passed": None, "models": None, "regret": None, "energy_j": None}],
        "steps": [{"policy": "p", "task": "t", "decision": None, "visible": None, "hidden": None, "q": None}],
    },
    "empty files": {"summary": [], "tasks": [], "steps": []},
    "no call and no cost": {
        "summary": [{"policy": "p", "pass_rate": 0.0, "seconds": 0.0, "usd": 0.0, "share": {}}],
        "tasks": [{"policy": "p", "task": "t", "passed": False, "models": []}],
    },
    "money over six orders": {
        "summary": [
            {"policy": f"p{i}", "pass_rate": i / 7, "pass_rate_ci95": [0, 1], "usd": 10.0 ** (i - 6)} for i in range(7)
        ]
    },
    "thirty policies at one point": {
        "summary": [{"policy": f"a policy with a long name {i}", "pass_rate": 0.5, "seconds": 9.0} for i in range(30)]
    },
    "hostile text": {
        "config": {"benchmark": NASTY, "models": [{"name": NASTY, "size_b": 1, "family": NASTY, "price": "unknown"}]},
        "summary": [
            {
                "policy": NASTY,
                "pass_rate": 0.5,
                "seconds": 1.0,
                "share": {NASTY: 1.0},
                "energy_j": 3,
                "energy_source": NASTY,
            }
        ],
        "tasks": [{"policy": NASTY, "task": NASTY, "passed": True, "models": [NASTY], "seconds": 1}],
        "steps": [
            {
                "policy": NASTY,
                "task": NASTY,
                "role": NASTY,
                "model": NASTY,
                "decision": {
                    "reason": NASTY,
                    "progress": {"g": 0.5, "regime": NASTY},
                    "candidates": [
                        {"model": NASTY, "score": 2.0, "terms": {NASTY: 2.0}, "cost": {NASTY: 1.0}},
                        {"model": "other", "score": 1.0, "terms": {NASTY: 1.0}},
                        {"model": "third", "score": None, "cause": NASTY},
                    ],
                },
                "outcome": {"error": NASTY},
                "visible": {"ok": False, "error": NASTY},
            }
        ],
    },
    "a long task with many models": {"steps": long_task(), "tasks": [{"policy": "p", "task": "long", "passed": True}]},
}


def write(folder: Path, run: dict[str, Any]) -> Path:
    for name in ("config", "summary"):
        if name in run:
            (folder / f"{name}.json").write_text(json.dumps(run[name]))
    for name in ("tasks", "steps"):
        if name in run:
            write_lines(folder / f"{name}.jsonl", run[name])
    return write_report(folder)


@pytest.mark.parametrize("name", RUNS)
def test_page_draws_without_a_complaint(browser: Browser, tmp_path: Path, name: str) -> None:
    tab = browser.open(write(tmp_path, RUNS[name]), 390)
    tab.run("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    tab.run("document.querySelectorAll('#plane-controls input').forEach((node) => node.click())")
    for width in (390, 1440):
        tab.resize(width)
        tab.wait(f"document.documentElement.dataset.width === '{width}'")
        assert tab.run("document.documentElement.dataset.overflow") == "0"
    assert tab.complaints() == []
    assert len(tab.requests()) == 1
    assert tab.run("document.documentElement.dataset.errors") == "0"
    assert "undefined" not in tab.text("body")
    assert "NaN" not in tab.run("document.body.innerHTML.split('run-data')[0]")
    assert tab.run("document.title") != "owned"
    tab.close()


def test_sections_without_data_say_so(browser: Browser, tmp_path: Path) -> None:
    tab = browser.open(write(tmp_path, RUNS["only tasks"]))
    assert (
        tab.text("#plane .empty")
        == "This run recorded no pass rate together with a cost, so there is nothing to draw here."
    )
    assert tab.text("#calls .empty") == "This run recorded no calls."
    assert tab.text("#task .empty") == "This run recorded no steps, so no single task can be shown."
    assert tab.texts("#alerts .note") == [
        "config.json is missing.",
        "summary.json is missing.",
        "steps.jsonl is missing.",
        "The summary was computed from tasks.jsonl for this page.",
    ]
    assert tab.texts("#table tbody td") == ["0 %", "0 %"]  # pass rate, fooled
    tab.close()


def test_policies_that_cannot_be_drawn_are_named(browser: Browser, tmp_path: Path) -> None:
    tab = browser.open(write(tmp_path, RUNS["only a summary"]))
    assert tab.text("#plane-detail").endswith(" Not drawn, as a number is missing: q.")
    assert tab.texts("#plane svg .point-label") == ["p"]
    tab.close()


def test_labels_of_a_crowd_become_one(browser: Browser, tmp_path: Path) -> None:
    tab = browser.open(write(tmp_path, RUNS["thirty policies at one point"]))
    assert tab.texts("#plane svg .point-label") == ["a policy with a long name 0 and 29 others"]
    assert tab.run("document.querySelectorAll('#plane-chart .point').length") == 30
    tab.close()


def test_hostile_text_is_shown_as_it_is(browser: Browser, tmp_path: Path) -> None:
    tab = browser.open(write(tmp_path, RUNS["hostile text"]))
    assert tab.run("document.images.length") == 0
    assert tab.texts("#table tbody th") == [NASTY]
    assert NASTY in tab.text("#task .why")
    tab.close()


def test_a_long_task_opens_its_first_step_only(browser: Browser, tmp_path: Path) -> None:
    tab = browser.open(write(tmp_path, RUNS["a long task with many models"]))
    assert tab.run("document.querySelectorAll('.step').length") == 60
    assert tab.run("document.querySelectorAll('.step details[open]').length") == 1
    assert tab.text("#task .outcome .route").replace("\n", " ").startswith("m6 ×9 m5 ×9 ")
    assert tab.text("#calls-controls select option:nth-child(2)") == "First call of a task"
    tab.close()


def test_a_page_that_fails_to_draw_says_so(browser: Browser, tmp_path: Path) -> None:
    page = write(tmp_path, RUNS["only a summary"])
    broken = page.read_text().replace('id="calls-chart"', 'id="elsewhere"')
    page.write_text(broken)
    tab = browser.open(page)
    assert tab.run("document.documentElement.dataset.errors") == "1"
    assert tab.text("#alerts [role=alert]").startswith("Part of this page could not be drawn: showCalls: ")
    assert any("TypeError" in words for words in tab.complaints())
    assert sorted(tab.texts("#table tbody th")) == ["p", "q"]
    tab.close()


def test_equal_numbers_have_no_best(browser: Browser, tmp_path: Path) -> None:
    rows = [{"policy": name, "pass_rate": rate, "seconds": 1.0, "usd": 0.0} for name, rate in (("p", 0.5), ("q", 0.7))]
    tab = browser.open(write(tmp_path, {"summary": rows}))
    assert tab.texts("#table td.best") == ["70 %"]
    tab.close()
