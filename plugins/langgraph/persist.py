"""Records in the graph's own checkpoints: in its state, and beside a checkpoint while its step is still running.

A node's writes reach the state only when the node ends. What a call cost must outlive an interrupt or a killed process
before that, so it is also saved as pending writes of the checkpoint the step runs from, under a task id of its own
that LangGraph has no task for and therefore leaves alone.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from steproute.plugins.langgraph.journal import Journal
from steproute.plugins.langgraph.records import KEY, Records, merge_records
from steproute.plugins.langgraph.site import Site

CHANNEL = "steproute:journal"


def saves(site: Site) -> bool:
    """Whether the run has checkpoints to save to."""
    return bool(site.checkpointer is not None and site.thread is not None and site.root)


def checkpoints_to_read(site: Site, journal: Journal) -> list[dict[str, Any]]:
    """Configurations of checkpoints whose saved records were not read yet: the newest, and the one this step runs from."""
    if not saves(site):
        return []
    wanted: list[dict[str, Any]] = []
    if not journal.loaded:
        wanted.append(_config(site, None))
    if site.root not in journal.loaded and (not journal.loaded or site.resuming):
        wanted.append(_config(site, site.root))
    journal.loaded.add(site.root)
    return wanted


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
    for _, channel, payload in saved.pending_writes or ():
        if channel == CHANNEL and isinstance(payload, Mapping):
            records = merge_records(records, payload["records"])
            refs.update(payload["refs"])
        elif channel == KEY and isinstance(payload, Mapping):
            records = merge_records(records, payload)
    return records, refs


def save(site: Site, journal: Journal, keys: Iterable[str]) -> None:
    """Save records beside the checkpoint this step runs from."""
    saver = site.checkpointer
    if _belongs_to_running_loop(saver):
        return  # a blocking call in an asynchronous node: its saver can only be awaited
    saver.put_writes(_config(site, site.root), [(CHANNEL, _payload(journal, keys))], str(uuid.uuid4()))


async def asave(site: Site, journal: Journal, keys: Iterable[str]) -> None:
    """`save` for asynchronous nodes."""
    config, writes = _config(site, site.root), [(CHANNEL, _payload(journal, keys))]
    try:
        await site.checkpointer.aput_writes(config, writes, str(uuid.uuid4()))
    except NotImplementedError:  # a synchronous saver under a model that was awaited in a loop of its own
        site.checkpointer.put_writes(config, writes, str(uuid.uuid4()))


def load(site: Site, wanted: Iterable[dict[str, Any]]) -> list[Any]:
    """Fetch checkpoints."""
    if _belongs_to_running_loop(site.checkpointer):
        return []
    return [site.checkpointer.get_tuple(config) for config in wanted]


async def aload(site: Site, wanted: Iterable[dict[str, Any]]) -> list[Any]:
    """`load` for asynchronous nodes."""
    try:
        return [await site.checkpointer.aget_tuple(config) for config in wanted]
    except NotImplementedError:
        return load(site, wanted)


def _config(site: Site, checkpoint: str | None) -> dict[str, Any]:
    place = {"thread_id": site.thread, "checkpoint_ns": ""}
    return {"configurable": place if checkpoint is None else {**place, "checkpoint_id": checkpoint}}


def _payload(journal: Journal, keys: Iterable[str]) -> dict[str, Any]:
    records = {key: journal.records[key] for key in keys}
    return {"records": records, "refs": journal.references(records)}


def _belongs_to_running_loop(saver: Any) -> bool:
    loop = getattr(saver, "loop", None)
    try:
        return loop is not None and asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
