"""`steproute preflight`: its output and its exit code."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steproute.preflight.finding import Finding

SCHEMA = 1
"""Version of the JSON output."""


def exit_code(findings: Sequence[Finding]) -> int:
    """0 = no error, 1 = at least one."""
    return int(any(item.level == "error" for item in findings))


def as_json(path: Path, findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings for machines."""
    levels = Counter(item.level for item in findings)
    return {
        "schema": SCHEMA,
        "config": str(path),
        "ok": levels["error"] == 0,
        "errors": levels["error"],
        "warnings": levels["warning"],
        "findings": [item.as_dict() for item in findings],
    }


def show(path: Path, findings: Sequence[Finding], machine: bool) -> None:
    """Print the findings: a line each, or one JSON object."""
    told = as_json(path, findings)
    if machine:
        sys.stdout.write(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        return
    for item in told["findings"]:
        sys.stdout.write(f"{item['level']:8} {item['code']:22} {item['subject']}: {item['message']}\n")
    sys.stdout.write(f"{told['errors']} errors, {told['warnings']} warnings\n")
