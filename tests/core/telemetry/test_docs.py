"""docs/observability.md lists every name there is, and none besides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry

from steproute.telemetry.metrics import Instruments

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def cells(text: str) -> set[str]:
    """What stands in backticks in the first column of the tables."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def source(*names: str) -> str:
    return "\n".join((ROOT / "router_core" / name).read_text(encoding="utf-8") for name in names)


def test_every_metric_with_its_labels():
    registry = CollectorRegistry()
    Instruments(registry)
    there = {(family.name + "_total" if family.type == "counter" else family.name) for family in registry.collect()}
    assert cells(section("Metrics")) == there
    listed = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|", section("Metrics"), re.MULTILINE))
    for name, instrument in vars(Instruments(CollectorRegistry())).items():
        documented = next(text for metric, text in listed.items() if metric.startswith(instrument._name))
        assert tuple(re.findall(r"`(\w+)`", documented)) == instrument._labelnames, name


def test_every_attribute_of_a_span():
    code = source("telemetry/spans.py")
    there = set(re.findall(r'"((?:gen_ai|steproute|error)\.[\w.]+)"', code)) - {"steproute.error"}
    generic = {"steproute.expected.RESOURCE", "steproute.spent.RESOURCE"}
    assert cells(section("Spans")) == there | generic


def test_every_finding_of_a_preflight():
    code = source(*(f"preflight/{name}.py" for name in ("checks", "pool", "database", "servers")))
    there = set(re.findall(r'"((?:config|prices|limits|capabilities|clock|database|approval|servers)\.[a-z_]+)"', code))
    there |= {"capabilities.tools", "capabilities.structured"}
    assert cells(section("Preflight")) == there


def test_every_event_of_the_log():
    said = set(re.findall(r'_say\(\s*"(\w+)"', source("telemetry/events.py")))
    assert cells(section("Log lines")) == said | {"event"}  # the heading
