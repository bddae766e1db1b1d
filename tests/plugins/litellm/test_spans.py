"""The span that LiteLLM's proxy hands on by argument is the one around a decision."""

from __future__ import annotations

import importlib
import json

import pytest

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("litellm")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from steproute import Model, Router
from steproute.plugins.litellm import StepRouting
from steproute.telemetry import Telemetry


async def test_a_decision_is_below_the_requests_span():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(metrics=False, tracer_provider=provider)
    router = Router([Model("a", price="free"), Model("b", price="free")], policy="fixed:b", telemetry=telemetry)
    deployments = [
        {"model_name": "team", "litellm_params": {"model": f"openai/{name}"}, "model_info": {"id": name}}
        for name in "ab"
    ]
    for deployment in deployments:
        deployment["model_info"]["steproute"] = deployment["model_info"]["id"]
    request = provider.get_tracer("proxy").start_span("Received Proxy Server Request")
    routing = StepRouting(router)
    messages = [{"role": "user", "content": "hello"}]
    kwargs = {"metadata": {"steproute": {"task": "t1", "role": "coder"}}}
    await routing.async_filter_deployments("team", deployments, messages, kwargs, parent_otel_span=request)
    assert request.is_recording()
    router.finish("t1")
    (span,) = [item for item in exporter.get_finished_spans() if item.name == "decide b"]
    assert span.parent.span_id == request.get_span_context().span_id
    assert span.attributes["gen_ai.conversation.id"] == "t1"
    assert span.attributes["gen_ai.agent.name"] == "coder"


def test_a_proxy_is_told_by_its_yaml(tmp_path, monkeypatch):
    config = tmp_path / "steproute.yaml"
    config.write_text(
        "models: [{name: a, price: free}]\ntelemetry: {spans: false, metrics: false, logs: events.jsonl}\n"
    )
    monkeypatch.setenv("STEPROUTE_CONFIG", str(config))
    routing = importlib.import_module("steproute.plugins.litellm.shared").from_environment()
    routing.router.decide("t1", "coder")
    routing.router.close()
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(line)["task"] == "t1"
