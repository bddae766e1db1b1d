"""The loop of a routed call, in its four forms: whole or streamed, blocking or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessageChunk, BaseMessage, BaseMessageChunk, message_chunk_to_message
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs

from steproute.plugins.langgraph.calls import Call, stamp
from steproute.plugins.langgraph.deciding import Turn
from steproute.plugins.langgraph.heard import Ears


@dataclass(slots=True)
class Target:
    """What is to be run on the model that gets chosen."""

    make: Callable[[str], Any]
    """Pool name → the runnable to call."""
    config: RunnableConfig | None
    """As the host gave it; the rest is found by the model itself, as if it had been called without us."""
    kwargs: Mapping[str, Any]
    parsed: bool = False
    """True = the runnable returns something else than the reply, which is then heard through callbacks."""

    ears: Ears | None = None
    """What was heard of the latest attempt."""

    def client(self, turn: Turn) -> Any:
        """The runnable of one attempt."""
        return self.make(turn.model)

    def given(self, turn: Turn) -> tuple[list[BaseMessage], RunnableConfig | None]:
        """Messages and configuration of one attempt. Each attempt is a run of its own in the host's traces."""
        config = self.config
        if config is not None and turn.decision.attempt > 1 and "run_id" in config:
            config = {key: value for key, value in config.items() if key != "run_id"}  # type: ignore[assignment]
        if self.parsed:
            self.ears = Ears()
            config = merge_configs(ensure_config(config), {"callbacks": [self.ears]})
        return list(turn.messages), config

    def attempts(self, call: Call) -> Attempts:
        """The attempts of a call that is not streamed."""
        return attempts(
            call, lambda turn, result: call.answered(turn, self.reply(_message(result))), lambda: reply(self.ears)
        )

    def reply(self, whole: BaseMessage | None) -> BaseMessage | None:
        """The reply of the latest attempt, where the runnable returned `whole`."""
        return reply(self.ears) if self.parsed else whole


Attempts = Generator["Turn | str", Any, Any]
"""Yields a turn: make that call and send its result; or, in a run that saves, a record's key, or "" for all: save it."""


def attempts(
    call: Call, answered: Callable[[Turn, Any], None], wasted: Callable[[], BaseMessage | None] = lambda: None
) -> Attempts:
    """Decide, call, take note; on to the next model when one fails.

    Args:
        call: the routed call.
        answered: takes note of what a call returned.
        wasted: a reply that was paid for although its call failed.

    Returns:
        What the call returned.
    """
    saves = call.desk.saves(call.site)
    while True:
        turn = call.turn()
        if saves:
            yield call.key
        try:
            result = yield turn
        except BaseException as error:  # noqa: BLE001  raised again unless another model is to be tried
            try:
                call.failed(turn, error, wasted())
            finally:
                if saves:
                    yield ""
            continue
        answered(turn, result)
        if saves:
            yield ""
        return result


def drive(call: Call, steps: Attempts, ask: Callable[[Turn], Any]) -> Any:
    """Go through the attempts, blocking."""
    try:
        step = next(steps)
        while True:
            try:
                done = None
                if isinstance(step, Turn):
                    done = ask(step)
                else:
                    call.desk.save(call.site, call.journal, step)
            except BaseException as error:  # noqa: BLE001  the attempts raise it again
                step = steps.throw(error)
            else:
                step = steps.send(done)
    except StopIteration as end:
        return end.value


async def adrive(call: Call, steps: Attempts, ask: Callable[[Turn], Awaitable[Any]]) -> Any:
    """Go through the attempts in an event loop."""
    try:
        step = next(steps)
        while True:
            try:
                done = None
                if isinstance(step, Turn):
                    done = await ask(step)
                else:
                    await call.desk.asave(call.site, call.journal, step)
            except BaseException as error:  # noqa: BLE001  the attempts raise it again
                step = steps.throw(error)
            else:
                step = steps.send(done)
    except StopIteration as end:
        return end.value


def run(call: Call, target: Target) -> Any:
    """Call the model chosen, and the next one when it fails."""
    call.desk.load(call.site, call.journal)
    return drive(
        call, target.attempts(call), lambda turn: target.client(turn).invoke(*target.given(turn), **target.kwargs)
    )


async def arun(call: Call, target: Target) -> Any:
    """`run` for asynchronous hosts."""
    await call.desk.aload(call.site, call.journal)
    return await adrive(
        call, target.attempts(call), lambda turn: target.client(turn).ainvoke(*target.given(turn), **target.kwargs)
    )


def stream(call: Call, target: Target) -> Iterator[Any]:
    """Stream from the model chosen. Once something has come, a failure is the host's: what was shown cannot be unsaid."""
    desk, site, journal = call.desk, call.site, call.journal
    desk.load(site, journal)
    while True:
        turn = call.turn()
        desk.save(site, journal, call.key)
        pieces: list[Any] = []
        try:
            for piece in target.client(turn).stream(*target.given(turn), **target.kwargs):
                yield _noted(piece, pieces, turn)
        except GeneratorExit:
            _abandoned(call, turn, pieces)
            desk.save(site, journal)
            raise
        except BaseException as error:
            try:
                call.failed(turn, error, reply(target.ears))
            finally:
                desk.save(site, journal)
            if pieces:
                raise
            continue
        call.answered(turn, target.reply(_whole(pieces)))
        desk.save(site, journal)
        return


async def astream(call: Call, target: Target) -> AsyncIterator[Any]:
    """`stream` for asynchronous hosts."""
    desk, site, journal = call.desk, call.site, call.journal
    await desk.aload(site, journal)
    while True:
        turn = call.turn()
        await desk.asave(site, journal, call.key)
        pieces: list[Any] = []
        try:
            async for piece in target.client(turn).astream(*target.given(turn), **target.kwargs):
                yield _noted(piece, pieces, turn)
        except GeneratorExit:
            _abandoned(call, turn, pieces)
            desk.save(site, journal)  # nothing may be awaited while a generator is being closed
            raise
        except BaseException as error:
            try:
                call.failed(turn, error, reply(target.ears))
            finally:
                await desk.asave(site, journal)
            if pieces:
                raise
            continue
        call.answered(turn, target.reply(_whole(pieces)))
        await desk.asave(site, journal)
        return


def _noted(piece: Any, pieces: list[Any], turn: Turn) -> Any:
    if not pieces and isinstance(piece, BaseMessage):
        stamp(piece, turn.decision, turn.model)  # on one piece only: pieces are added up by whoever reads them
    pieces.append(piece)
    return piece


def _abandoned(call: Call, turn: Turn, pieces: list[Any]) -> None:
    """The host stopped listening: the provider is paid for what it said so far."""
    whole = _whole(pieces)
    if whole is None:
        call.dropped(turn)
    else:
        call.answered(turn, whole)


def _whole(pieces: list[Any]) -> BaseMessage | None:
    """The reply that the pieces add up to."""
    chunks = [piece for piece in pieces if isinstance(piece, AIMessageChunk)]
    if chunks and len(chunks) == len(pieces):
        return message_chunk_to_message(chunks[0] if len(chunks) == 1 else chunks[0] + chunks[1:])
    last = pieces[-1] if pieces else None
    return message_chunk_to_message(last) if isinstance(last, BaseMessageChunk) else _message(last)


def reply(ears: Ears | None) -> BaseMessage | None:
    """The latest reply heard."""
    heard = ears.replied if ears is not None else None
    return heard.message if heard is not None else None


def _message(result: Any) -> BaseMessage | None:
    return result if isinstance(result, BaseMessage) else None
