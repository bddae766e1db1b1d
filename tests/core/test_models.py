from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute import ConfigError, Model, ModelPool, Needs, Price, Profile


def test_price_of_a_call_by_hand():
    price = Price(input=2.0, output=8.0, cached_input=0.5)
    # 700 uncached at 2, 300 cached at .5, 100 written at 8, per million
    assert price.usd(1000, 100, 300) == pytest.approx((700 * 2 + 300 * 0.5 + 100 * 8) / 1e6)
    assert Price(input=2.0, output=8.0).usd(1000, 100, 300) == pytest.approx((1000 * 2 + 100 * 8) / 1e6)
    assert Price(input=0, output=0).usd(10**6, 10**6) == 0


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_cached_tokens_are_part_of_the_prompt(prompt, cached):
    price = Price(input=2.0, output=8.0, cached_input=0.5)
    assert price.usd(prompt, 0, cached) <= price.usd(prompt, 0) + 1e-12
    assert price.usd(prompt, 0, cached) >= prompt * 0.5 / 1e6 - 1e-12


def test_profile_seconds_and_joules_by_hand():
    profile = Profile(prefill_tokens_per_s=500, decode_tokens_per_s=20, latency_s=0.5, power_w=100)
    assert profile.seconds(1000, 40) == pytest.approx(0.5 + 2 + 2)
    assert profile.energy_j(1000, 40) == pytest.approx(450)
    per_token = Profile(prefill_j_per_token=0.01, decode_j_per_token=0.5)
    assert per_token.energy_j(1000, 40) == pytest.approx(10 + 20)
    assert Profile().energy_j(1000, 40) is None
    assert Profile().seconds(1000, 40) == 0


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (
            {"price": {"input": -1, "output": 2}},
            "Model 'm': price.input: Input should be greater than or equal to 0; seen -1",
        ),
        (
            {"price": {"input": float("nan"), "output": 2}},
            "Model 'm': price.input: Input should be a finite number; seen nan",
        ),
        (
            {"price": {"input": 1, "outptu": 2}},
            "Model 'm': price.output: missing; it is required; price.outptu: unknown name 'outptu'; did you mean 'output'? "
            "allowed: cache_min_tokens, cache_ttl_s, cache_write, cached_input, input, output",
        ),
        (
            {"price": None},
            'Model \'m\': price: seen None; allowed: Price(input=…, output=…) in USD per million tokens, "free" or "unknown"',
        ),
        (
            {"price": -0.5},
            'Model \'m\': price: seen -0.5; allowed: Price(input=…, output=…) in USD per million tokens, "free" or "unknown"',
        ),
        ({}, "Model 'm': price: missing; it is required"),
        ({"price": "free", "qualty": 0.3}, "Model 'm': qualty: unknown name 'qualty'; did you mean 'quality'?"),
        (
            {"price": "free", "profile": {"power_w": 0}},
            "Model 'm': profile.power_w: Input should be greater than 0; seen 0",
        ),
        ({"price": "free", "quality": 1.5}, "Model 'm': quality: Input should be less than or equal to 1; seen 1.5"),
    ],
)
def test_wrong_models_name_the_field_and_what_was_seen(given, error):
    with pytest.raises(ConfigError) as seen:
        Model("m", **given)
    assert str(seen.value).startswith(error)


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_wrong_prices_are_configuration_errors(wrong):
    with pytest.raises(ConfigError, match=r"^Price: input: Input should be"):
        Price(input=wrong, output=1)


def test_a_key_in_the_wrong_place_is_not_repeated():
    with pytest.raises(ConfigError) as seen:
        Model("m", price="free", quality="sk-abcdefghijklmnop1234567890")
    assert "abcdefgh" not in str(seen.value)


def test_prices_given_in_words():
    assert Model("m", price="free").price == Price(input=0, output=0)
    assert Model("m", price=0).price == Price(input=0, output=0)
    assert Model("m", price="unknown").price == "unknown"


def test_prior_is_a_logistic_of_the_size():
    assert Model("m", price="free", quality=0.8, size_b=1).prior == 0.8
    assert Model("m", price="free").prior == 0.5
    assert Model("m", price="free", size_b=7).prior == pytest.approx(0.5)
    assert Model("m", price="free", size_b=70).prior == pytest.approx(1 / (1 + math.exp(-0.75)))


@given(st.floats(0.001, 1e4), st.floats(0.001, 1e4))
def test_prior_rises_with_size(a, b):
    small, large = (Model("m", price="free", size_b=size).prior for size in sorted((a, b)))
    assert 0 < small <= large < 1


def test_what_a_model_lacks():
    model = Model("m", price="free", roles=("coder", "fixer"), tools=False, structured=False, context_window=100)
    assert model.lacks("coder", Needs()) == ""
    assert model.lacks("critic", Needs()) == "not allowed for role 'critic' (allowed: coder, fixer)"
    assert model.lacks("coder", Needs(tools=True)) == "no tool calls"
    assert model.lacks("coder", Needs(vision=True)) == "no vision"
    assert model.lacks("coder", Needs(structured=True)) == "no structured output"
    assert model.lacks("coder", Needs(context_tokens=100)) == ""
    assert model.lacks("coder", Needs(context_tokens=101)) == "context window 100 < 101 tokens"


def test_needs_grow_with_the_prompt():
    assert Needs(tools=True, context_tokens=5).at_least(9) == Needs(tools=True, context_tokens=9)
    needs = Needs(context_tokens=50)
    assert needs.at_least(9) is needs


def test_pool_refuses_what_it_cannot_hold():
    with pytest.raises(ConfigError, match=r"^models: the pool is empty; give at least one Model$"):
        ModelPool([])
    with pytest.raises(ConfigError, match=r"^models: seen 'gpt'; allowed: Model\(\.\.\.\)$"):
        ModelPool(["gpt"])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="the name 'm' is given twice"):
        ModelPool([Model("m", price="free"), Model("m", price="unknown")])
    with pytest.raises(ConfigError, match=r"^default: unknown name 'larg'; did you mean 'large'"):
        ModelPool([Model("large", price="free")], default="larg")


def test_pool_changes_at_run_time():
    pool = ModelPool([Model("a", price="free", size_b=1), Model("b", price=Price(input=3, output=5), size_b=9)])
    assert pool.default.name == "b"
    assert pool.dearest_usd == 5
    pool.add(Model("c", price="free", quality=1.0))
    assert (pool.names, pool.default.name) == (["a", "b", "c"], "c")
    assert pool.retire("b").name == "b"
    assert pool.names == ["a", "c"]
    assert pool.dearest_usd is None
    pool.retire("a")
    with pytest.raises(ConfigError, match="'c' is the last model and cannot be retired"):
        pool.retire("c")
    with pytest.raises(ConfigError, match=r"^model: unknown name 'd'; allowed: c$"):
        pool["d"]


def test_a_retired_default_is_replaced():
    pool = ModelPool([Model("a", price="free"), Model("b", price="free", quality=0.9)], default="a")
    assert pool.default.name == "a"
    pool.retire("a")
    assert pool.default.name == "b"


def test_a_model_is_found_by_the_name_its_provider_uses():
    pool = ModelPool([Model("small", price="free", deployment="vendor/small-1"), Model("large", price="free")])
    found = pool.resolve("vendor/small-1")
    assert found is not None
    assert found.name == "small"
    assert pool.resolve("large") is pool["large"]
    assert pool.resolve("") is None
    assert pool.resolve("vendor/large") is None
    assert pool["large"].provider_name == "large"


def test_eligible_says_why_not():
    pool = ModelPool([Model("a", price="free"), Model("b", price="free", tools=False), Model("c", price="free")])
    fit, reasons = pool.eligible("coder", Needs(tools=True), {"c": "failed at this step"})
    assert [model.name for model in fit] == ["a"]
    assert reasons == {"b": "no tool calls", "c": "failed at this step"}


def test_models_are_hashable_and_pickle():
    model = Model("a", price=Price(input=1, output=2), profile=Profile(decode_tokens_per_s=9, amounts={"slots": 1}))
    assert len({model, pickle.loads(pickle.dumps(model))}) == 1
