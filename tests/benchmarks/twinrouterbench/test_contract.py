"""Our router behind TwinRouterBench's seam. With STEPROUTE_TWINROUTERBENCH=CHECKOUT the harness's own classes are used."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from steproute.benchmarks.twinrouterbench.adapter import warm
from steproute.benchmarks.twinrouterbench.cli import FACTORY, app
from steproute.benchmarks.twinrouterbench.prices import pool_of, price_table
from steproute.errors import ConfigError


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


standin = _load("twinrouterbench_standin", Path(__file__).with_name("standin.py"))


@pytest.fixture(params=["stand-in", "checkout"])
def seam(request: pytest.FixtureRequest) -> Any:
    if request.param == "stand-in":
        return standin
    checkout = os.environ.get("STEPROUTE_TWINROUTERBENCH")
    if not checkout:
        pytest.skip("the harness is not on a package index: STEPROUTE_TWINROUTERBENCH=CHECKOUT")
    return _load("swerouter_router", Path(checkout) / "swerouter" / "router.py")


@pytest.fixture
def pricing(tmp_path: Path) -> str:
    path = tmp_path / "model_pricing.json"
    path.write_text(json.dumps({"schema_version": 12, "pricing": standin.PRICES}))
    return str(path)


def router(pricing: str, **arguments: str) -> Any:
    return standin.load(FACTORY, {"pricing": pricing, **arguments})


def test_the_import_rule_and_every_decision_pass_the_harnesss_checks(seam: Any, pricing: str) -> None:
    def play(model: str, turn: int) -> tuple[str, int, str]:
        return ("submit", 0, "") if turn == 6 else (f"cat file_{turn}.py", 0, "text")

    for policy in ("pacer", "progrouter", "random", "cheapest", "fixed:mid/model"):
        chosen = standin.Harness(router(pricing, policy=policy), play, module=seam).run("django__django-1")
        assert len(chosen) == 7
        assert set(chosen) <= set(standin.PRICES)
        if policy.startswith("fixed:"):
            assert set(chosen) == {"mid/model"}


def test_the_bill_the_tokens_and_the_return_codes_reach_the_ledger(seam: Any, pricing: str) -> None:
    def play(model: str, turn: int) -> tuple[str, int, str]:
        return [
            ("ls", 0, ""),
            ("cat none", 1, ""),
            ("sed -i s/a/b/ a.py", 0, ""),
            ("pytest", 1, "1 failed, 3 passed in 0.1s"),
            ("submit", 0, ""),
        ][turn]

    made = router(pricing, policy="fixed:mid/model")
    harness = standin.Harness(made, play, module=seam)
    harness.run("django__django-1")
    ledger = made.router.ledger("django__django-1")
    assert ledger.task.domain == "swe"
    assert ledger.task.dimension == "django__django"
    assert len(ledger.steps) == 4  # the last step is never seen: the harness does not say how it ended
    spent = [step.outcome.usd for step in ledger.steps]
    assert sum(spent) == pytest.approx(harness.contexts[-1].budget_so_far_usd)
    assert made.router.spent("django__django-1")["usd"] == pytest.approx(sum(spent), abs=1e-8)
    assert [step.outcome.seconds for step in ledger.steps] == [1.5] * 4
    assert all(step.outcome.cached_tokens > 0 for step in ledger.steps[1:])
    codes = [{item.source: item.score for item in step.outcome.evidence} for step in ledger.steps]
    assert codes == [{"command": 1}, {"command": 0}, {"command": 1, "patch": 1}, {"command": 0, "own_tests": 0.75}]


def test_failures_lead_to_a_stronger_model(pricing: str) -> None:
    def play(model: str, turn: int) -> tuple[str, int, str]:
        return ("submit", 0, "") if model == "big/model" or turn == 12 else (f"cat none_{turn}", 1, "No such file")

    chosen = standin.Harness(router(pricing, policy="cascade"), play).run("django__django-1")
    order = ["tiny/model", "mid/model", "big/model"]
    assert chosen[0] == "tiny/model"
    assert chosen[-1] == "big/model"
    assert [order.index(name) for name in chosen] == sorted(order.index(name) for name in chosen)


def test_the_cache_is_warm_within_its_time_to_live_only() -> None:
    def view(name: str, ts: float | None) -> Any:
        return standin.ModelCacheView(name, ts, 0 if ts is None else 9000, None)

    views = {name: view(name, ts) for name, ts in (("cold", None), ("warm", 900.0), ("stale", 600.0))}
    assert warm(standin.CacheStateSnapshot(300, 1000.0, views)) == {"cold": 0, "warm": 9000, "stale": 0}


def test_a_warm_prefix_makes_staying_cheap(pricing: str) -> None:
    made = router(pricing, policy="cheapest")
    standin.Harness(made, lambda model, turn: ("submit", 0, "") if turn == 3 else ("ls", 0, "x" * 40_000)).run("a__b-1")
    last = made.router.decisions("a__b-1")[-1]
    cost = last.score_of("tiny/model").cost["usd"]
    assert cost < 0.5 * last.prompt_tokens * 0.25 / 1e6  # unread, the prompt alone would cost twice as much


def test_prices_are_the_locked_ones(pricing: str) -> None:
    models = pool_of(list(standin.PRICES), price_table(pricing))
    assert [model.name for model in models] == ["tiny/model", "mid/model", "big/model"]
    big = models[-1].price
    assert (big.input, big.output, big.cached_input) == (6.25, 25.0, 0.5)  # what is not read is written
    with pytest.raises(ConfigError, match="pricing: unknown name 'mid/modle'; did you mean 'mid/model'"):
        pool_of(["mid/modle"], price_table(pricing))


def test_instances_run_side_by_side_and_again(pricing: str) -> None:
    made = router(pricing, policy="random")
    lengths: dict[str, int] = {}

    def work(name: str) -> None:
        play = standin.Harness(made, lambda model, turn: ("submit" if turn == 9 else "ls", 0, ""))
        lengths[name] = len(play.run(name))

    threads = [threading.Thread(target=work, args=(f"a__b-{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert lengths == {f"a__b-{i}": 10 for i in range(6)}
    work("a__b-0")  # forced rerun: a task of its own
    assert len(made.router.ledger("a__b-0#2").steps) == 9
    assert made.router.errors == 0


def test_wrong_arguments_name_the_right_ones(pricing: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="value_usd='much'"):
        router(pricing, value_usd="much")
    with pytest.raises(ConfigError, match="No such file"):
        router(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text('{"pricing": {"m": {"input_per_m": -1}}}')
    with pytest.raises(ConfigError, match=r"m.input_per_m: seen -1"):
        price_table(tmp_path / "bad.json")


def test_the_command_starts_the_harness_of_a_checkout(tmp_path: Path) -> None:
    (tmp_path / "miniswerouter").mkdir()
    (tmp_path / "miniswerouter" / "cli.py").write_text("")
    words = ["--checkout", str(tmp_path), "--out", str(tmp_path / "out"), "--policy", "progrouter", "--limit", "3"]
    done = CliRunner().invoke(app, [*words, "--dry-run"])
    assert f"-m miniswerouter.cli run --router-import {FACTORY} --router-arg policy=progrouter" in done.output
    assert "--router-label steproute-progrouter" in done.output
    missing = CliRunner().invoke(app, ["--checkout", str(tmp_path / "x"), "--out", "o"])
    assert isinstance(missing.exception, ConfigError)
