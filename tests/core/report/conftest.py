"""A synthetic run, its page, and a browser to look at it with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from core.report.browser import Browser, find_chromium
from core.report.synthetic import write_run

from steproute.report import write_report


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on this machine (looked for chromium, chromium-browser, google-chrome, chrome)")
    running = Browser(program, tmp_path_factory.mktemp("profile"))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run; do not write into it."""
    return write_run(tmp_path_factory.mktemp("runs") / "humaneval-0")


@pytest.fixture(scope="session")
def page(run_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(run_dir, tmp_path_factory.mktemp("page") / "report.html")
