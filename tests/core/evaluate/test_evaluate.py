"""`steproute evaluate` on real stores: replays, refusals, bad input, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from doubles import FakeClock
from servers.fixtures import postgres_url  # noqa: F401
from typer.testing import CliRunner

from steproute import ConfigError, Evidence, Model, Outcome, Router, Task
from steproute.cli import app
from steproute.errors import StoreError
from steproute.evaluate import OverlapError, evaluate
from steproute.evaluate.replay import replay
from steproute.models import ModelPool
from steproute.policies import make_policy
from steproute.store import Store

SKILL = {"small": 0.3, "large": 0.8}
NAMES = list(SKILL)


def log(path: Any, policy: object = "random", tasks: int = 150, explore: float = 0.0, steps: int = 2) -> Any:
    """A store of tasks of two steps; a model gains its skill, a little more in every other task."""
    models = [Model(name, price="free", quality=quality) for name, quality in SKILL.items()]
    router = Router(models, policy=policy, store=path, seed=3, explore=explore, on_error="raise", clock=FakeClock())
    for number in range(tasks):
        task = Task(id=f"t{number}", goal="secret", dimension=f"d{number % 2}")
        for step in range(steps):
            decision = router.decide(task, "coder", step=str(step), prompt_tokens=100)
            score = SKILL[decision.model.name] + 0.1 * (number % 2)
            outcome = Outcome(call_id=f"{number}-{step}", prompt_tokens=100, completion_tokens=20, seconds=1.0)
            router.observe(
                decision, outcome, output=f"{step}", evidence=[Evidence(source="test", score=score, count=5)]
            )
        router.finish(task.id, reward=score)
    router.close()
    return path


def test_the_value_of_a_fixed_model_is_found_from_random_choices(tmp_path: Path) -> None:
    store = log(tmp_path / "a.db", tasks=240)
    truth = evaluate(log(tmp_path / "b.db", "fixed:large"), "fixed:large")
    found = evaluate(store, "fixed:large", least_ess=40)
    whole = found.task
    assert whole is not None
    assert whole.low <= truth.logged_task <= whole.high
    final = evaluate(store, "fixed:large", reward="final", least_ess=40)
    for item in final.estimates:
        # the last of two steps decides: one decision swapped for `large` is worth (.6 + .85) / 2
        assert item.low <= 0.725 <= item.high
        assert item.n == 480
        assert 210 < item.ess < 270  # half of the choices were `large`
    assert final.task is not None
    assert final.task.low <= 0.85 <= final.task.high
    seconds = evaluate(store, "fixed:small", reward="seconds")
    assert seconds.estimates[1].value == pytest.approx(1.0)
    assert seconds.task is not None
    assert seconds.task.low <= 2.0 <= seconds.task.high


def test_a_policy_evaluated_on_its_own_log_gets_its_own_chances_back(tmp_path: Path) -> None:
    settings = {"name": "epsilon-greedy", "epsilon": 0.5}
    store = log(tmp_path / "a.db", settings, explore=0.1)
    found = replay(store, make_policy(settings), None, None, 0.1)
    assert len(found.choices) == 300
    for choice in found.choices:
        assert choice.wanted == pytest.approx(choice.logged)
    same = evaluate(store, settings, explore=0.1)
    assert same.estimates[0].value == pytest.approx(same.logged)
    assert same.estimates[0].ess == pytest.approx(300)
    assert same.task is not None
    assert same.task.value == pytest.approx(same.logged_task)


def test_a_sampling_policy_is_evaluated_by_the_chances_its_log_implies(tmp_path: Path) -> None:
    settings = {"name": "thompson", "sample": True, "spread": 1.0}
    store = log(tmp_path / "a.db", settings)
    found = replay(store, make_policy(settings), None, None, 0.0)
    assert any(0.05 < choice.logged[choice.chosen] < 0.95 for choice in found.choices)
    for choice in found.choices:
        assert choice.wanted == pytest.approx(choice.logged, abs=1e-6)
    # drawn as often as the chances say: the sum of (1 - p) over the choices of `large` is what was missed
    chances = [choice.logged[NAMES.index("large")] for choice in found.choices]
    taken = sum(choice.models[choice.chosen] == "large" for choice in found.choices)
    assert taken == pytest.approx(sum(chances), abs=4 * sum(p * (1 - p) for p in chances) ** 0.5 + 1)


def test_a_policy_that_learns_sees_only_the_past(tmp_path: Path) -> None:
    found = replay(log(tmp_path / "a.db"), make_policy("pacer"), None, None, 0.0)
    large = [choice.wanted[choice.models.index("large")] for choice in found.choices]
    assert sum(large[-100:]) > 90  # by then it knows
    assert sum(large[:4]) < 4  # at first it tries both


def test_too_little_overlap_is_refused_with_numbers(tmp_path: Path) -> None:
    sure = log(tmp_path / "a.db", "fixed:small", tasks=60)
    with pytest.raises(OverlapError, match=r"'fixed:large' would do in 100\.0 % of 120 decisions .*explore: 0\.01"):
        evaluate(sure, "fixed:large", pool=ModelPool([Model(name, price="free") for name in NAMES]))
    thin = log(tmp_path / "b.db", "fixed:small", tasks=60, explore=0.2)
    with pytest.raises(OverlapError, match=r"effective sample size \d+\.\d of 120 decisions; needed: 50"):
        evaluate(thin, "fixed:large")
    # a tenth of the choices was `large`: 12 decisions, and of two in a row every hundredth of 60
    with pytest.raises(OverlapError, match=r"expected effective sample size 12\.0 of 120 decisions"):
        evaluate(thin, "fixed:large")
    found = evaluate(thin, "fixed:large", least_ess=3)
    assert found.task is None
    assert "expected effective sample size 0.6 of 60 tasks; needed: 3" in found.refused
    assert "of 60 tasks; needed: 3" in found.refused or "effective" in found.refused


def test_pinned_steps_are_nobodys_choice(tmp_path: Path) -> None:
    router = Router([Model(name, price="free") for name in NAMES], policy="random", store=tmp_path / "a.db", seed=1)
    for number in range(80):
        for step, pin in enumerate((None, "small")):
            decision = router.decide(f"t{number}", step=str(step), pin=pin)
            evidence = [Evidence(source="test", score=SKILL[decision.model.name], count=3)]
            router.observe(decision, Outcome(call_id=f"{number}-{step}", completion_tokens=1), evidence=evidence)
        router.finish(f"t{number}")
    router.close()
    found = evaluate(tmp_path / "a.db", "fixed:large", least_ess=10)
    assert found.decisions == 80  # of 160
    assert found.tasks == 80


def test_bad_input(tmp_path: Path) -> None:
    store = log(tmp_path / "a.db", tasks=20)
    with pytest.raises(ConfigError, match="unknown name 'thomson'; did you mean 'thompson'"):
        evaluate(store, "thomson")
    with pytest.raises(ConfigError, match="unknown name 'huge'"):
        evaluate(store, "fixed:huge")
    with pytest.raises(ConfigError, match="models: the log mentions large, which the configuration does not have"):
        evaluate(store, "random", pool=ModelPool([Model("small", price="free")]))
    with pytest.raises(ConfigError, match="'oracle' needs what the host says at each decision"):
        evaluate(store, "oracle")
    with pytest.raises(ConfigError, match="explore: seen 2"):
        evaluate(store, "random", explore=2)
    with pytest.raises(StoreError, match="no such file"):
        evaluate(tmp_path / "none.db", "random")
    with pytest.raises(StoreError, match="have the reward 'gold'"):
        evaluate(store, "random", reward="gold")
    Router([Model("a", price="free")], store=tmp_path / "empty.db").close()
    with pytest.raises(StoreError, match="it holds no decisions"):
        evaluate(tmp_path / "empty.db", "random")


def test_a_log_whose_propensities_are_gone_is_refused(tmp_path: Path) -> None:
    import sqlite3

    store = log(tmp_path / "a.db", tasks=3)
    with sqlite3.connect(store) as connection:
        text = connection.execute("SELECT candidates FROM decisions WHERE n = 1").fetchone()[0]
        data = json.loads(text)
        data["propensity"] = [None, None]
        connection.execute("UPDATE decisions SET candidates = ? WHERE n = 1", (json.dumps(data),))
    with pytest.raises(ConfigError, match=r"of task 't0': propensities: seen \[None, None\]"):
        evaluate(store, "random")


def new_database(url: str, name: str) -> str:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{url.rpartition('/')[0]}/{name}"


@pytest.mark.parametrize("shared", [True, False])
def test_a_log_in_postgresql_says_what_the_same_log_in_a_file_says(
    tmp_path: Path, request: pytest.FixtureRequest, shared: bool
) -> None:
    server = request.getfixturevalue("postgres_url")
    url = new_database(server, f"log_{shared}".lower())
    settings = {"name": "thompson", "sample": True}
    log(tmp_path / "a.db", settings, tasks=80, explore=0.1)
    log(Store(url, shared=shared, spool=tmp_path / "spool"), settings, tasks=80, explore=0.1)
    for policy in ("fixed:large", "pacer", "epsilon-greedy", "knn", {"name": "thompson", "sample": True}):
        for reward in ("gain", "final", "seconds"):
            found = [evaluate(place, policy, reward=reward, least_ess=5) for place in (tmp_path / "a.db", url)]
            assert found[0].decisions == 160
            assert found[0] == found[1]
    asked = ["evaluate", "--policy", "fixed:large", "--log", url, "--least-ess", "5", "--json"]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout) == evaluate(tmp_path / "a.db", "fixed:large", least_ess=5).as_dict()
    with pytest.raises(
        StoreError, match=r"store postgresql\+psycopg://postgres@127\.0\.0\.1:\d+/nothing: cannot be read as a"
    ):
        evaluate(f"{server.rpartition('/')[0]}/nothing", "random")


def test_the_command(tmp_path: Path) -> None:
    store = log(tmp_path / "a.db")
    shown = CliRunner().invoke(app, ["evaluate", "--policy", "fixed:large", "--log", str(store)])
    assert shown.exit_code == 0, shown.output
    for word in ("IPS", "SNIPS", "DR", "per task", "300 decisions of 150 tasks", "effective sample size"):
        assert word in shown.output
    file = tmp_path / "new.yaml"
    file.write_text("name: epsilon-greedy\nepsilon: 0.1\n")
    config = tmp_path / "steproute.yaml"
    config.write_text("models: [{name: small, price: free}, {name: large, price: free}]\nstore: a.db\n")
    asked = ["evaluate", "--policy", str(file), "--log", str(config), "--reward", "final", "--json"]
    found = json.loads(CliRunner().invoke(app, asked).stdout)
    assert found["policy"] == "epsilon-greedy"
    assert found["DR"]["low"] < found["DR"]["value"] < found["DR"]["high"]
    file.write_text("[1, 2]\n")
    broken = CliRunner().invoke(app, asked)
    assert isinstance(broken.exception, ConfigError)
