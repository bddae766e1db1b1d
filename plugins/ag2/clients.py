"""Clients of ag2 ≥ 1.0 configs, kept per running event loop and closed with it.

AG2 makes a client per turn, and with it a connection pool and a TLS context: some 50 ms each.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from ag2.config import LLMClient, ModelConfig

logger = logging.getLogger("steproute")


KEPT = 32
"""Clients kept per loop; the one unused for longest goes first."""


@dataclass
class _Kept:
    """A client, with the config it was made from as it was then."""

    config: ModelConfig
    client: LLMClient


@dataclass
class _Loop:
    """What belongs to one event loop."""

    clients: list[_Kept] = field(default_factory=list)
    ending: AsyncIterator[None] | None = None


class Clients:
    """Gives equal configs one client per event loop."""

    def __init__(self) -> None:
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}

    async def get(self, config: ModelConfig) -> LLMClient:
        """The client of a config for the running loop.

        A config whose client remembers its conversation (a test double with a script, a provider that chains calls)
        gets a new one every time, as AG2 gives it one per turn.
        """
        if not _stateless(config):
            return config.create()
        kept = (await self._here()).clients
        for position, item in enumerate(kept):
            if type(item.config) is type(config) and item.config == config:
                kept.append(kept.pop(position))
                return item.client
        kept.append(_Kept(config.copy(), config.create()))
        del kept[:-KEPT]  # not closed: a call may still be using it
        return kept[-1].client

    async def _here(self) -> _Loop:
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            self._loops = {other: kept for other, kept in self._loops.items() if not other.is_closed()}
            here = self._loops[loop] = _Loop()
            # Loops announce their end to nothing but the asynchronous generators that run in them.
            here.ending = self._at_end(loop)
            await anext(here.ending)
        return here

    async def _at_end(self, loop: asyncio.AbstractEventLoop) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for item in self._loops.pop(loop, _Loop()).clients:
                await _close(item)

    async def close(self) -> None:
        """Close the clients of the running loop."""
        here = self._loops.get(asyncio.get_running_loop())
        if here is not None and here.ending is not None:
            await here.ending.aclose()  # type: ignore[attr-defined]  # every generator has it


def _stateless(config: ModelConfig) -> bool:
    chained = getattr(config, "prompt_cache_diagnostics", False) or getattr(config, "cache_diagnostics", False)
    return type(config).__module__.startswith("ag2.config.") and not chained


async def _close(kept: _Kept) -> None:
    """Close the provider's client inside one of AG2's, if there is one and the host did not bring it."""
    inner: Any = getattr(kept.client, "_client", None)
    close = getattr(inner, "close", None) or getattr(inner, "aclose", None)
    brought = any(getattr(kept.config, name, None) is not None for name in ("http_client", "async_client", "session"))
    if close is None or brought:
        return
    try:
        result = close()
        if inspect.isawaitable(result):
            await result
    except Exception as error:  # noqa: BLE001  nothing depends on it any more
        logger.warning("steproute: closing a client failed (%s)", type(error).__name__)
