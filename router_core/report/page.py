"""Writes the report: template, style, script and data in one file that asks nothing of the network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from pathlib import Path

from steproute.report.pack import Packer
from steproute.report.run import Run, read_run

DATA_LIMIT = 850_000
"""Most bytes of data; with the code the page stays below 1 MB."""

STYLES = ("page", "parts")
SCRIPTS = ("base", "plane", "table", "calls", "why", "path", "step", "task", "start")


def write_report(run_dir: Path, out: Path | None = None) -> Path:
    """Write the report of a run.

    Args:
        run_dir: the run's folder.
        out: file to write, replaced if it exists; None = `report.html` in the run's folder.

    Returns:
        Path of the page.

    Raises:
        ConfigError: `run_dir` holds no results.
    """
    target = out or run_dir / "report.html"
    page = render(read_run(run_dir))
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.part")
    partial.write_text(page, encoding="utf-8", errors="replace")
    partial.replace(target)
    return target


def render(run: Run, limit: int = DATA_LIMIT) -> str:
    """The page as one string.

    Args:
        run: what to show.
        limit: most bytes of embedded data; steps of whole tasks, evenly chosen, are left out until it fits.
    """
    packer = Packer(run)
    kept = packer.tasks
    data = _embed(packer.pack(set(kept)))
    while len(data) > limit and len(kept) > 1:
        fit = int(len(kept) * limit / len(data))
        kept = _evenly(packer.tasks, max(1, min(fit, len(kept) - 1)))
        data = _embed(packer.pack(set(kept)))
    folder = files("steproute.report")
    parts = (folder.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    script = "(() => {\n" + "\n".join(parts) + "})();"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    benchmark = str(run.config.get("benchmark") or run.folder.resolve().name)
    slots = {
        "title": html.escape(f"{benchmark} · steproute report"),
        "style": "\n".join(folder.joinpath(f"{name}.css").read_text(encoding="utf-8") for name in STYLES),
        "digest": digest,
        "data": data,
        "script": script,
    }
    template = folder.joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: slots[found[1]], template)


def _embed(value: object) -> str:
    """ASCII JSON that cannot end the script element it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _evenly(items: list[str], count: int) -> list[str]:
    return [items[i * len(items) // count] for i in range(count)]
