"""Replaying a table of outcomes: the arithmetic by hand, and that a policy sees only what it called."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from steproute.benchmarks.coderouterbench import OutcomeTable, ReplaySettings, load_prior, load_table, replay
from steproute.benchmarks.coderouterbench.cli import app
from steproute.benchmarks.coderouterbench.replay import Stream
from steproute.errors import ConfigError
from steproute.policies import Feedback, Scores, StepContext

HEAD = "task_id,dimension,model,score,cost_usd\n"
ROWS = ["t1,d,a,1.0,0.5", "t1,d,b,0.0,0.0", "t2,d,a,0.25,0.5", "t2,d,b,0.5,1.0", "t3,e,a,0.0,0.0", "t3,e,b,1.0,2.0"]


def write(folder: Path, rows: list[str], head: str = HEAD) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "results.csv").write_text(head + "\n".join(rows) + "\n")
    return folder


@pytest.fixture
def table(tmp_path: Path) -> OutcomeTable:
    return load_table(write(tmp_path / "data", ROWS))


def test_figures_by_hand(table: OutcomeTable) -> None:
    (got,) = replay(table, "fixed:a", [0], ReplaySettings())
    assert got.avg_perf == pytest.approx(100 * 1.25 / 3)
    assert got.usd == 1.0
    # rewards: t1 .95 / 0, t2 .2 / .4, t3 0 / .8; a loses .2 on t2 and .8 on t3
    assert got.cum_reg == pytest.approx(1.0)
    assert got.perf_per_usd == pytest.approx(100 * 1.25 / 3)
    assert got.calls_per_task == 1


def test_the_oracle_has_no_regret_and_random_has(table: OutcomeTable) -> None:
    assert replay(table, "oracle", [3], ReplaySettings())[0].cum_reg == pytest.approx(0)
    assert np.mean([run.cum_reg for run in replay(table, "random", range(30), ReplaySettings())]) > 0.5


def test_same_seed_same_result_and_fresh_orders(table: OutcomeTable) -> None:
    once, again = (replay(table, "random", [7], ReplaySettings())[0] for _ in range(2))
    assert once.cum_reg == again.cum_reg
    assert len({tuple(Stream(table, "random", seed, ReplaySettings())._order) for seed in range(20)}) > 1


class Spy:
    """Notes everything it is shown."""

    name = "spy"

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.contexts: list[StepContext] = []

    def score(self, context: StepContext) -> Scores:
        self.contexts.append(context)
        return Scores(np.array([float(name == "a") for name in context.names]))

    def learn(self, feedback: Feedback) -> None:
        assert feedback.context.names[feedback.index] == "a"
        self.seen.append(feedback.gain)


def test_a_policy_never_sees_the_score_of_a_model_it_did_not_call(table: OutcomeTable) -> None:
    spy = Spy()
    Stream(table, spy, 0, ReplaySettings()).run()
    assert sorted(spy.seen) == [0.0, 0.25, 1.0]  # a's scores and no others
    for context in spy.contexts:
        assert context.extra == {}
        assert context.ledger.steps == []
        assert context.progress.g == 0
        # b was never called, so nothing is known of its price but the common start
        assert context.candidates[1].cost["usd"] == pytest.approx(1e-3)


class Cascade(Spy):
    """Calls a, then b, and stops when the verdict is a pass."""

    stops = True

    def score(self, context: StepContext) -> Scores:
        passed = any(step.outcome.evidence[0].score == 1 for step in context.ledger.steps)
        return Scores(np.array([2.0 if name == "a" else 1.0 for name in context.names]), stop=9.0 if passed else -1.0)

    def learn(self, feedback: Feedback) -> None:
        self.seen.append(feedback.gain)


def test_every_call_of_a_cascade_is_paid_and_the_last_answer_is_delivered(table: OutcomeTable) -> None:
    got = Stream(table, Cascade(), 0, ReplaySettings(verifier=0.0)).run()
    # t1: a passes. t2: a, then b (.5). t3: a, then b (1.0)
    assert got.avg_perf == pytest.approx(100 * 2.5 / 3)
    assert got.usd == pytest.approx(0.5 + 1.5 + 2.0)
    assert got.calls_per_task == pytest.approx(5 / 3)


def test_without_a_verifier_there_is_one_call(table: OutcomeTable) -> None:
    assert Stream(table, Cascade(), 0, ReplaySettings()).run().calls_per_task == 1


def test_flipped_verdicts_are_flipped_at_the_stated_rate(tmp_path: Path) -> None:
    rows = [f"t{i},d,{model},1.0,0.0" for i in range(2000) for model in "ab"]
    table = load_table(write(tmp_path / "all-pass", rows))
    got = Stream(table, Cascade(), 0, ReplaySettings(verifier=0.1)).run()
    assert got.calls_per_task == pytest.approx(1.1, abs=0.02)  # a second call only after a false alarm


def test_probing_shows_a_share_with_all_scores_and_scales_the_rest(tmp_path: Path) -> None:
    rows = [f"t{i},d,{model},{score},1.0" for i in range(10) for model, score in (("a", 1.0), ("b", 0.0))]
    spy = Cascade()
    got = Stream(load_table(write(tmp_path / "ten", rows)), spy, 0, ReplaySettings(mode="probing", probing=0.2)).run()
    assert spy.seen == [1.0, 0.0, 1.0, 0.0] + [1.0] * 8
    assert got.usd == pytest.approx(10.0)  # 8 paid, scaled to 10
    assert got.avg_perf == 100


def test_the_context_regex_gives_the_source(table: OutcomeTable) -> None:
    assert table.sources(r"t(\d)") == ["1", "2", "3"]
    assert table.sources(r"t[12]") == ["t1", "t2", ""]
    with pytest.raises(ConfigError, match="no regular expression"):
        table.sources("(")
    with pytest.raises(ConfigError, match="'x' finds nothing in any task id; the first is 't1'"):
        table.sources("x")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS, "t4,d,a,nan,0"], "row 8: score: seen 'nan'; allowed: a number in \\[0, 1\\]"),
        ([*ROWS, "t4,d,a,1.5,0"], "score: seen '1.5'"),
        ([*ROWS, "t4,d,a,1,-1"], "cost_usd: seen '-1'; allowed: a finite number, 0 or more"),
        ([*ROWS, "t4,d,a,1,0"], "task 't4' has no row for model 'b'"),
        ([*ROWS, ROWS[0]], "row 8: task 't1' and model 'a' are given twice"),
        ([*ROWS[:-1], "t3,d,b,1,2"], "dimension: seen 'd', before 'e'"),
        ([], "the table is empty"),
    ],
)
def test_bad_tables_are_refused(rows: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load_table(write(tmp_path / "bad", rows))


def test_unknown_columns_models_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"column\(s\) cost_usd missing"):
        load_table(write(tmp_path / "head", ["t,d,a,1"], "task_id,dimension,model,score\n"))
    folder = write(tmp_path / "models", ROWS)
    (folder / "models.json").write_text('{"models": [{"model": "a"}]}')
    with pytest.raises(ConfigError, match=r"'b' is not in models\.json; allowed: a"):
        load_table(folder)
    with pytest.raises(ConfigError, match="no folder"):
        load_table(tmp_path / "nowhere")


def test_a_prior_must_fit_the_table(tmp_path: Path) -> None:
    file = tmp_path / "prior.json"
    file.write_text('{"scores": {"a": {"d": 0.4}}}')
    assert load_prior(file, ["a", "b"]) == {"d": {"a": 0.4}}
    file.write_text('{"scores": {"c": {"d": 0.4}}}')
    with pytest.raises(ConfigError, match=r"prior\.json: model: unknown name 'c'; allowed: a, b"):
        load_prior(file, ["a", "b"])
    file.write_text('{"scores": {"a": {"d": 4}}}')
    with pytest.raises(ConfigError, match=r"a\.d: seen 4"):
        load_prior(file, ["a", "b"])
    for text in ('{"scores": {"a": 3}}', '{"scores": []}', "[1]", "{", '{"scores": {"a": {"d": true}}}'):
        file.write_text(text)
        with pytest.raises(ConfigError, match="prior: "):
            load_prior(file, ["a", "b"])
    file.write_text('{"scores": {"a": {"dd": 0.4}}}')
    with pytest.raises(ConfigError, match="seen the dimensions dd; needed: some of the table's: d, e"):
        load_prior(file, ["a", "b"], {"e", "d"})


def test_files_that_are_no_text_are_refused_and_a_spreadsheets_mark_is_not(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", ROWS)
    text = (folder / "results.csv").read_text()
    (folder / "results.csv").write_text(text, encoding="utf-8-sig")
    assert load_table(folder).tasks == ["t1", "t2", "t3"]
    (folder / "results.csv").write_bytes(b"\xff\xfe" + text.encode("utf-16-le"))
    with pytest.raises(ConfigError, match=r"results\.csv: is no CSV in UTF-8"):
        load_table(folder)
    write(tmp_path / "data", ROWS)
    (folder / "tasks.jsonl").write_bytes(b'{"task_id": "t1"}\n\xff\n')
    with pytest.raises(ConfigError, match=r"tasks\.jsonl line 2"):
        load_table(folder)


@pytest.mark.parametrize("rows", [["t1,d,a,1,0.1"], ["t1,d,a,1,0.1", "t2,,a,0.5,0"], ["t1,d,a,1,0", "t1,d,b,0,0"]])
@pytest.mark.parametrize("mode", ["cold", "probing"])
@pytest.mark.parametrize("verifier", [None, 0.1])
def test_one_task_or_one_model_is_a_table(rows: list[str], mode: str, verifier: float | None, tmp_path: Path) -> None:
    small = load_table(write(tmp_path / "small", rows))
    for policy in ("pacer", "acrouter", "cascade", "linucb", "task-level", "oracle"):
        for run in replay(small, policy, [0, 10**20], ReplaySettings(mode=mode, verifier=verifier)):  # type: ignore[arg-type]
            assert 0 <= run.avg_perf <= 100
            assert 1 <= run.calls_per_task <= len(small.models)


def test_command_line_json_and_plot(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", ROWS)
    line = ["--data", str(folder), "--policy", "random,fixed:*,oracle", "--seeds", "3", "--json"]
    done = CliRunner().invoke(app, [*line, "--plot", str(tmp_path / "regret.svg")])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [row["policy"] for row in rows] == ["random", "fixed:a", "fixed:b", "oracle"]
    for row in rows:
        assert {"mode", "avg_perf", "cum_reg", "usd", "perf_per_usd", "calls_per_task"} <= set(row)
        assert set(row["cum_reg"]) == {"mean", "sd", "ci95"}
    assert rows[1]["cum_reg"]["mean"] == pytest.approx(1.0)
    assert rows[1]["cum_reg"]["sd"] == pytest.approx(0.0)
    assert "<polyline" in (tmp_path / "regret.svg").read_text()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--mode", "warm"], "unknown name 'warm'"),
        (["--mode", "prior"], "go together"),
        (["--verifier", "often"], "allowed: exact, or a flip rate"),
        (["--verifier", "0.7"], "seen 0.7"),
        (["--mode", "probing", "--probing", "1.5"], "probing: seen 1.5"),
        (["--usd-weight", "-1"], "usd-weight: seen -1"),
        (["--usd-weight", "nan"], "usd-weight: seen nan"),
        (["--verifier", "nan"], "verifier: seen nan"),
        (["--plot", "nowhere/regret.svg"], "plot: no folder nowhere"),
        (["--policy", "linucbb"], "did you mean 'linucb'"),
    ],
)
def test_wrong_settings_name_what_is_allowed(line: list[str], message: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "data", ROWS)
    done = CliRunner().invoke(app, ["--data", str(folder), "--policy", "random", "--seeds", "1", *line])
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)
