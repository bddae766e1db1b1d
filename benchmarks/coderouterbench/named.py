"""The policies a replay is asked for: names, `fixed:*`, and files with settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steproute.benchmarks.coderouterbench.table import OutcomeTable
from steproute.errors import ConfigError
from steproute.policies import make_policy
from steproute.policies.registry import policy_class

NO_PROMPTS = "n/a (no prompts)"
ENDINGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Named:
    """One policy of the run."""

    label: str
    spec: str | Mapping[str, Any]
    note: str = ""
    """What the table lacks for it: all of it (`NO_PROMPTS`), or one part of it."""


def named_policies(text: str, table: OutcomeTable) -> list[Named]:
    """Read `pacer,fixed:*,my.yaml`. Every policy is built once, so that a wrong name or setting shows before anything runs.

    Args:
        text: names, comma-separated; `fixed:*` stands for one per model, a file for a mapping with `name` and settings.
        table: it says which models there are, and whether there are prompts.

    Raises:
        ConfigError: nothing named, an unknown name, a wrong setting, an unreadable file.
    """
    found: dict[str, Named] = {}
    for item in (part.strip() for part in text.split(",")):
        if item == "fixed:*":
            found |= {
                f"fixed:{model}": Named(f"fixed:{model}", {"name": "fixed", "model": model}) for model in table.models
            }
        elif item.endswith(ENDINGS):
            found[Path(item).stem] = _checked(Path(item).stem, _read(Path(item)), table)
        elif item:
            found[item] = _checked(item, item, table)
    if not found:
        raise ConfigError(f"policy: seen {text!r}; needed: one name or more, comma-separated (`steproute policies`)")
    return list(found.values())


def _checked(label: str, spec: str | Mapping[str, Any], table: OutcomeTable) -> Named:
    kind = policy_class(spec)
    if not table.prompts and getattr(kind, "needs_text", False):
        return Named(label, spec, NO_PROMPTS)
    policy = make_policy(spec)
    if hasattr(policy, "check"):
        policy.check(table.models)
    part = getattr(kind, "text_part", "")
    return Named(label, spec, f"{part}: {NO_PROMPTS}" if part and not table.prompts else "")


def _read(file: Path) -> dict[str, Any]:
    import yaml

    from steproute.handwritten import read_yaml

    try:
        data = read_yaml(file)
    except OSError as error:
        raise ConfigError(f"policy: {file}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"policy: {file}: is no YAML or JSON ({getattr(error, 'problem', None) or type(error).__name__})"
        ) from None
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise ConfigError(f"policy: {file}: needed: a mapping with `name` and the policy's settings")
    return {str(key): value for key, value in data.items()}
