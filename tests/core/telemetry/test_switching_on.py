from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request

import pytest

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("prometheus_client")

from opentelemetry.trace import INVALID_SPAN
from prometheus_client import CollectorRegistry

from steproute import ConfigError, Model, Outcome, Router
from steproute.config import load_config
from steproute.store import Store
from steproute.telemetry import Telemetry, as_telemetry, under
from steproute.telemetry.words import error_kind

POOL = [Model("a", price="free"), Model("b", price="free")]


def play(router: Router, task: str = "t") -> None:
    router.observe(router.decide(task, "coder"), Outcome(prompt_tokens=3))
    router.finish(task, success=True)


def test_it_is_off_unless_asked_for(tmp_path):
    assert Router(POOL)._log is None
    assert Router(POOL, telemetry=False)._log is None
    assert Router(POOL, telemetry=Telemetry(spans=False, metrics=False))._log is None
    assert type(Router(POOL, store=tmp_path / "s.db")._log).__name__ == "Journal"


def test_in_yaml(tmp_path):
    path = tmp_path / "steproute.yaml"
    models = "models: [{name: a, price: free}]\n"
    path.write_text(models + "telemetry: true\n", encoding="utf-8")
    assert load_config(path)["telemetry"] == Telemetry()
    path.write_text(models + "telemetry: false\n", encoding="utf-8")
    assert "telemetry" not in load_config(path)
    path.write_text(models + "telemetry: {spans: false, metrics: false, logs: events.jsonl}\n", encoding="utf-8")
    router = Router.from_config(path)
    play(router)
    router.close()
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["event"] for line in lines] == ["decision", "outcome", "task"]
    assert lines[0]["logger"] == "steproute.events"
    assert lines[0]["model"] == "a"
    assert logging.getLogger("steproute.events").handlers == []


def test_a_file_gets_the_lines_of_its_router_alone_and_the_hosts_handlers_none(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    routers = [
        Router(POOL, telemetry=Telemetry(spans=False, metrics=False, logs=tmp_path / f"{name}.jsonl")) for name in "ab"
    ]
    play(routers[0], "of a")
    play(routers[1], "of b")
    for router in routers:
        router.close()
    for name in "ab":
        lines = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        assert [line["task"] for line in lines] == [f"of {name}"] * 3
    assert caplog.records == []


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"metrix": True}, "telemetry: unknown name 'metrix'; did you mean 'metrics'?"),
        ({"port": "http"}, "telemetry: port: seen 'http'; allowed: 0 to 65535"),
        ({"port": 9464, "metrics": False}, "telemetry: port: serves metrics, and `metrics` is false"),
        ({"spans": 1}, "telemetry: spans: seen 1; allowed: true or false"),
        ({"logs": ""}, "telemetry: logs: seen ''; allowed: true, false, \"stderr\" or the path of a file"),
        ("yes", "telemetry: seen a str; allowed: true, false, or settings of Telemetry"),
    ],
)
def test_wrong_settings_name_the_setting(given, error):
    with pytest.raises(ConfigError) as seen:
        as_telemetry(given)
    assert str(seen.value).startswith(error)


def test_a_file_that_cannot_be_written_frees_the_store(tmp_path):
    wrong = Telemetry(spans=False, metrics=False, logs=tmp_path / "nowhere" / "x.jsonl")
    with pytest.raises(ConfigError, match=r"telemetry: logs: .* cannot be written"):
        Router(POOL, store=tmp_path / "s.db", telemetry=wrong)
    Router(POOL, store=tmp_path / "s.db").close()


def test_with_a_store_both_hear_everything(tmp_path):
    registry = CollectorRegistry()
    telemetry = Telemetry(spans=False, registry=registry)
    router = Router(POOL, store=Store(tmp_path / "s.db"), telemetry=telemetry, on_error="raise", policy="fixed:a")
    play(router)
    router.close()
    again = Router(POOL, store=tmp_path / "s.db", telemetry=telemetry, on_error="raise", policy="fixed:a")
    assert again.ended("t")
    play(again, "u")
    again.close()
    assert registry.get_sample_value("steproute_tasks_total", {"result": "success"}) == 2
    labels = {"model": "a", "policy": "fixed:a", "kind": "best"}
    assert registry.get_sample_value("steproute_decisions_total", labels) == 2

    from steproute.store.read import StoreReader

    assert [step["task"] for step in StoreReader(tmp_path / "s.db").steps()] == ["t", "u"]


def test_metrics_over_http():
    router = Router(POOL, telemetry=Telemetry(spans=False, port=0, registry=CollectorRegistry()), policy="fixed:a")
    play(router)
    port = router._log.channels[0].port
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    router.close()
    assert 'steproute_calls_total{model="a",result="ok"} 1.0' in text
    with pytest.raises(urllib.error.URLError):
        opener.open(f"http://127.0.0.1:{port}/metrics", timeout=10)


def test_a_taken_port_is_named():
    first = Router(POOL, telemetry=Telemetry(spans=False, port=0, registry=CollectorRegistry()))
    port = first._log.channels[0].port
    with pytest.raises(ConfigError, match=f"telemetry: port: 127.0.0.1:{port} cannot be opened"):
        Router(POOL, telemetry=Telemetry(spans=False, port=port, registry=CollectorRegistry()))
    first.close()


def test_two_routers_of_one_registry_count_together():
    registry = CollectorRegistry()
    for _ in range(2):
        play(Router(POOL, telemetry=Telemetry(spans=False, registry=registry), policy="fixed:a"))
    assert registry.get_sample_value("steproute_calls_total", {"model": "a", "result": "ok"}) == 2


def test_a_span_handed_on_by_argument_is_the_one_around(world):
    router = world.make()
    handed = world.tracer.start_span("proxy request")
    with under(handed):
        decision = router.decide("t", "coder")
    assert handed.is_recording()
    router.observe(decision, Outcome())
    (span,) = world.spans()
    assert span.parent.span_id == handed.get_span_context().span_id
    with under(None), under("no span"), under(INVALID_SPAN):
        pass


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("RateLimitError: 429", "rate_limit"),
        ("HTTP 503", "server"),
        ("ReadTimeout", "timeout"),
        ("the request timed out", "timeout"),
        ("connect failed", "connection"),
        ("401 no such key", "auth"),
        ("HTTP 422", "request"),
        ("something odd", "_OTHER"),
    ],
)
def test_failures_are_of_few_kinds(text, kind):
    assert error_kind(text) == kind
