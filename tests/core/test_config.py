from __future__ import annotations

import textwrap

import pytest

from steproute import Budget, ConfigError, Limit, Model, Outcome, Price, Router
from steproute.config import load_config
from steproute.policies.progrouter import ProgRouter
from steproute.policies.simple import Fixed

FULL = """
    models:
      - name: small
        price: free
        size_b: 0.5
        roles: [coder, fixer]
        profile: {decode_tokens_per_s: 23, power_w: 45}
      - name: large
        price: {input: 0.4, output: 1.6}
        deployment: vendor/large-2
    default: small
    budget:
      usd: 0.05
      energy_j: {limit: 5000, hard: false, target: 4800}
      other: {gpu_h: 2}
    policy: {name: progrouter, V: 50}
    progress:
      thresholds: [0.1, 0.6, 0.9]
      partial: {base: 0.5, alpha: 0.3, beta: 0.05, gamma: 0.1}
    explore: 0.05
    seed: 7
    idle_timeout: 30
    cooldown_s: 0
"""
MINIMAL = {"models": [{"name": "small", "price": "free"}]}


def test_everything_can_be_said_in_yaml(tmp_path):
    path = tmp_path / "steproute.yaml"
    path.write_text(textwrap.dedent(FULL), encoding="utf-8")
    router = Router.from_config(path)
    assert router.pool.names == ["small", "large"]
    assert router.pool.default.name == "small"
    assert router.pool["large"] == Model("large", price=Price(input=0.4, output=1.6), deployment="vendor/large-2")
    assert router.pool["small"].profile.power_w == 45
    assert router.budget == Budget(
        usd=0.05, energy_j=Limit(limit=5000, hard=False, target=4800), other={"gpu_h": Limit(limit=2)}
    )
    assert isinstance(router.policy, ProgRouter)
    assert router.policy.config.V == 50
    assert (router.explore, router.idle_timeout) == (0.05, 30)
    assert router.decide("t", "coder").model.name in ("small", "large")


def test_what_another_mapping_brings_may_be_said_again(tmp_path):
    path = tmp_path / "steproute.yaml"
    path.write_text("models:\n- &a {name: a, price: free, size_b: 8}\n- {<<: *a, name: b, size_b: 70}\nbudget:\n")
    router = Router.from_config(path)
    assert [(model.name, model.size_b) for model in router.pool] == [("a", 8), ("b", 70)]
    assert router.budget.usd is None


def test_a_mapping_says_the_same_and_python_overrides_it():
    router = Router.from_config({**MINIMAL, "policy": "random", "explore": 0.1}, policy="fixed:small", seed=3)
    assert isinstance(router.policy, Fixed)
    assert router.explore == 0.1


def test_routers_of_one_configuration_are_independent():
    config = {"models": [{"name": "a", "price": "free"}, {"name": "b", "price": "free"}], "budget": {"usd": 1}}
    one, other = Router.from_config(config), Router.from_config(config)
    one.pool.retire("a")
    one.forecast.learn(one.pool["b"], "r", Outcome(completion_tokens=1))
    assert other.pool.names == ["a", "b"]
    assert other.forecast is not one.forecast
    assert other.policy is not one.policy
    assert config["models"][0] == {"name": "a", "price": "free"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"modles": []}, "config: modles: unknown name 'modles'; did you mean 'models'? allowed: budget, "),
        ({"models": []}, "config: models: List should have at least 1 item after validation, not 0; seen []"),
        ({"models": [{"name": "a"}]}, "config: Model 'a': price: missing; it is required"),
        (
            {"models": [{"name": "a", "price": "free", "prise": 1}]},
            "config: Model 'a': prise: unknown name 'prise'; did you mean 'price'?",
        ),
        (
            {"models": [{"name": "a", "price": "free"}] * 2},
            "config: models: the name 'a' is given twice; names must be unique",
        ),
        ({"models": "a"}, "config: models: Input should be a valid list; seen 'a'"),
        ({"models": ["a"]}, "config: models.0: Input should be a valid dictionary; seen 'a'"),
        ({"default": "larg"}, "config: default: unknown name 'larg'; allowed: small"),
        (
            {"budget": {"usd": 0}},
            "config: Budget: usd: seen 0; allowed: a number above 0, a Limit, or None for no limit",
        ),
        (
            {"budget": {"usd": {"limit": 1, "hrad": True}}},
            "config: Budget: usd.hrad: unknown name 'hrad'; did you mean 'hard'?",
        ),
        ({"policy": {"V": 2}}, "config: policy: name: missing; it is required"),
        ({"policy": "progruter"}, "config: policy: unknown name 'progruter'; did you mean 'progrouter'?"),
        (
            {"policy": {"name": "progrouter", "epsilom": 1}},
            "config: ProgRouter: epsilom: unknown name 'epsilom'; did you mean 'epsilon'?",
        ),
        ({"explore": "much"}, "config: explore: Input should be a valid number"),
        ({"seed": 0.5}, "config: seed: Input should be a valid integer"),
        (
            {"progress": {"thresholds": [0.5, 0.2, 0.6]}},
            "config: thresholds: seen (0.5, 0.2, 0.6); needed in rising order: ",
        ),
        (
            {"progress": {"partial": {"base": 0.1, "alpha": 0.3, "beta": 0.05, "gamma": 0.1}}},
            "config: progress.partial.base: g would start at 0.05, below the end 0.44 of 'recoverable'; regimes must be in the order",
        ),
        (
            {"progress": {"partial": {"base": 0.5}}},
            "config: progress.partial.alpha: missing; it is required; progress.partial.beta: missing",
        ),
        ({"progress": {"partal": {}}}, "config: progress.partal: unknown name 'partal'; did you mean 'partial'?"),
    ],
)
def test_wrong_configurations_name_the_key(change, error):
    with pytest.raises(ConfigError) as seen:
        load_config({**MINIMAL, **change})
    assert str(seen.value).startswith(error)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"models": []}, "models: the pool is empty; give at least one Model"),
        ({"models": Model("a", price="free")}, "models: seen ('name', 'a'); allowed: Model(...)"),
        ({"explore": 1.0}, "explore: seen 1.0; allowed: at least 0 and below 1"),
        ({"explore": float("nan")}, "explore: seen nan; allowed: at least 0 and below 1"),
        ({"idle_timeout": 0}, "idle_timeout: seen 0; allowed: seconds above 0"),
        ({"cooldown_s": -1}, "cooldown_s: seen -1; allowed: seconds of 0 or more"),
        ({"on_error": "rais"}, "on_error: unknown name 'rais'; did you mean 'raise'? allowed: fallback, raise"),
        ({"budget": 0.05}, "budget: seen 0.05; allowed: Budget(...) or None"),
        ({"policy": "fixed:larg"}, "policy fixed: model: unknown name 'larg'; allowed: a"),
        ({"policy": "unknown"}, "policy: unknown name 'unknown'; "),
    ],
)
def test_wrong_arguments_name_the_argument(options, error):
    with pytest.raises(ConfigError) as seen:
        Router(**{"models": [Model("a", price="free")], **options})
    assert str(seen.value).startswith(error)


def test_files_that_cannot_be_read(tmp_path):
    def message(content: bytes | None) -> str:
        path = tmp_path / "steproute.yaml"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError) as seen:
            Router.from_config(path)
        return str(seen.value).removeprefix(str(path))

    assert message(None) == ": cannot be read (No such file or directory)"
    assert message(b"models: [").startswith(": is not YAML (")
    assert message(b"models: [").endswith("line 1)")
    assert message(b"\xff\xfe\x00") == ": is not UTF-8 text (byte 0)"
    assert message(b"- a\n- b\n") == ": seen list; allowed: a mapping with the key `models`"
    assert message(b"") == ": seen NoneType; allowed: a mapping with the key `models`"
    assert message(b"7: x\nmodels: [{name: a, price: free}]\n").startswith(": 7: unknown name '7'")
    twice = b"models: [{name: a, price: free}]\nbudget: {usd: 0.05}\nbudget: {seconds: 9}\n"
    assert message(twice) == ": is not YAML ('budget' is given twice, line 3)"
    inner = b"models:\n- name: a\n  price: free\n  price: {input: 1, output: 2}\n"
    assert message(inner) == ": is not YAML ('price' is given twice, line 4)"
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\)"):
        Router.from_config(tmp_path)
