"""The command `steproute evaluate`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from steproute.config import load_config
from steproute.errors import ConfigError
from steproute.evaluate.study import evaluate
from steproute.models import ModelPool


def show_evaluation(
    store: str, policy: str, config: Path | None, reward: str, explore: float, least_ess: float, as_json: bool
) -> None:
    """Print what a policy would have been worth; see `evaluate`.

    Raises:
        SteprouteError: as `evaluate`, or a file is malformed.
    """
    pool, budget = None, None
    if config is not None:
        options = load_config(config)
        models = options["models"]
        pool = models if isinstance(models, ModelPool) else ModelPool(models)
        budget = options.get("budget")
    found = evaluate(
        store, _policy(policy), pool=pool, budget=budget, reward=reward, explore=explore, least_ess=least_ess
    )
    if config is None:
        typer.echo(
            "models are known by name only; where the policy uses prices, sizes or priors give --config", err=True
        )
    typer.echo(json.dumps(found.as_dict(), indent=1) if as_json else found.text())


def _policy(given: str) -> str | Mapping[str, Any]:
    if not given.endswith((".yaml", ".yml")):
        return given
    import yaml

    from steproute.handwritten import read_yaml

    try:
        found = read_yaml(Path(given))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"policy: {given}: cannot be read ({type(error).__name__})") from None
    if not isinstance(found, Mapping) or "name" not in found:
        raise ConfigError(f"policy: {given}: seen {type(found).__name__}; allowed: a mapping with `name` and settings")
    return {str(key): value for key, value in found.items()}
