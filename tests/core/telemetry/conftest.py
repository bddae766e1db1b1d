from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from steproute import Budget, Limit, Model, Price, Router
from steproute.telemetry import Telemetry


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> SimpleNamespace:
    """A router whose spans, metrics and log lines are caught."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from prometheus_client import CollectorRegistry

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    registry = CollectorRegistry()
    caplog.set_level(logging.INFO, logger="steproute")

    def make(prompts: bool = False, **options: object) -> Router:
        given = {
            "models": [
                Model("small", price=Price(input=1, output=2), deployment="vendor/small-1", quality=0.2),
                Model("large", price=Price(input=10, output=20), deployment="vendor/large-1", quality=0.9),
            ],
            "budget": Budget(usd=Limit(limit=1.0, target=0.01)),
            "policy": "strongest",
            "on_error": "raise",
            "telemetry": Telemetry(logs=True, prompts=prompts, tracer_provider=provider, registry=registry),
        }
        return Router(**{**given, **options})

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    def lines() -> list[dict[str, object]]:
        return [record.steproute for record in caplog.records if record.name == "steproute.events"]

    return SimpleNamespace(
        make=make, spans=exporter.get_finished_spans, tracer=provider.get_tracer("host"), value=value, lines=lines,
        registry=registry, provider=provider, caplog=caplog,
    )  # fmt: skip
