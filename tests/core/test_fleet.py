"""Calls in flight, cold models, memory and rate limits become expected seconds and joules."""

from __future__ import annotations

import pytest
from doubles import FakeClock, Wants, router

from steproute import Budget, ConfigError, Limit, Model, Outcome, Profile, Router
from steproute.metering import Measurement
from steproute.models import Serving

CALL_S = 10.0


def local(name: str, seconds: float = CALL_S, load_s: float = 0.0, **serving: object) -> Model:
    profile = Profile(latency_s=seconds, load_s=load_s, load_j=100 * load_s, latency_j=50, decode_j_per_token=0)
    return Model(name, price="free", profile=profile, serving=Serving(**serving))  # type: ignore[arg-type]


def seconds(decision, name: str) -> float:
    return decision.score_of(name).cost["seconds"]


def ask(steps: Router, key: str, **more):
    return steps.decide("t", step=key, prompt_tokens=100, **more)


def test_a_call_waits_for_those_in_flight():
    clock = FakeClock()
    steps = router([local("a", concurrency=2)], policy=Wants({}), clock=clock)
    assert [seconds(ask(steps, str(i)), "a") for i in range(3)] == [10, 10, 20]
    clock.tick(4)
    fourth = ask(steps, "3")  # two run for 6 s more; one is before it
    assert seconds(fourth, "a") == pytest.approx(10 + 6)
    clock.tick(5)
    steps.observe(ask(steps, "0"), Outcome(seconds=9))
    assert steps.fleet.in_flight("a") == 3


def test_models_of_one_server_wait_for_each_other():
    steps = router([local("a", server="gpu", concurrency=1), local("b", 2, server="gpu", concurrency=1), local("c", 7)])
    decision = ask(steps, "0", pin="a")
    later = ask(steps, "1")
    assert decision.model.name == "a"
    assert [seconds(later, name) for name in "abc"] == [20, 12, 7]


def test_a_burst_does_not_pick_the_same_idle_model():
    """Three replicas, time is what counts: twelve parallel calls spread evenly."""
    pool = [local(name, concurrency=1) for name in "abc"]
    steps = Router(pool, Budget(seconds=Limit(value=0.01)), "cheapest", on_error="raise", seed=0)
    budgeted = Router(pool, Budget(seconds=Limit(value=0.01)), "pacer", on_error="raise", seed=0)
    for made in (steps, budgeted):
        chosen = [made.decide("t", step=str(i), prompt_tokens=10).model.name for i in range(12)]
        if made is budgeted:
            assert sorted(chosen.count(name) for name in "abc") == [4, 4, 4]


def test_an_overdue_call_is_not_taken_for_finished():
    clock = FakeClock()
    steps = router([local("a", concurrency=1)], clock=clock)
    ask(steps, "0")
    clock.tick(50)
    assert seconds(ask(steps, "1"), "a") == pytest.approx(10 + 2.5)


def test_flights_end_by_outcome_failure_replacement_task_and_lease():
    clock = FakeClock()
    steps = router([local("a", concurrency=1), local("b", concurrency=1)], clock=clock, budget=Budget(lease_s=60))
    steps.observe(ask(steps, "0"), Outcome())
    steps.observe(ask(steps, "1"), Outcome(error="HTTP 500"))
    assert (steps.fleet.in_flight("a"), steps.fleet.in_flight("b")) == (0, 0)
    assert ask(steps, "2", exclude=["b"]).model.name == "a"
    assert ask(steps, "2", exclude=["a"]).model.name == "b"
    assert (steps.fleet.in_flight("a"), steps.fleet.in_flight("b")) == (0, 1)
    steps.finish("t")
    assert steps.fleet.in_flight("b") == 0
    steps.decide("t2", step="0")
    clock.tick(60)
    steps.decide("t3", step="0")
    assert steps.fleet.in_flight("a") == 1


def test_a_cold_model_pays_for_its_load_once():
    clock = FakeClock()
    steps = router([local("a", load_s=3, keep_alive_s=300)], clock=clock)
    first = ask(steps, "0", timeout_s=None)
    assert first.score_of("a").cost == {"tokens": 356, "usd": 0, "seconds": 13, "energy_j": 350}
    steps.observe(first, Outcome(seconds=13))
    assert seconds(ask(steps, "1"), "a") == 10
    steps.finish("t")
    clock.tick(301)
    assert seconds(ask(steps, "2"), "a") == 13
    steps.observe(steps.decisions("t")[-1], Outcome(error="HTTP 500"))
    assert not steps.fleet.is_loaded(steps.pool["a"])


def test_a_server_says_what_is_loaded():
    pool = [local("a", load_s=3), local("b", load_s=3, keep_alive_s=None), local("hosted")]
    steps = router([pool[0].model_copy(update={"deployment": "qwen:7b"}), *pool[1:]])
    steps.fleet.told(["qwen:7b", "unknown"])
    assert [seconds(ask(steps, "0"), name) for name in ("a", "b", "hosted")] == [10, 13, 10]
    steps.finish("t")
    steps.fleet.told([])
    assert steps.fleet.loaded == ()
    assert seconds(ask(steps, "1"), "a") == 13


def test_memory_is_a_capacity():
    pool = [local("a", load_s=3, vram_gb=10), local("b", load_s=3, vram_gb=10), local("c", load_s=3, vram_gb=8)]
    steps = router(pool, budget=Budget(vram_gb=20))
    first = ask(steps, "0", pin="a")
    assert ask(steps, "1", pin="b").model.name == "b"
    third = ask(steps, "2")
    assert third.score_of("c").cause == "needs 8 GB of memory; models with calls in flight hold 20 of 20"
    assert third.score_of("a").cause == ""
    steps.observe(first, Outcome())
    assert ask(steps, "3", pin="c").model.name == "c"
    assert set(steps.fleet.loaded) == {"a", "b", "c"}  # a is called again in step 2
    steps.finish("t")
    steps.decide("t2", step="0", pin="c")
    assert set(steps.fleet.loaded) == {"a", "c"}  # the least recently used made room
    with pytest.raises(ConfigError, match=r"budget\.vram_gb: a needs 10 GB; there are 9"):
        router(pool, budget=Budget(vram_gb=9))
    router(pool, budget=Budget(vram_gb={"gpu1": 9}))


def test_a_rate_limit_is_a_wait():
    clock = FakeClock()
    steps = router([local("a", rpm=2, tpm=1000)], clock=clock)
    assert [seconds(ask(steps, str(i)), "a") for i in range(2)] == [10, 10]
    clock.tick(20)
    assert seconds(ask(steps, "2"), "a") == pytest.approx(10 + 40)
    clock.tick(60)
    assert seconds(ask(steps, "3"), "a") == 10
    big = router([local("a", tpm=1000)], clock=clock)
    ask(big, "0")
    ask(big, "1")
    ask(big, "2")  # 3 × 356 tokens
    assert seconds(ask(big, "3"), "a") == pytest.approx(10 + 60)


class FakeMeter:
    """Ten joules a call."""

    def __init__(self) -> None:
        self.open: list[int] = []
        self.cancelled = 0

    def begin(self, model: str) -> int:
        self.open.append(len(self.open))
        return self.open[-1]

    def end(self, key: int) -> Measurement | None:
        self.open.remove(key)
        return Measurement(10.0, "fake", 1.0, shared=2)

    def cancel(self, key: int) -> None:
        self.open.remove(key)
        self.cancelled += 1


def test_the_router_measures_calls_from_decide_to_observe():
    meter = FakeMeter()
    steps = router([local("a"), local("b")], meter=meter)
    decision = ask(steps, "0")
    assert ask(steps, "0") is decision
    assert (len(meter.open), meter.cancelled) == (1, 1)
    outcome = Outcome(completion_tokens=5)
    steps.observe(decision, outcome)
    assert (outcome.energy_j, outcome.energy_source) == (10, "fake, shared by up to 2 calls")
    assert steps.spent("t")["energy_j"] == 10
    assert ask(steps, "0") is decision  # answered: nothing is measured for a replay
    own = Outcome(energy_j=3, energy_source="the host's")
    steps.observe(ask(steps, "1"), own)
    assert own.energy_j == 3
    ask(steps, "2")
    steps.finish("t")
    assert meter.open == []
    with pytest.raises(ConfigError, match="meter: unknown name"):
        router(meter="nvmll")


def test_a_broken_meter_does_not_break_the_host():
    class Broken(FakeMeter):
        def end(self, key: int) -> Measurement | None:
            raise RuntimeError("gone")

    steps = router([local("a")], meter=Broken(), on_error="fallback")
    outcome = Outcome(completion_tokens=5, seconds=1)
    steps.observe(ask(steps, "0"), outcome)
    assert outcome.energy_source == "estimate from the model's profile"
    assert steps.errors == 1
