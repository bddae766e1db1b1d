"""Events of version 3, which the host reads from the model chosen by itself."""

from __future__ import annotations

import contextlib
from typing import Any

from langchain_core.runnables.config import ensure_config, merge_configs

from steproute.plugins.langgraph.calls import Call
from steproute.plugins.langgraph.deciding import Turn
from steproute.plugins.langgraph.heard import Ears
from steproute.plugins.langgraph.loops import Target, reply


def stream_events(call: Call, target: Target) -> Any:
    """Events of one call. No other model is tried: the host is reading already."""
    call.desk.load(call.site, call.journal)
    turn = call.turn()
    options = merge_configs(ensure_config(target.config), {"callbacks": [Settling(call, turn)]})
    return target.make(turn.model).stream_events(list(turn.messages), options, version="v3", **target.kwargs)


async def astream_events(call: Call, target: Target) -> Any:
    """`stream_events` for asynchronous hosts."""
    await call.desk.aload(call.site, call.journal)
    turn = call.turn()
    options = merge_configs(ensure_config(target.config), {"callbacks": [Settling(call, turn)]})
    return await target.make(turn.model).astream_events(list(turn.messages), options, version="v3", **target.kwargs)


class Settling(Ears):
    """Settles a call whose events the host reads by itself, once the model has finished or failed."""

    def __init__(self, call: Call, turn: Turn):
        super().__init__()
        self._call, self._turn = call, turn

    def on_llm_end(self, response: Any, *, run_id: Any, **more: Any) -> None:
        """A call returned."""
        super().on_llm_end(response, run_id=run_id, **more)
        self._call.answered(self._turn, reply(self))
        self._call.desk.save(self._call.site, self._call.journal)

    def on_llm_error(self, error: BaseException, *, run_id: Any, **more: Any) -> None:
        """A call failed."""
        super().on_llm_error(error, run_id=run_id, **more)
        with contextlib.suppress(type(error)):  # raised again where nobody else is to be tried; the host has it already
            self._call.failed(self._turn, error)
        self._call.desk.save(self._call.site, self._call.journal)
