"""No connection leaves this machine: what vcrpy does not patch is stopped at the socket."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from typing import Any
from unittest import mock

from steproute.errors import SteprouteError


class NetworkBlocked(SteprouteError, OSError):
    """A program tried to reach another host during a replay."""


@contextlib.contextmanager
def network_blocked() -> Iterator[None]:
    """Refuse name look-ups and connections to anything but this machine.

    Loopback and UNIX sockets stay open, for event loops, databases and local servers.

    Raises:
        NetworkBlocked: inside the block, from the call that tried.
    """
    connect, connect_ex, look_up = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        _refuse(self.family, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        _refuse(self.family, address)
        return connect_ex(self, address)

    def guarded_look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host and not _is_here(host):
            raise NetworkBlocked(f"the network is blocked during a replay; the program looked up {_text(host)!r}")
        return look_up(host, *args, **kwargs)

    with (
        mock.patch.object(socket.socket, "connect", guarded_connect),
        mock.patch.object(socket.socket, "connect_ex", guarded_connect_ex),
        mock.patch.object(socket, "getaddrinfo", guarded_look_up),
    ):
        yield


def _refuse(family: int, address: Any) -> None:
    if family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple) and not _is_here(address[0]):
        raise NetworkBlocked(f"the network is blocked during a replay; the program connected to {_text(address[0])!r}")


def _is_here(host: Any) -> bool:
    name = _text(host).partition("%")[0]
    if name in ("", "localhost", "localhost.localdomain", socket.gethostname()) or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _text(host: Any) -> str:
    return host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
