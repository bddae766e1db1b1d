"""Whatever a file holds, a preflight ends with findings."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steproute.config import RouterSettings
from steproute.preflight import preflight

WORDS = ["", "a", "free", "unknown", "x/y.db", "postgresql://", "mysql://a", "pacer", "fixed:a", "auto", "a: b"]
NAMES = [
    "name",
    "price",
    "usd",
    "limit",
    "hard",
    "target",
    "spans",
    "logs",
    "port",
    "input",
    "output",
    "partial",
    "roles",
]
leaves = st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats() | st.sampled_from(WORDS)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=8,
)
keys = sorted(set(RouterSettings.model_fields) - {"models"})
models = values | st.lists(
    st.fixed_dictionaries({"name": values, "price": values}, optional={"serving": values, "profile": values}),
    max_size=2,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any") / "steproute.yaml"


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rest=st.dictionaries(st.sampled_from(keys), values, max_size=3), pool=st.just([{"name": "a", "price": 1}]) | models
)
def test_it_ends_with_findings(file: Path, rest: dict[str, object], pool: object) -> None:
    file.write_text(yaml.safe_dump({**rest, "models": pool}), encoding="utf-8")
    found = preflight(file, approval=file.with_name("no-approval.yaml"))
    assert found
    assert all(item.message and item.subject for item in found)


def test_a_name_that_is_a_list(file: Path) -> None:
    file.write_text("models: [{name: [], price: free}]", encoding="utf-8")
    (finding,) = preflight(file)
    assert (finding.code, finding.subject) == ("config.invalid", "Model: name")
