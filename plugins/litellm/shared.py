"""The proxy's one instance: `callbacks: ["steproute.plugins.litellm.proxy"]`, configured by `STEPROUTE_CONFIG`."""

from __future__ import annotations

import os

from steproute.errors import ConfigError
from steproute.plugins.litellm.routing import StepRouting
from steproute.router import Router

VARIABLE = "STEPROUTE_CONFIG"
"""Environment variable that holds the path of `steproute.yaml`."""


def from_environment() -> StepRouting:
    """The router of `steproute.yaml` as a LiteLLM logger.

    Raises:
        ConfigError: the variable is not set, or the file is wrong.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        raise ConfigError(f"{VARIABLE}: not set; allowed: the path of a steproute.yaml with the key `models`")
    return StepRouting(Router.from_config(path))


proxy = from_environment()
