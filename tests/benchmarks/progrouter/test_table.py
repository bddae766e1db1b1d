from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from steproute.benchmarks.progrouter.cli import app, chosen
from steproute.benchmarks.progrouter.methods import METHODS, PROGROUTER, Job, Phase, Run, run, size_of
from steproute.benchmarks.progrouter.summary import front, summarise
from steproute.errors import ConfigError


def phase(quality: float, energy: float, seconds: float = 10.0) -> Phase:
    return Phase(quality, energy, seconds, 5.0, {"alpha": 0.75, "beta": 0.25}, {"small": 1.0})


def made(method: str, *pairs: tuple[float, float]) -> list[Run]:
    return [Run(method, seed, phase(0.1, 1.0), phase(*pair)) for seed, pair in enumerate(pairs)]


RUNS = [
    *made("dear", (0.9, 9000), (0.9, 9100)),
    *made("good", (0.8, 6000), (0.8, 6400)),
    *made("thrifty", (0.5, 3000), (0.5, 3000)),
    *made("worse", (0.4, 4000), (0.4, 4000)),
    *made("edge", (0.7, 6000), (0.7, 7900)),
]


def test_feasibility_comes_first_then_quality():
    rows = summarise(RUNS, 7000)
    assert [row.method for row in rows] == ["good", "edge", "thrifty", "worse", "dear"]
    assert [row.feasible for row in rows] == [True, True, True, True, False]
    assert [row.sure for row in rows] == [False, False, True, True, True]  # 12.71 · sd / √2 around the mean
    assert {row.method: row.best for row in rows if row.best} == {
        "good": ("quality", "seconds"),
        "edge": ("seconds",),
        "thrifty": ("energy_j", "seconds"),
        "worse": ("seconds",),
    }
    (alone,) = summarise(made("good", (0.8, 3000)), 7000)
    assert (alone.feasible, alone.sure) == (True, False)
    assert summarise(RUNS, 7000, "cold")[0].values["energy_j"].mean == 1.0


def test_the_front_holds_what_nothing_dominates():
    assert front(summarise(RUNS, 7000)) == ["thrifty", "good", "dear"]


def test_sizes_and_methods():
    assert [size_of(b) for b in (0.5, 4, 7, 14, 27, 80)] == ["small", "small", "medium", "medium", "large", "large"]
    assert chosen(["mas", "fixed alpha-3b"]) == ["MasRouter (task-level)", "fixed alpha-3b"]
    assert chosen([])[0] == PROGROUTER
    with pytest.raises(ConfigError, match="method: unknown name 'nonsense'"):
        chosen(["nonsense"])


@pytest.mark.parametrize("method", ["MasRouter (task-level)", "CASCADIA (cascade)", "Educated Guess", "fixed beta-4b"])
def test_a_seed_is_a_result_and_shares_add_up(method):
    job = Job(method, 3, tasks=12, warmup=5)
    found = run(job)
    assert found == run(job)
    for part in (found.cold, found.steady):
        assert sum(part.family.values()) == pytest.approx(1)
        assert sum(part.size.values()) == pytest.approx(1)
        assert part.energy_j > 0
    assert method in METHODS


def test_the_command_writes_a_table_and_three_figures(tmp_path):
    arguments = ["--seeds", "2", "--tasks", "30", "--warmup", "10", "--method", "fixed", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "fixed alpha-32b" in done.output
    for number in (3, 4, 5):
        root = ElementTree.parse(tmp_path / f"figure{number}.svg").getroot()
        texts = [item.text or "" for item in root.iter() if item.tag.endswith("text")]
        assert any("fixed alpha-32b" in text for text in texts)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert len(summary["steady"]) == len(summary["cold"]) == 6
    assert summary["steady"][0]["size"]["small"]["mean"] in (0.0, 1.0)
    assert "One seed" not in done.output
    told = CliRunner().invoke(app, ["--seeds", "1", *arguments[2:6], "--method", "fixed alpha-3b"]).output
    assert "One seed gives no interval" in told
    assert CliRunner().invoke(app, ["--tasks", "30", "--warmup", "30"]).exit_code == 2
