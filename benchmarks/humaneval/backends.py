"""What HumanEval's recordings hold."""

from __future__ import annotations

import json
from pathlib import Path

CASSETTES = Path("cassettes/humaneval")
VERDICTS = "examples.jsonl"
"""File beside the cassettes: what the visible examples said when the recording was made."""


def recorded_python(verdicts: Path) -> str:
    """Python version (`3.11`) the recorded verdicts were made with."""
    with verdicts.open(encoding="utf-8") as lines:
        return str(json.loads(next(lines))["python"])


def recorded_tasks(folder: Path) -> set[str]:
    """Ids of the problems a folder holds: `HumanEval_51.yaml` is `HumanEval/51`."""
    return {path.stem.replace("_", "/", 1) for path in folder.glob("*.yaml")}
