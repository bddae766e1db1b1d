from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute import Model, Outcome, Price, Profile
from steproute.forecast import KEPT, CostForecast, complete_energy, price_outcome

FULL = Model(
    "full",
    price=Price(input=2, output=10),
    profile=Profile(
        prefill_tokens_per_s=500,
        decode_tokens_per_s=50,
        latency_s=0.5,
        prefill_j_per_token=0.01,
        decode_j_per_token=0.2,
        amounts={"slots": 1},
    ),
    max_output=1000,
)


def test_expected_and_worst_case_by_hand():
    cost, worst = CostForecast(completion_tokens=100).predict(FULL, "coder", 1000, 400)
    assert cost == pytest.approx(
        {"tokens": 1100, "usd": 0.003, "seconds": 0.5 + 2 + 2, "energy_j": 10 + 20, "slots": 1}
    )
    assert worst == pytest.approx(
        {"tokens": 1400, "usd": 0.006, "seconds": 0.5 + 2 + 8, "energy_j": 10 + 80, "slots": 1}
    )


@given(st.integers(0, 5000), st.integers(0, 5000), st.sampled_from([0.0, 1e-6]))
def test_the_forecast_of_time_is_the_profile_s(prompt, cached, context_s):
    profile = FULL.profile.model_copy(update={"prefill_context_s": context_s, "decode_context_s": context_s})
    model = FULL.model_copy(update={"profile": profile})
    cost, worst = CostForecast(completion_tokens=100).predict(model, "coder", prompt, 400, cached_tokens=cached)
    assert cost["seconds"] == pytest.approx(profile.seconds(prompt, 100, min(cached, prompt)))
    assert worst["seconds"] == pytest.approx(profile.seconds(prompt, 400))


@pytest.mark.parametrize(("asked", "most"), [(None, 1000), (0, 1000), (-1, 1000), (-2, 1000), (400, 400), (9999, 1000)])
def test_the_worst_case_ends_at_the_lower_of_both_limits(asked, most):
    assert CostForecast().predict(FULL, "coder", 0, asked)[1]["tokens"] == most


def test_no_amount_is_ever_below_zero():
    cost, worst = CostForecast().predict(FULL, "coder", -50, -100_000, timeout_s=-1.0)
    assert (worst["tokens"], worst["usd"]) == (1000, 0.01)
    assert worst["seconds"] == pytest.approx(0.5 + 1000 / 50)  # a timeout of −1 is none
    assert min([*cost.values(), *worst.values()]) > 0


def test_the_timeout_is_the_worst_case_of_time():
    cost, worst = CostForecast(completion_tokens=100).predict(FULL, "coder", 1000, None, timeout_s=3.0)
    assert (cost["seconds"], worst["seconds"]) == (3.0, 3.0)
    bare = Model("bare", price="free")
    cost, worst = CostForecast().predict(bare, "coder", 1000, None, timeout_s=3.0)
    assert "seconds" not in cost
    assert worst["seconds"] == 3.0


def test_completion_lengths_are_learnt_per_model_and_role():
    forecast = CostForecast(completion_tokens=100)
    for _ in range(200):
        forecast.learn(FULL, "coder", Outcome(completion_tokens=700))
        forecast.learn(FULL, "critic", Outcome(completion_tokens=700, error="HTTP 500"))
    assert forecast.predict(FULL, "coder", 0, None)[0]["tokens"] == pytest.approx(700, rel=0.01)
    assert forecast.predict(FULL, "coder", 0, 300)[0]["tokens"] == 300
    assert forecast.predict(FULL, "critic", 0, None)[0]["tokens"] == 100


def test_what_no_profile_tells_is_learnt_from_calls():
    forecast, bare = CostForecast(), Model("bare", price="unknown")
    assert set(forecast.predict(bare, "coder", 10, None)[0]) == {"tokens"}
    for seconds, joules, usd in ((2.0, 100.0, 0.01), (4.0, 300.0, 0.03)):
        forecast.learn(bare, "coder", Outcome(seconds=seconds, energy_j=joules, usd=usd, amounts={"slots": 2}))
    cost, worst = forecast.predict(bare, "coder", 10, None)
    assert (cost["seconds"], cost["energy_j"], cost["slots"]) == (3.0, 200.0, 2.0)
    assert cost["usd"] == pytest.approx(0.02)
    assert (worst["seconds"], worst["energy_j"], worst["usd"]) == (4.0, 300.0, 0.03)


def test_a_model_replaced_under_its_name_is_priced_anew():
    forecast = CostForecast()
    forecast.predict(FULL, "coder", 1000, 0)
    cheaper = Model("full", price="free", max_output=1)
    assert forecast.predict(cheaper, "coder", 1000, None)[1] == {"tokens": 1001, "usd": 0}


def test_unknown_prices_are_assumed_or_left_out():
    unknown = Model("m", price="unknown", max_output=1000)
    assert CostForecast().predict(unknown, "r", 1000, None, unknown_price=30)[1]["usd"] == pytest.approx(0.06)
    assert "usd" not in CostForecast().predict(unknown, "r", 1000, None)[1]
    usage = Outcome(prompt_tokens=1000, completion_tokens=1000)
    assert price_outcome(unknown, usage, 30)["usd"] == pytest.approx(0.06)
    assert "usd" not in price_outcome(unknown, usage)


def test_usage_is_priced_by_the_model_that_answered():
    usage = Outcome(prompt_tokens=1000, completion_tokens=100, seconds=2.5, amounts={"slots": 3, "usd": 99})
    assert price_outcome(FULL, usage) == pytest.approx({"slots": 3, "usd": 0.003, "seconds": 2.5, "tokens": 1100})
    assert price_outcome(FULL, Outcome(usd=0.5, prompt_tokens=1000))["usd"] == 0.5
    assert price_outcome(FULL, Outcome(energy_j=7))["energy_j"] == 7


def test_joules_are_measured_or_labelled_as_an_estimate():
    measured = Outcome(energy_j=7, energy_source="NVML energy counter")
    complete_energy(FULL, measured)
    assert (measured.energy_j, measured.energy_source) == (7, "NVML energy counter")
    estimated = Outcome(prompt_tokens=1000, cached_tokens=400, completion_tokens=100)
    complete_energy(FULL, estimated)
    assert estimated.energy_j == pytest.approx(600 * 0.01 + 100 * 0.2)  # cached tokens are not computed again
    assert estimated.energy_source == "estimate from the model's profile"
    failed, nothing = Outcome(error="HTTP 500", prompt_tokens=10), Outcome(prompt_tokens=10)
    complete_energy(FULL, failed)
    complete_energy(Model("bare", price="free"), nothing)
    assert failed.energy_j is nothing.energy_j is None
    assert nothing.energy_source == ""


def test_a_stated_power_counts_for_the_time_the_call_really_took():
    model = Model("m", price="free", profile=Profile(power_w=50, decode_tokens_per_s=10))
    outcome, timeless = Outcome(completion_tokens=100, seconds=4), Outcome(completion_tokens=100)
    complete_energy(model, outcome)
    complete_energy(model, timeless)
    assert outcome.energy_j == 200
    assert timeless.energy_j == 500


def test_roles_invented_by_the_host_do_not_pile_up():
    forecast = CostForecast()
    for i in range(KEPT + 10):
        forecast.learn(FULL, f"subtask-{i:x}", Outcome(completion_tokens=1))
    assert len(forecast._completion) == KEPT
