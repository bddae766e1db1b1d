"""The page in a real browser: complete, silent, offline, within the width, legible, and usable by keyboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from core.report.browser import Browser
from core.report.synthetic import POLICIES

WIDTHS = {"phone": 390, "desktop": 1440}

CONTRAST = """(() => {
  const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const paint = (colors) => {
    brush.clearRect(0, 0, 1, 1);
    for (const color of colors) { brush.fillStyle = color; brush.fillRect(0, 0, 1, 1); }
    return [...brush.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((total, v, i) => total + v * [0.2126, 0.7152, 0.0722][i], 0);
  const weak = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    const style = getComputedStyle(node);
    if (!own || !node.getClientRects().length || node.closest("svg, option, [disabled], script, .unseen")) continue;
    const behind = [];
    for (let up = node; up; up = up.parentElement) behind.unshift(getComputedStyle(up).backgroundColor);
    const [one, two] = [paint([...behind, style.color]), paint(behind)].map(light).sort((a, b) => b - a);
    if ((one + 0.05) / (two + 0.05) < 4.5) weak.push(`${node.className || node.tagName}: ${node.textContent.slice(0, 30)}`);
  }
  return weak;
})()"""


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_page_is_complete_silent_offline_and_within_its_width(browser: Browser, page: Path, width: int) -> None:
    tab = browser.open(page, width)
    assert tab.complaints() == []
    assert tab.requests() == [page.as_uri()]
    marks = tab.run("({ ...document.documentElement.dataset })")
    assert marks == {"errors": "0", "ready": "1", "width": str(width), "overflow": "0"}
    assert sorted(tab.texts("#table tbody th")) == sorted(POLICIES)
    assert tab.texts("#calls .bar-name") == list(POLICIES)
    assert sorted(tab.texts("#plane svg .point-label")) == sorted(POLICIES)
    assert tab.run("document.querySelectorAll('#plane .front').length") == 2  # the line and its legend
    assert len(tab.texts("#task .step")) >= 1
    assert "steproute run humaneval --framework ag2 --backend cassette --policy progrouter," in tab.text("#again pre")
    tab.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_is_legible_in_both_colour_schemes(browser: Browser, page: Path, dark: bool) -> None:
    tab = browser.open(page, dark=dark)
    tab.run("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    assert tab.run(CONTRAST) == []
    tab.close()


def test_nothing_sticks_out_at_any_width_even_with_everything_open(browser: Browser, page: Path) -> None:
    tab = browser.open(page, 320)
    tab.run("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    for width in (320, 390, 640, 641, 900, 1440, 2200):
        tab.resize(width)
        tab.wait(f"document.documentElement.dataset.width === '{width}'")
        assert tab.run("document.documentElement.dataset.overflow") == "0", width
    tab.close()


def test_every_control_has_a_name_and_ids_are_unique(browser: Browser, page: Path) -> None:
    tab = browser.open(page)
    nodes = tab.send("Accessibility.getFullAXTree")["nodes"]
    controls = {"button", "combobox", "radio", "link", "region", "img", "group", "table"}
    nameless = [
        node
        for node in nodes
        if node.get("role", {}).get("value") in controls
        and not node.get("ignored")
        and node["role"]["value"] not in ("group",)
        and not node.get("name", {}).get("value")
    ]
    assert nameless == []
    assert (
        tab.run(
            "(() => { const ids = [...document.querySelectorAll('[id]')].map((n) => n.id); return ids.length - new Set(ids).size; })()"
        )
        == 0
    )
    assert tab.run("[...document.querySelectorAll('h1, h2')].map((n) => n.tagName).join(' ')") == "H1 H2 H2 H2 H2 H2 H2"
    tab.close()


def test_table_sorts_by_a_column_both_ways_and_says_so(browser: Browser, page: Path, run_dir: Path) -> None:
    seconds = {row["policy"]: row["seconds"] for row in json.loads((run_dir / "summary.json").read_text())}
    tab = browser.open(page)
    rows = "#table tbody th"
    head = "[...document.querySelectorAll('#table thead button')].find((node) => node.innerText.startsWith('Seconds'))"
    tab.run(f"{head}.click()")
    shown = [seconds[name] for name in tab.texts(rows)]
    assert shown == sorted(shown)
    assert tab.run(f"{head}.closest('th').getAttribute('aria-sort')") == "ascending"
    tab.run(f"{head}.focus()")
    tab.press("Enter", 13, "\r")
    shown = [seconds[name] for name in tab.texts(rows)]
    assert shown == sorted(shown, reverse=True)
    assert tab.run("document.querySelectorAll('#table [aria-sort]').length") == 1
    tab.close()


def test_plane_switches_its_cost_and_tells_a_point_in_words(browser: Browser, page: Path, run_dir: Path) -> None:
    summary = {row["policy"]: row for row in json.loads((run_dir / "summary.json").read_text())}
    tab = browser.open(page)
    assert tab.texts("#plane-controls label") == ["Seconds", "Money", "Tokens", "Energy"]
    tab.click("#plane-controls input[value=energy_j]")
    assert "joules per task" in tab.run("document.querySelector('#plane svg').textContent")
    tab.run("document.querySelector('#plane .point[aria-label^=oracle]').focus()")
    said = tab.text("#plane-detail")
    assert said.startswith(f"oracle: passes {summary['oracle']['pass_rate'] * 100:.3g} % of tasks (95 % interval ")
    assert "a bound, not a competitor" in said
    tab.close()


def test_pareto_front_holds_the_policies_nothing_beats(browser: Browser, page: Path, run_dir: Path) -> None:
    rows = [row for row in json.loads((run_dir / "summary.json").read_text()) if row["policy"] != "oracle"]
    beaten = {
        a["policy"]
        for a in rows
        for b in rows
        if b["seconds"] <= a["seconds"]
        and b["pass_rate"] >= a["pass_rate"]
        and (b["seconds"], b["pass_rate"]) != (a["seconds"], a["pass_rate"])
    }
    tab = browser.open(page)
    on_front = tab.run(
        "[...document.querySelectorAll('#plane .point.on')].map((n) => n.getAttribute('aria-label').split(': passes')[0])"
    )
    assert set(on_front) == {row["policy"] for row in rows} - beaten
    tab.close()


def test_calls_can_be_split_by_size_and_by_position(browser: Browser, page: Path, run_dir: Path) -> None:
    steps = [json.loads(line) for line in (run_dir / "steps.jsonl").read_text().splitlines()]
    first = sum(1 for step in steps if step["policy"] == "random" and step["step"] == "0")
    tab = browser.open(page)
    tab.click("#calls-controls input[value=size]")
    assert tab.texts("#calls-legend > span") == ["135 M parameters", "500 M parameters", "1.5 B parameters"]
    tab.choose("#calls-controls select", "0")
    assert tab.texts("#calls .bar-total")[POLICIES.index("random")] == f"{first} calls"
    bar = "[...document.querySelectorAll('#calls .bar')].find((n) => n.getAttribute('aria-label').startsWith('fixed:smollm2-135m'))"
    assert tab.run(f"{bar}.getAttribute('aria-label')") == f"fixed:smollm2-135m: 135 M parameters {first} calls, 100 %"
    tab.close()


def test_any_task_of_any_policy_can_be_opened_and_linked_to(browser: Browser, page: Path, run_dir: Path) -> None:
    steps = [json.loads(line) for line in (run_dir / "steps.jsonl").read_text().splitlines()]
    tab = browser.open(page)
    tab.choose("#pick-policy", "random")
    tab.choose("#pick-task", "HumanEval/16")
    mine = [step for step in steps if (step["policy"], step["task"]) == ("random", "HumanEval/16")]
    assert len(tab.texts("#task .step")) == len(mine)
    assert tab.text("#task .outcome > p").startswith(f"random made {len(mine)} call")
    assert tab.run("location.hash") == "#task?policy=random&task=HumanEval%2F16"
    assert tab.run("document.activeElement.id") == "pick-task"
    tab.click("#task-next")
    assert tab.run("document.querySelector('#pick-task').value") == "HumanEval/20"
    tab.close()

    linked = browser.open(page, fragment="#task?policy=cheapest&task=HumanEval%2F8")
    assert linked.text("#task .outcome > p").startswith("cheapest made ")
    assert " for HumanEval/8, spending " in linked.text("#task .outcome > p")
    assert linked.complaints() == []
    linked.close()


def test_an_address_that_names_nothing_opens_the_default(browser: Browser, page: Path) -> None:
    tab = browser.open(page, fragment="#task?policy=nobody&task=nothing")
    assert tab.text("#task .outcome > p").startswith("progrouter made ")
    assert tab.complaints() == []
    tab.close()
