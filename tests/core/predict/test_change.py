"""Change detection, discounting, new versions, arms that come and go."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from steproute import ConfigError, Evidence, Model, ModelPool, Outcome, Router, Task
from steproute.policies.pacer import Pacer
from steproute.predict.capability import CapabilityConfig, CapabilityModel
from steproute.predict.change import ChangeConfig, ChangeWatch

WATCH = {"detector": "page-hinkley"}
DETECTORS = ["page-hinkley", "adwin"]


def _river() -> None:
    pytest.importorskip("river", reason="extra drift")


@pytest.mark.parametrize("detector", DETECTORS)
def test_a_shift_is_found_soon_and_noise_is_not(detector: str) -> None:
    _river()
    rng = np.random.default_rng(0)
    delays, alarms = [], 0
    for _ in range(10):
        watch = ChangeWatch(ChangeConfig(detector=detector))
        alarms += sum(watch.note("a", x) for x in rng.standard_normal(200))
        watch.reset("a")
        for x in rng.standard_normal(100):
            watch.note("a", x)
        delays.append(next((i for i in range(200) if watch.note("a", rng.standard_normal() - 1.0)), 200))
    assert np.median(delays) < 60
    assert alarms <= 3


@pytest.mark.parametrize("detector", DETECTORS)
def test_state_goes_on_where_it_was(detector: str) -> None:
    _river()
    rng = np.random.default_rng(1)
    one, other = (ChangeWatch(ChangeConfig(detector=detector)) for _ in range(2))
    for x in rng.standard_normal(700):  # longer than what is kept
        one.note("a", x)
    other.load(json.loads(json.dumps(one.state())))
    later = [float(x) for x in rng.standard_normal(150) - 0.8]
    assert [one.note("a", x) for x in later] == [other.note("a", x) for x in later]
    assert one.state() == other.state()
    assert one.found["a"] >= 1
    with pytest.raises(ConfigError, match="state of change detection"):
        other.load({"found": {}, "seen": [1]})


def test_without_a_detector_nothing_is_watched_and_river_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river", None)
    monkeypatch.setitem(sys.modules, "river.drift", None)
    watch = ChangeWatch()
    assert not watch.active
    assert not watch.note("a", 100.0)
    with pytest.raises(ImportError, match=r"steproute\[drift\]"):
        ChangeWatch(ChangeConfig(detector="adwin"))
    with pytest.raises(ConfigError, match="detector"):
        Router([Model("a", price="free")], policy={"name": "pacer", "change": {"detector": "ewma"}})


# --- the capability model ------------------------------------------------------------------------------------


def _learnt(observations: int, memory: float | None = None) -> CapabilityModel:
    model = CapabilityModel(CapabilityConfig(memory=memory))
    for name in ("a", "b"):
        model.add(name)
    rng = np.random.default_rng(3)
    for _ in range(observations):
        for name, rate in (("a", 0.9), ("b", 0.3)):
            model.observe(("d", "s"), name, float(rng.random() < rate))
    return model


def test_faded_knowledge_keeps_its_mean_and_loses_its_weight() -> None:
    model = _learnt(100)
    before = model.estimate(("d", "s"), ["a", "b"])
    model.fade("a", 2.0)
    after = model.estimate(("d", "s"), ["a", "b"])
    assert after.variance[0] > 5 * before.variance[0]
    assert after.mean[0] - after.mean[1] > 0.3
    assert after.mean[1] == pytest.approx(before.mean[1], abs=0.03)
    model.fade("nobody", 1.0)


def test_a_faded_model_is_the_one_that_saw_as_little() -> None:
    """The messages between groups are as if only the shrunken sums had ever been seen."""
    model = _learnt(50)
    model.fade("a", 4.0)
    copy = CapabilityModel()
    copy.load(json.loads(json.dumps(model.state())))
    for group in (("d", "s"), ("d",), ("other",)):
        assert copy.estimate(group, ["a", "b"]).mean == pytest.approx(model.estimate(group, ["a", "b"]).mean)
    node, other = (kept.state()["nodes"][-1] for kept in (model, copy))
    assert node["seen"] == other["seen"] == [4.0, 50.0]
    assert node["said"] == pytest.approx(other["said"])


def test_discounting_counts_the_latest_only() -> None:
    long, short = _learnt(300), _learnt(300, memory=20)
    seen = short.state()["nodes"][-1]["seen"]
    assert seen[0] == pytest.approx(20.0, rel=0.01)
    for model in (long, short):
        for _ in range(30):
            model.observe(("d", "s"), "a", 0.0)
    assert short.estimate(("d", "s"), ["a"]).mean[0] < 0.4 < 0.7 < long.estimate(("d", "s"), ["a"]).mean[0]


# --- in a router ---------------------------------------------------------------------------------------------


def _play(router: Router, first: int, tasks: int, rates: dict[str, float]) -> list[str]:
    rng = np.random.default_rng(first)
    taken = []
    for number in range(first, first + tasks):
        decision = router.decide(Task(id=f"t{number}", dimension="d"), step="0", prompt_tokens=10)
        score = float(rng.random() < rates[decision.model.name])
        evidence = [Evidence(source="test", score=score, count=9)]
        router.observe(decision, Outcome(call_id=str(number), completion_tokens=5), evidence=evidence)
        router.finish(f"t{number}", success=bool(score))
        taken.append(decision.model.name)
    return taken


def _router(**settings: object) -> Router:
    models = [Model(name, price="free") for name in ("a", "b", "c")]
    return Router(models, policy={"name": "pacer", "verify": False, **settings}, seed=1, on_error="raise")


GOOD = {"a": 0.95, "b": 0.6, "c": 0.1, "new": 0.99}
WORSE = {**GOOD, "a": 0.15}


def test_a_router_turns_away_from_a_model_that_got_worse_sooner_with_a_detector() -> None:
    _river()
    shares = {}
    for name, settings in (("none", {}), ("watched", {"change": WATCH})):
        router = _router(**settings)
        assert _play(router, 0, 300, GOOD)[-50:].count("a") > 40
        shares[name] = _play(router, 300, 150, WORSE).count("a")
    assert shares["watched"] < shares["none"]
    assert shares["watched"] < 60


def test_watching_changes_no_decision_while_nothing_is_found() -> None:
    _river()
    plain, watched = _router(), _router(change={**WATCH, "threshold": 1e6})
    assert _play(plain, 0, 80, GOOD) == _play(watched, 0, 80, GOOD)


def test_state_of_a_router_that_watches_round_trips() -> None:
    _river()
    router = _router(change=WATCH)
    _play(router, 0, 40, GOOD)
    policy = router.policy
    assert isinstance(policy, Pacer)
    copy = Pacer(policy.config)
    copy.load(json.loads(json.dumps(policy.state())))
    assert copy.state() == policy.state()
    old = {key: value for key, value in policy.state().items() if key not in ("changes", "versions")}
    copy.load(old)  # a snapshot from before there was such a thing
    assert copy.state()["versions"] == {}


def test_a_new_version_keeps_a_shrunken_prior_of_the_old_one() -> None:
    router = _router()
    _play(router, 0, 200, GOOD)
    policy = router.policy
    assert isinstance(policy, Pacer)
    before = policy.capability.estimate(("d",), ["a", "b"])
    assert router.pool.replace("a", "2").version == "2"
    router.decide("next", step="0", prompt_tokens=10)
    after = policy.capability.estimate(("d",), ["a", "b"])
    assert after.variance[0] > 3 * before.variance[0]
    assert after.mean[0] > after.mean[1]
    assert max(policy.capability.state()["nodes"][-1]["seen"]) <= max(8.0, 200.0)
    assert _play(router, 500, 150, WORSE)[-50:].count("a") < 10


def test_a_replaced_model_holds_its_place_and_must_differ() -> None:
    pool = ModelPool([Model("a", price="free", version="1"), Model("b", price="free")], default="a")
    new = Model("a", price="free", version="2", quality=0.9)
    assert pool.replace(new) is new
    assert pool.names == ["a", "b"]
    assert pool.default is new
    with pytest.raises(ConfigError, match="version of 'a': seen '2'"):
        pool.replace("a", "2")
    with pytest.raises(ConfigError, match="unknown name 'z'"):
        pool.replace("z", "2")


def test_arms_come_and_go() -> None:
    router = _router()
    _play(router, 0, 150, GOOD)
    router.pool.add(Model("new", price="free"))
    assert _play(router, 200, 200, {**GOOD, "a": 0.6})[-50:].count("new") > 35
    router.pool.retire("new")
    taken = _play(router, 500, 50, GOOD)
    assert "new" not in taken
    assert taken.count("a") > 25
    router.pool.add(Model("new", price="free"))  # what was learnt of it is still known
    assert _play(router, 600, 40, {**GOOD, "a": 0.6}).count("new") > 25
