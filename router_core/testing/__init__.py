"""Record a routed program's HTTP once, replay it offline: for the tests of people who use steproute.

Needs the extra `testing` (vcrpy). Nothing is imported until it is used: pytest loads this package in every run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steproute.testing.cassette import Mode, RoutedCassette, routed_cassette
    from steproute.testing.command import CommandResult, record_command, record_program, replay_command, replay_program
    from steproute.testing.exchange import CassetteError
    from steproute.testing.mismatch import CassetteMismatch, explain_mismatch, find_mismatch

__all__ = [
    "CassetteError",
    "CassetteMismatch",
    "CommandResult",
    "Mode",
    "RoutedCassette",
    "explain_mismatch",
    "find_mismatch",
    "record_command",
    "record_program",
    "replay_command",
    "replay_program",
    "routed_cassette",
]

_HOMES = {
    "CassetteError": "exchange",
    "CassetteMismatch": "mismatch",
    "CommandResult": "command",
    "Mode": "cassette",
    "RoutedCassette": "cassette",
    "explain_mismatch": "mismatch",
    "find_mismatch": "mismatch",
    "record_command": "command",
    "record_program": "command",
    "replay_command": "command",
    "replay_program": "command",
    "routed_cassette": "cassette",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
