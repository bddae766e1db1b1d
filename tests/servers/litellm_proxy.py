"""A real LiteLLM proxy on loopback, in a process of its own, with steproute as its callback."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from typing_extensions import Self

STARTS_WITHIN_S = 150.0


class LiteLLMProxy:
    """`litellm --config`. Start-up takes 15 to 70 seconds: share one.

    Args:
        folder: where its files go.
        deployments: LiteLLM's `model_list`.
        steproute: content of `steproute.yaml`; None = a proxy without the plugin.
        settings: `litellm_settings` and others, on top of the callback.
    """

    def __init__(
        self,
        folder: Path,
        deployments: Sequence[Mapping[str, Any]],
        steproute: Mapping[str, Any] | None,
        settings: Mapping[str, Any] | None = None,
        callback: str = "steproute.plugins.litellm.proxy",
    ):
        self.key = f"sk-{secrets.token_hex(24)}"
        self.url = f"http://127.0.0.1:{_free_port()}"
        self._log = folder / "proxy.log"
        environment = {
            name: os.environ[name] for name in ("PATH", "PYTHONPATH", "OMP_NUM_THREADS") if name in os.environ
        }
        environment |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(folder)}
        config: dict[str, Any] = {"model_list": list(deployments), "general_settings": {"master_key": self.key}}
        config |= {name: dict(value) for name, value in (settings or {}).items()}
        if steproute is not None:
            (folder / "steproute.yaml").write_text(json.dumps(steproute), encoding="utf-8")  # JSON is YAML too
            environment["STEPROUTE_CONFIG"] = str(folder / "steproute.yaml")
            config.setdefault("litellm_settings", {})["callbacks"] = [callback_beside(folder, callback)]
        (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        command = [str(Path(sys.executable).with_name("litellm")), "--config", str(folder / "config.yaml")]
        command += ["--host", "127.0.0.1", "--port", self.url.rpartition(":")[2]]
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self) -> Self:
        began = time.monotonic()
        while time.monotonic() - began < STARTS_WITHIN_S:
            if self._process.poll() is not None:
                break
            try:
                if httpx.get(f"{self.url}/health/liveliness", timeout=2).status_code == 200:
                    return self
            except httpx.HTTPError:
                pass
            time.sleep(0.25)
        self.__exit__()
        text = self._log.read_text(encoding="utf-8")
        if "Missing dependency" in text:
            pytest.skip(f"LiteLLM's proxy cannot run here: {text[text.index('Missing dependency') :].splitlines()[0]}")
        raise AssertionError(f"the proxy did not start:\n{text[-3000:]}")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)


def callback_beside(folder: Path, callback: str) -> str:
    """How the proxy is told of the callback: LiteLLM of 1.80 finds only modules beside its configuration."""
    from importlib.metadata import version

    major, minor = (int(part) for part in version("litellm").split(".")[:2])
    if (major, minor) >= (1, 81):
        return callback
    module, _, name = callback.rpartition(".")
    (folder / "steproute_proxy.py").write_text(f"from {module} import {name}\n", encoding="utf-8")
    return f"steproute_proxy.{name}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
