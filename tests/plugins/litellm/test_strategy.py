"""Synchronous users: `StepRoutingStrategy`, and what is heard without it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import litellm
import pytest
from servers import Reply

from steproute import Budget, BudgetExceeded
from steproute.plugins.litellm import StepRouting, StepRoutingStrategy, labels

from .conftest import HELLO, ONE_CALL, about, models_called


def register(llm_router, strategy):
    if hasattr(llm_router, "register_plugin"):
        llm_router.register_plugin(strategy)
    else:
        llm_router.set_custom_routing_strategy(strategy)


@pytest.fixture
def synchronous(routing, llm_router):
    def make(policy="cheapest", *deployments, budget=None, **options):
        plugin = routing(policy, budget)
        router = llm_router(*deployments, **options)
        register(router, StepRoutingStrategy(plugin.router, router))
        return plugin, router

    return make


def test_a_synchronous_call_is_routed_and_heard(server, synchronous):
    plugin, router = synchronous("strongest")
    with labels(task="t", role="coder"):
        answer = router.completion(model="chat", messages=HELLO)
    plugin.wait(1)
    assert answer.model == "large"
    [step] = plugin.router.ledger("t").steps
    assert (step.model, step.role, step.outcome.usd) == ("large", "coder", pytest.approx(ONE_CALL["large"]))


def test_it_works_inside_a_running_loop(server, synchronous):
    plugin, router = synchronous("strongest")

    async def main():
        return router.completion(model="chat", messages=HELLO, **about("t"))

    assert asyncio.run(main()).model == "large"
    plugin.wait(1)
    assert plugin.router.spent("t")["usd"] == pytest.approx(ONE_CALL["large"])


async def test_an_asynchronous_call_is_decided_once(server, synchronous):
    plugin, router = synchronous("strongest")
    answer = await router.acompletion(model="chat", messages=HELLO, **about("t"))
    await plugin.heard(1)
    assert answer.model == "large"
    assert len(plugin.router.decisions("t")) == 1


def test_cooldowns_hold_for_synchronous_calls(server, synchronous):
    _, router = synchronous("cheapest", num_retries=0, allowed_fails=0, cooldown_time=60)
    server.queue(Reply(status=429, error="slow down"))
    with pytest.raises(litellm.RateLimitError):
        router.completion(model="chat", messages=HELLO, **about("one"))
    assert router.completion(model="chat", messages=HELLO, **about("two")).model == "large"


def test_tags_hold_for_synchronous_calls(server, synchronous, deployment):
    listed = [deployment("chat", "small", tags=["free"]), deployment("chat", "large", tags=["paid"])]
    _, router = synchronous("cheapest", *listed, enable_tag_filtering=True, num_retries=0)
    assert router.completion(model="chat", messages=HELLO, metadata={"tags": ["paid"]}).model == "large"


def test_a_synchronous_retry_goes_to_another_model(server, synchronous):
    plugin, router = synchronous("cheapest")
    server.queue(Reply(status=500, error="broken"))
    assert router.completion(model="chat", messages=HELLO, **about("t")).model == "large"
    plugin.wait(1)
    assert models_called(server) == ["small", "large"]


def test_a_hard_limit_refuses_a_synchronous_call(server, synchronous):
    _, router = synchronous("cheapest", budget=Budget(usd=0.00001))
    with pytest.raises(BudgetExceeded):
        router.completion(model="chat", messages=HELLO, **about("t"))
    assert server.calls == []


def test_without_the_strategy_a_synchronous_call_is_still_paid_for(server, routing, llm_router):
    plugin = routing("strongest")
    answer = llm_router().completion(model="chat", messages=HELLO, **about("t"))
    plugin.wait(1)
    assert plugin.router.spent("t")["usd"] == pytest.approx(ONE_CALL[answer.model])


def test_a_logger_is_added_where_there_is_none(routing, llm_router):
    plugin = routing()
    litellm.callbacks.clear()
    StepRoutingStrategy(plugin.router, llm_router())
    [added] = litellm.callbacks
    assert isinstance(added, StepRouting)
    assert added.router is plugin.router


def test_importing_the_plugin_does_not_import_litellm():
    code = "import sys, steproute.plugins.litellm; sys.exit('litellm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_without_litellm_the_import_names_the_extra():
    code = (
        "import importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'litellm' else found(name, *rest)\n"
        "import steproute.plugins.litellm"
    )
    run = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, capture_output=True, text=True)
    assert run.returncode == 1
    assert "pip install 'steproute[litellm]'" in run.stderr


@pytest.mark.parametrize(("path", "problem"), [("", "STEPROUTE_CONFIG: not set"), ("/nowhere.yaml", "cannot be read")])
def test_the_proxys_instance_says_what_its_configuration_lacks(path, problem, monkeypatch):
    from steproute import ConfigError, plugins

    assert plugins is not None
    monkeypatch.setenv("STEPROUTE_CONFIG", path)
    monkeypatch.delitem(sys.modules, "steproute.plugins.litellm.shared", raising=False)
    import steproute.plugins.litellm as package

    with pytest.raises(ConfigError, match=problem):
        package.proxy  # noqa: B018
