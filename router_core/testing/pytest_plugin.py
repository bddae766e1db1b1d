"""The pytest fixture `routed_cassette`. Loaded in every pytest run, so it imports pytest and nothing else."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from steproute.testing.cassette import Mode, RoutedCassette

_MODES = ("replay", "record", "new", "once")
_OPEN = pytest.StashKey["list[RoutedCassette]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--steproute-record` and `--steproute-mode`."""
    group = parser.getgroup("steproute")
    group.addoption(
        "--steproute-record",
        dest="steproute_mode",
        action="store_const",
        const="record",
        help="routed_cassette: ask the real model servers and record; the same as --steproute-mode=record",
    )
    group.addoption(
        "--steproute-mode",
        dest="steproute_mode",
        choices=_MODES,
        help="routed_cassette: how to use every cassette, whatever the tests say (else: replay, the network off)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "routed_cassette(*paths, mode='replay', **options): the test's HTTP to model servers comes from these "
        "cassettes, as with the fixture `routed_cassette`; paths are relative to the test's folder",
    )


class CassetteFixture:
    """What the fixture `routed_cassette` gives: the cassette that is open for this test, and a way to open others.

    Calling it opens further cassettes for a `with` block: `with routed_cassette("a.yaml", "b.yaml"): …`.
    """

    def __init__(self, folder: Path, forced: Mode | None, opened: list[RoutedCassette]):
        self._folder = folder
        self._forced: Mode | None = forced
        self._opened = opened

    @property
    def cassette(self) -> RoutedCassette:
        """The innermost cassette that is or was open."""
        return self._opened[-1]

    @property
    def played(self) -> int:
        """How many requests of this test were answered from recordings."""
        return sum(cassette.played for cassette in self._opened)

    @contextlib.contextmanager
    def __call__(self, *paths: str | Path, mode: Mode = "replay", **options: Any) -> Iterator[RoutedCassette]:
        """Open cassettes.

        Args:
            paths: relative to the test's folder.
            mode: see `steproute.testing.Mode`; the command line overrides it.
            options: further arguments of `steproute.testing.routed_cassette`.
        """
        from steproute.testing.cassette import routed_cassette as opener

        files = [self._folder / path for path in paths]
        # Each mismatch is reported at the end of the test, with the test's own failure.
        with opener(files, self._forced or mode, strict=False, **options) as cassette:
            self._opened.append(cassette)
            yield cassette


@pytest.fixture
def routed_cassette(request: pytest.FixtureRequest) -> Iterator[CassetteFixture]:
    """Replay this test's HTTP to model servers from cassettes; record it with `--steproute-record`.

    Without the marker `routed_cassette(...)` the file is `cassettes/<module>/<test>.yaml` beside the test. A request
    that was never recorded fails the test with a readable difference, also when the program swallowed the error.
    """
    marker = request.node.get_closest_marker("routed_cassette")
    options = dict(marker.kwargs) if marker else {}
    forced: Any = request.config.getoption("steproute_mode") or os.environ.get("STEPROUTE_MODE") or None
    name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    paths = marker.args if marker and marker.args else (Path("cassettes", request.path.stem, f"{name}.yaml"),)
    opened: list[RoutedCassette] = []
    request.node.stash[_OPEN] = opened
    fixture = CassetteFixture(request.path.parent, forced, opened)
    with fixture(*paths, **options):
        yield fixture


@pytest.fixture(autouse=True)
def _marked_cassette(request: pytest.FixtureRequest) -> None:
    """The marker alone opens the cassette: a marked test that names no fixture must not reach the network."""
    if request.node.get_closest_marker("routed_cassette") is not None:
        request.getfixturevalue("routed_cassette")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show a test's mismatches in its report, and fail the test when its program swallowed them."""
    report = yield
    if call.when != "call":
        return report
    text = "\n\n".join(cassette.report for cassette in item.stash.get(_OPEN, []) if cassette.report)
    if not text:
        return report
    if report.passed:
        report.outcome = "failed"
        report.longrepr = f"the program asked for what its cassette does not hold, and went on:\n{text}"
    else:
        report.sections.append(("steproute cassette", text))
    return report
