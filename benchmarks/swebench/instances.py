"""Instances of SWE-bench and their repositories."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steproute.errors import ConfigError

NEEDED = ("instance_id", "repo", "base_commit", "problem_statement")
GRADED = ("image", "eval_script", "log_parser", "eval_type", "FAIL_TO_PASS", "PASS_TO_PASS", "version")
"""What swebench 5 asks of an instance before it can grade it."""
INSTALL = 'SWE-bench needs the real packages: pip install "steproute[swebench]"'


def load_instances(source: str, split: str = "test") -> dict[str, dict[str, Any]]:
    """Instances by id, through swebench's own loader.

    Args:
        source: a `.json`, `.jsonl` or `.parquet` file, or the name of a dataset on the Hugging Face hub (needs the network).
        split: of a dataset.

    Raises:
        ConfigError: a local file is missing or unreadable, or an instance lacks a field; names both.
        ImportError: swebench is missing; names the extra.
    """
    local = source.endswith((".json", ".jsonl", ".parquet"))
    if local and not Path(source).is_file():
        raise ConfigError(f"data: no file {source}")
    try:
        from swebench.harness.utils import load_swebench_dataset
    except ImportError as error:
        raise ImportError(f"{INSTALL} ({error})") from error
    try:
        rows = load_swebench_dataset(source, split)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ConfigError(f"data: {source} is no list of instances ({type(error).__name__}: {error})") from None
    for row in rows:
        missing = [name for name in (*NEEDED, *GRADED) if name not in row]
        if missing:
            raise ConfigError(
                f"data: {row.get('instance_id', 'an instance')} lacks {', '.join(missing)}; swebench 5 and newer ship them"
            )
    return {row["instance_id"]: dict(row) for row in rows}


def check_out(instance: Mapping[str, Any], repositories: Path, folder: Path) -> None:
    """Put the repository as it was at the base commit into a new folder: one commit, nothing of what came later.

    Args:
        instance: names `repo` (`owner/name`) and `base_commit`.
        repositories: holds a git clone of each, as `owner__name` or `owner/name`.
        folder: made here.

    Raises:
        ConfigError: there is no such clone, or it lacks the commit.
    """
    names = (instance["repo"].replace("/", "__"), instance["repo"])
    source = next((repositories / name for name in names if (repositories / name).is_dir()), None)
    if source is None:
        raise ConfigError(
            f"repos: {repositories} holds no {names[0]}; clone https://github.com/{instance['repo']} there"
        )
    folder.mkdir(parents=True)
    # a commit that is no tip of a branch may be asked for only where the source allows it
    allow = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "uploadpack.allowAnySHA1InWant", "GIT_CONFIG_VALUE_0": "true"}
    commands = (
        ["git", "init", "--quiet"],
        ["git", "fetch", "--quiet", "--depth", "1", source.resolve().as_uri(), instance["base_commit"]],
        ["git", "checkout", "--quiet", "FETCH_HEAD"],
    )
    for command in commands:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **allow}, capture_output=True, text=True, timeout=600
        )
        if done.returncode:
            raise ConfigError(f"repos: {source}: {' '.join(command[:2])} failed: {done.stderr.strip()[-300:]}")
