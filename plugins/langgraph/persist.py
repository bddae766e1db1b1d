"""Records in the graph's own checkpoints: in its state, and beside a checkpoint while its step is still running.

A node's writes reach the state only when the node ends. What a call cost must outlive an interrupt or a killed process
before that, so it is also saved as pending writes of the checkpoint the step runs from, under a task id of its own
that LangGraph has no task for and therefore leaves alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steproute.plugins.langgraph.journal import Journal
from steproute.plugins.langgraph.records import KEY, Record, Records, merge_records, new_record
from steproute.plugins.langgraph.site import Site

CHANNEL = "steproute:journal"
EARLIER = "earlier"
"""Key of the sum of records that are no longer saved one by one."""
_KEPT_WHOLE = 32
_LONGEST_WALK = 50


@dataclass(frozen=True, slots=True)
class Ask:
    """A checkpoint, or the newest so many of a thread."""

    config: dict[str, Any]
    newest: int = 0


TakeIn = Callable[[Records, dict[str, str]], None]
Reading = Generator[Ask, Any, None]


def saves(site: Site) -> bool:
    """Whether the run has checkpoints to save to."""
    return bool(site.checkpointer is not None and site.thread is not None and site.root)


def reading(site: Site, journal: Journal, take_in: TakeIn) -> Reading:
    """What is to be read for a call of a run that saves: yields what to ask the checkpointer for, and is sent what it finds.

    The first call of a task in this process reads the newest checkpoint and goes back from it to the latest one with
    records beside it. A resumed step reads those beside its own checkpoint. A run that went back in time looks up where
    it left the old line, and what the lines it left had made.

    Args:
        site: where the call is made.
        journal: of its task.
        take_in: is given the records and references found.
    """
    start: str | None = None
    if journal.is_new_branch(site):
        start = yield from _branching_point(site)
    if not journal.loaded:
        if start is None:
            yield from _newest(site, take_in)
        else:
            for saved in (yield Ask(_config(site, None), newest=_LONGEST_WALK)):
                take_in(*read_saved(saved))
    if site.root not in journal.loaded and (not journal.loaded or site.resuming):
        take_in(*read_saved((yield Ask(_config(site, site.root)))))
    journal.loaded.add(site.root)
    journal.follow(site, start)


def _newest(site: Site, take_in: TakeIn) -> Reading:
    saved = yield Ask(_config(site, None))
    for _ in range(_LONGEST_WALK):
        if saved is None:
            return
        take_in(*read_saved(saved))
        whole = any(channel == CHANNEL and found["whole"] for _, channel, found in saved.pending_writes or ())
        if whole or saved.parent_config is None:
            return
        saved = yield Ask(saved.parent_config)


def _branching_point(site: Site) -> Generator[Ask, Any, str]:
    """The checkpoint where a run that went back leaves the old line: edits of the state made since are no steps."""
    point, saved = site.addressed, (yield Ask(_config(site, site.addressed)))
    while saved is not None and saved.metadata.get("source") in ("update", "fork") and saved.parent_config is not None:
        point = saved.parent_config["configurable"]["checkpoint_id"]
        saved = yield Ask(_config(site, point))
    return point


def read_saved(saved: Any) -> tuple[Records, dict[str, str]]:
    """The records of one checkpoint, and the references of those saved beside it.

    Args:
        saved: what the checkpointer returned, or None.
    """
    if saved is None:
        return {}, {}
    values = saved.checkpoint.get("channel_values") or {}
    records: Records = merge_records(None, values.get(KEY) if isinstance(values.get(KEY), Mapping) else None)
    refs: dict[str, str] = {}
    for _, channel, found in saved.pending_writes or ():
        if channel == CHANNEL and isinstance(found, Mapping):
            records = merge_records(records, found["records"])
            refs.update(found["refs"])
        elif channel == KEY and isinstance(found, Mapping):
            records = merge_records(records, found)
    return records, refs


def payload(site: Site, journal: Journal, only: str = "") -> dict[str, Any]:
    """What is saved beside a checkpoint.

    Every record that no state holds: the latest whole, older ones as one sum, since they may be very many.

    Args:
        site: where the call is made.
        journal: of its task; the caller need not hold its lock.
        only: key of the one record to save instead.
    """
    with journal.lock:
        if only:
            records = {key: journal.records[key] for key in (only,) if key in journal.records}
            return {"records": records, "refs": journal.references(records), "whole": False}
        journal.stored(site.records)
        keys = list(journal.unstored)
        latest, older = keys[-_KEPT_WHOLE:], keys[:-_KEPT_WHOLE]
        records = {key: journal.records[key] for key in latest}
        if older:
            records[EARLIER] = _sum(journal, older)
        return {"records": records, "refs": journal.references(latest), "whole": True}


def _sum(journal: Journal, keys: Sequence[str]) -> Record:
    spent: dict[str, float] = {}
    for key in keys:
        record = journal.records[key]
        for name, amount in () if record.get("ended") else record["spent"].items():
            spent[name] = spent.get(name, 0.0) + amount
    told = {"kind": "message", "status": "answered", "answers": len(keys), "learnt": 1, "spent": spent}
    return new_record(EARLIER, **told, task=journal.task.id, version=len(keys))


def save(site: Site, what: dict[str, Any]) -> None:
    """Save beside the checkpoint this step runs from."""
    saver = site.checkpointer
    if not _belongs_to_running_loop(saver):  # else a blocking call in an asynchronous node: it can only be awaited
        saver.put_writes(_config(site, site.root), [(CHANNEL, what)], str(uuid.uuid4()))


async def asave(site: Site, what: dict[str, Any]) -> None:
    """`save` for asynchronous nodes."""
    config, writes = _config(site, site.root), [(CHANNEL, what)]
    try:
        await site.checkpointer.aput_writes(config, writes, str(uuid.uuid4()))
    except NotImplementedError:  # a synchronous saver under a model that was awaited in a loop of its own
        site.checkpointer.put_writes(config, writes, str(uuid.uuid4()))


def load(site: Site, wanted: Reading) -> None:
    """Read."""
    blocked = _belongs_to_running_loop(site.checkpointer)
    with contextlib.suppress(StopIteration):
        ask = next(wanted)
        while True:
            if blocked:
                found: Any = () if ask.newest else None
            elif ask.newest:
                found = list(site.checkpointer.list(ask.config, limit=ask.newest))
            else:
                found = site.checkpointer.get_tuple(ask.config)
            ask = wanted.send(found)


async def aload(site: Site, wanted: Reading) -> None:
    """`load` for asynchronous nodes."""
    saver = site.checkpointer
    with contextlib.suppress(StopIteration):
        ask = next(wanted)
        while True:
            try:
                if ask.newest:
                    found: Any = [item async for item in saver.alist(ask.config, limit=ask.newest)]
                else:
                    found = await saver.aget_tuple(ask.config)
            except NotImplementedError:  # see `asave`
                found = list(saver.list(ask.config, limit=ask.newest)) if ask.newest else saver.get_tuple(ask.config)
            ask = wanted.send(found)


def _config(site: Site, checkpoint: str | None) -> dict[str, Any]:
    place = {"thread_id": site.thread, "checkpoint_ns": ""}
    return {"configurable": place if checkpoint is None else {**place, "checkpoint_id": checkpoint}}


def _belongs_to_running_loop(saver: Any) -> bool:
    loop = getattr(saver, "loop", None)
    try:
        return loop is not None and asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
