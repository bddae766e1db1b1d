"""The LiteLLM examples as their users start them, and the blocks of their page, offline."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("litellm")

import yaml
from servers import Reply
from servers.litellm_upstream import LiteLLMUpstream

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "litellm.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
YAML = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", **environment}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=120, check=False, env=given
    )


def test_the_sdk_example_runs_offline() -> None:
    done = run(str(EXAMPLES / "litellm_sdk.py"))
    assert done.returncode == 0, done.stderr
    roles = [line.split()[0] for line in done.stdout.splitlines()[:3]]
    assert roles == ["planner", "coder", "reviewer"]
    assert "in 3 calls" in done.stdout
    assert "role reviewer" in done.stdout


def test_the_proxy_example_runs_offline(tmp_path: Path) -> None:
    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn", "orjson", "apscheduler")):
        pytest.skip("LiteLLM's proxy needs fastapi, uvicorn, orjson and apscheduler")
    from servers.litellm_proxy import LiteLLMProxy

    config = yaml.safe_load((EXAMPLES / "litellm_proxy" / "config.yaml").read_text())
    steproute = yaml.safe_load((EXAMPLES / "litellm_proxy" / "steproute.yaml").read_text())
    assert config["litellm_settings"]["callbacks"] == ["steproute.plugins.litellm.proxy"]
    with LiteLLMUpstream(lambda body: Reply(content=f"{body['model']}: done")) as upstream:
        listed: list[dict[str, Any]] = config["model_list"]
        for item in listed:
            assert item["litellm_params"]["api_base"] == "os.environ/UPSTREAM"
            item["litellm_params"] |= {"api_base": upstream.base_url, "api_key": "none"}
        settings = {"router_settings": config["router_settings"]}
        with LiteLLMProxy(tmp_path, listed, steproute, settings) as proxy:
            client = str(EXAMPLES / "litellm_proxy" / "client.py")
            done = run(client, proxy.url, LITELLM_MASTER_KEY=proxy.key)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["planner", "coder", "reviewer"]
    called = [call.body["model"] for call in upstream.calls]
    assert all(f"'model': '{name}'" in line for name, line in zip(called, lines, strict=True))


def test_the_configuration_on_the_page_is_accepted() -> None:
    from steproute import Router

    proxy, steproute = (yaml.safe_load(text) for text in YAML[:2])
    assert proxy["litellm_settings"]["callbacks"] == ["steproute.plugins.litellm.proxy"]
    assert Router.from_config(steproute).budget.limits()["usd"].limit == 0.05


def test_the_blocks_of_the_page_run() -> None:
    """In order, against a fake upstream; the page's `ask` calls stand in a coroutine."""
    assert len(PYTHON) >= 2
    with LiteLLMUpstream() as upstream:
        deployments = [
            {
                "model_name": "team",
                "litellm_params": {"model": f"openai/{name}", "api_base": upstream.base_url, "api_key": "none"},
                "model_info": {"id": name},
            }
            for name in ("small", "large")
        ]
        code = "".join(PYTHON)
        program = f"deployments = {deployments!r}\nmessages = [{{'role': 'user', 'content': 'hello'}}]\n{code}"
        done = run("-c", program)
    assert done.returncode == 0, done.stderr
    assert len(upstream.calls) == 3
