"""Change detection, discounting, new versions, arms that come and go."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute import ConfigError, Evidence, Model, ModelPool, Outcome, Router, Task
from steproute.policies.pacer import Pacer
from steproute.predict.capability import CapabilityConfig, CapabilityModel
from steproute.predict.change import ChangeConfig, ChangeWatch, Seen, since
from steproute.predict.shiryaev import ShiryaevRoberts, ratio

WATCH = {"detector": "page-hinkley"}
OWN = {"detector": "shiryaev-roberts"}
DETECTORS = ["shiryaev-roberts", "page-hinkley", "adwin"]


def _river(detector: str = "adwin") -> None:
    if detector != "shiryaev-roberts":
        pytest.importorskip("river", reason="extra drift")


def _step(gain: float, mean: float = 0.8, group: tuple[str, ...] = ("d", "", ""), noise: float = 0.16) -> Seen:
    return Seen(group, gain, 1.0, mean, 0.0, noise)


def _steps(rng: np.random.Generator, chance: float, number: int, mean: float = 0.8) -> list[Seen]:
    return [_step(float(x < chance), mean) for x in rng.random(number)]


@pytest.mark.parametrize(("detector", "soon"), [("shiryaev-roberts", 20), ("page-hinkley", 60), ("adwin", 60)])
def test_a_fall_is_found_soon_and_noise_is_not(detector: str, soon: int) -> None:
    _river(detector)
    rng = np.random.default_rng(0)
    delays, alarms = [], 0
    for _ in range(20):
        watch = ChangeWatch(ChangeConfig(detector=detector))
        alarms += sum(watch.note("a", step) is not None for step in _steps(rng, 0.8, 200))
        watch.reset("a")
        for step in _steps(rng, 0.8, 100):
            watch.note("a", step)
        fallen = enumerate(_steps(rng, 0.35, 200), 1)
        delays.append(next((i for i, step in fallen if watch.note("a", step)), 201))
    assert np.median(delays) <= soon
    assert alarms <= 5


@pytest.mark.parametrize("detector", DETECTORS)
def test_state_goes_on_where_it_was(detector: str) -> None:
    _river(detector)
    rng = np.random.default_rng(1)
    one, other = (ChangeWatch(ChangeConfig(detector=detector)) for _ in range(2))
    for step in _steps(rng, 0.8, 700):  # longer than what is kept
        one.note("a", step)
    other.load(json.loads(json.dumps(one.state())))
    later = _steps(rng, 0.4, 150)
    assert [one.note("a", step) for step in later] == [other.note("a", step) for step in later]
    assert one.state() == other.state()
    assert one.found["a"] >= 1
    other.load({"found": {"a": 2}, "seen": {"a": [0.5, -1.0]}})  # residuals alone, as they once were written
    assert other.state() == {"found": {"a": 2}, "seen": {"a": []}}
    for bad in ({"found": {}, "seen": [1]}, {"found": {}, "seen": {"a": [[["d"], 1.0]]}}):
        with pytest.raises(ConfigError, match="state of change detection"):
            other.load(bad)


def test_ratio_of_pass_or_fail_is_the_exact_likelihood_ratio() -> None:
    """Of a Bernoulli variable of mean .8 tilted by t: P'(fail) = .2·eᵗ / (.2·eᵗ + .8), as deviations downwards."""
    tilt, fail = 1.5, 0.2 * math.exp(1.5) / (0.2 * math.exp(1.5) + 0.8)
    assert ratio(0.8, tilt, 0.16, 0.8) == pytest.approx(fail / 0.2)
    assert ratio(-0.2, tilt, 0.16, 0.8) == pytest.approx((1 - fail) / 0.8)
    assert ratio(0.3, 0.0, 0.16, 0.8) == 1.0


@given(
    tilt=st.floats(0.0, 5.0),
    mean=st.floats(0.11, 0.89),
    share=st.floats(0.05, 1.0),
    raised=st.booleans(),
)
def test_ratio_expects_one_at_most_whatever_the_law(tilt: float, mean: float, share: float, raised: bool) -> None:
    """Gains of 0, 1 and their mean, with less variance than pass or fail: E[L] ≤ 1 in both directions."""
    law = [(1.0, mean * share), (0.0, (1 - mean) * share), (mean, 1 - share)]
    variance = sum(chance * (gain - mean) ** 2 for gain, chance in law)
    room = 1 - mean if raised else mean
    expected = sum(
        chance * ratio((gain - mean) if raised else (mean - gain), tilt, variance, room) for gain, chance in law
    )
    assert expected <= 1 + 1e-9


def test_false_alarms_are_as_rare_as_was_asked_for() -> None:
    rng = np.random.default_rng(5)
    times = []
    for _ in range(60):
        detector = ShiryaevRoberts(every=50.0)
        times.append(next(i for i in range(1, 20_000) if detector.update(float(rng.random() < 0.8), 0.8, 0.16)))
    assert np.mean(times) > 50


def test_a_variance_stated_wrongly_is_found_out() -> None:
    """Pass or fail at even chances where next to none was expected, and small steps where much was."""
    rng = np.random.default_rng(6)
    wild, calm = ShiryaevRoberts(1500.0, 0.05), ShiryaevRoberts(1500.0, 0.05)
    alarms = [wild.update(float(rng.random() < 0.5), 0.5, 0.06) for _ in range(400)]
    assert sum(alarms[20:]) == 0
    assert not any(calm.update(rng.normal(0.3, 0.1), 0.3, 0.25) for _ in range(400))
    delay = next(i for i in range(1, 200) if calm.update(rng.normal(0.15, 0.1), 0.3, 0.25))
    assert delay <= 35


def test_a_fall_below_zero_counts_once_gains_have_been_there() -> None:
    rng = np.random.default_rng(7)
    delays = []
    for low in (False, True):
        detector = ShiryaevRoberts(1500.0, 0.05)
        for _ in range(100):
            detector.update(float(rng.choice([-0.3, 0.3])) if low else 0.0, 0.0, 0.09)
        delays.append(next((i for i in range(1, 60) if detector.update(-0.3, 0.0, 0.09)), 60))
    assert delays[1] < 25


def test_time_and_size_of_a_change_are_worked_out() -> None:
    before = [_step(1.0, 0.9, noise=0.09), _step(0.8, 0.9, noise=0.09)] * 10
    after = [_step(0.3, 0.9, ("e", "", ""), noise=0.09)] * 9
    change = since([*before, *after])
    assert change.since == after
    assert change.shift == pytest.approx(9 * -0.6 / (9 + 1))  # σ²/.3² = 1 observation of no shift
    assert since(before[:1]).since == before[:1]
    better = since([*before, *(_step(0.9, 0.3, noise=0.09) for _ in range(4))])
    assert (len(better.since), better.shift) == (4, pytest.approx(4 * 0.6 / 5))


def test_after_an_alarm_that_is_often_wrong_old_means_stay() -> None:
    _river()
    for detector, kept in (("page-hinkley", 1.0), ("adwin", 8.0), ("shiryaev-roberts", 8.0)):
        watch = ChangeWatch(ChangeConfig(detector=detector))
        steps = [*(_step(0.8) for _ in range(40)), *(_step(0.0) for _ in range(60))]
        change = next(filter(None, (watch.note("a", step) for step in steps)))
        assert watch.config.kept == kept
        assert (change.shift < -0.3) == (kept > 1)
        assert bool(change.since) == (kept > 1)


def test_a_fallen_model_is_looked_at_again_ever_more_rarely() -> None:
    watch = ChangeWatch(ChangeConfig(detector="shiryaev-roberts", again=10))
    for gain in [0.8] * 20 + [0.0] * 30:
        if watch.note("a", _step(gain)) is not None:
            break
    assert watch.found == {"a": 1}
    [(shift, left, waited)] = watch.state()["fallen"].values()
    assert (shift < -0.4, left, waited) == (True, 10, 10)
    assert not any(watch.due("a") for _ in range(100))  # its own steps are no waiting
    copy = ChangeWatch(watch.config)
    copy.load(json.loads(json.dumps(watch.state())))
    for one in (watch, copy):
        looks = [i for i in range(1, 101) if one.due("b")]
        assert looks == [10, 30, 70]
    assert watch.state() == copy.state()
    never = ChangeWatch(ChangeConfig(detector="shiryaev-roberts"))
    for gain in [0.8] * 20 + [0.0] * 30:
        never.note("a", _step(gain))
    assert "fallen" not in never.state()


def test_a_model_that_recovers_is_found_again_where_that_was_asked_for() -> None:
    shares = {}
    for again in (None, 60):
        router = _router(change={**OWN, "again": again})
        _play(router, 0, 300, GOOD)
        assert _play(router, 300, 60, WORSE)[-30:].count("a") < 5
        shares[again] = _play(router, 360, 120, GOOD)[-40:].count("a")
    assert shares[None] < 5
    assert shares[60] > 35


def test_without_a_detector_nothing_is_watched_and_river_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river", None)
    monkeypatch.setitem(sys.modules, "river.drift", None)
    watch = ChangeWatch()
    assert not watch.active
    assert watch.note("a", _step(-1.0)) is None
    ChangeWatch(ChangeConfig(detector="shiryaev-roberts"))
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


def test_a_renewed_model_keeps_what_was_seen_since_and_little_from_before() -> None:
    model = CapabilityModel()
    for _ in range(50):
        model.observe(("d",), "a", 0.9)
        model.observe(("e",), "a", 0.6)
        model.observe(("d",), "b", 0.7)
    late = [(("d", ""), 0.2, 1.0), (("d", ""), 0.4, 0.5)]
    for group, gain, weight in late:
        model.observe(group, "a", gain, weight)
    model.renew("a", 4.0, -0.5, late)
    nodes = {tuple(node["group"]): node for node in model.state()["nodes"]}
    assert nodes[("d",)]["seen"] == pytest.approx([4 + 1.5, 50])
    assert nodes[("d",)]["total"] == pytest.approx([4 * 0.4 + 0.2 + 0.2, 35])
    assert nodes[("e",)]["seen"] == pytest.approx([4, 0])
    assert nodes[("e",)]["total"] == pytest.approx([4 * 0.1, 0])
    model.renew("a", 4.0, -0.5)  # no gain is expected to be below 0 that was not
    assert model.state()["nodes"][-1]["total"][0] == pytest.approx(0)
    model.renew("nobody", 4.0, -0.5)
    copy = CapabilityModel()
    copy.load(json.loads(json.dumps(model.state())))
    for group in (("d",), ("e",), ("other",)):
        assert copy.estimate(group, ["a", "b"]).mean == pytest.approx(model.estimate(group, ["a", "b"]).mean)


def test_what_was_published_of_a_model_that_changed_counts_as_old() -> None:
    model = CapabilityModel()
    model.set_prior(("d",), {"a": 0.9, "b": 0.5})
    model.renew("a", 4.0, -0.4)
    node = model.state()["nodes"][-1]
    assert node["prior"] == [None, 0.5]
    assert (node["seen"][0], node["total"][0]) == (4.0, pytest.approx(4 * 0.5))
    for _ in range(12):
        model.observe(("d",), "a", 0.2)
    assert model.estimate(("d",), ["a", "b"]).mean[0] < 0.35


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
    watched = {"river": WATCH, "own": OWN}
    for name, settings in (("none", {}), *((name, {"change": watch}) for name, watch in watched.items())):
        router = _router(**settings)
        assert _play(router, 0, 300, GOOD)[-50:].count("a") > 40
        shares[name] = _play(router, 300, 150, WORSE).count("a")
    assert max(shares["own"], shares["river"]) < shares["none"] / 2
    assert shares["own"] < 15


def test_a_model_that_got_better_and_one_that_changes_twice() -> None:
    router = _router(change=OWN)
    assert _play(router, 0, 300, GOOD)[-50:].count("a") > 40
    assert _play(router, 300, 100, WORSE)[-50:].count("b") > 40
    assert _play(router, 400, 150, {**WORSE, "b": 0.05, "a": 0.9})[-50:].count("a") > 40  # b fell, a is itself again
    policy = router.policy
    assert isinstance(policy, Pacer)
    assert set(policy.state()["changes"]["found"]) >= {"a", "b"}
    better = _router(change=OWN)
    _play(better, 0, 100, {"a": 0.3, "b": 0.25, "c": 0.1})
    assert _play(better, 100, 60, {"a": 0.9, "b": 0.25, "c": 0.1})[-30:].count("a") > 25
    assert policy.state()["changes"]["found"]["a"] >= 1


def test_watching_changes_no_decision_while_nothing_is_found() -> None:
    plain, watched = _router(), _router(change={**OWN, "every": 1e9})
    assert _play(plain, 0, 80, GOOD) == _play(watched, 0, 80, GOOD)


def test_state_of_a_router_that_watches_round_trips() -> None:
    router = _router(change=OWN)
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
