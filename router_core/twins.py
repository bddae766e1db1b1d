"""Asynchronous twins of methods that never wait for input or output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def asynchronous(method: Callable[P, R]) -> Callable[P, Awaitable[R]]:
    """The twin of a method for asynchronous hosts: same arguments, same meaning."""

    @wraps(method)
    async def twin(*args: P.args, **kwargs: P.kwargs) -> R:
        return method(*args, **kwargs)

    return twin
