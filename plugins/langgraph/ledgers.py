"""Between the router's ledger and a task's journal: steps written down, tool results and subtasks read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from langchain_core.messages import BaseMessage, ToolMessage

from steproute.ledger import Ledger, Step, Subtask, ToolCall
from steproute.plugins.langgraph.journal import Journal
from steproute.plugins.langgraph.prompt import shown
from steproute.plugins.langgraph.records import Record
from steproute.router import Router

_LOOKED_BACK = 4
"""Steps whose evidence may still change after later steps have begun."""
_OUTPUT_KEPT = 200


def ledger_of(router: Router, journal: Journal) -> Ledger:
    """The ledger of a task. The task is begun, or gone on with where it was, if the router is not at it."""
    task = journal.task.id
    if router.ledger(task) is None:
        router.book(journal.opening, router.pool.default.name, within_limits=False)
        journal.opening = journal.task  # a ledger that was given is the router's now
    return router.ledger(task) or Ledger(task=journal.task)


def refresh(router: Router, journal: Journal) -> None:
    """Bring records up to the router's ledger: new steps, and evidence and tool results that came after the call."""
    ledger = router.ledger(journal.task.id)
    if ledger is None:
        return
    with journal.lock:
        keys = [key for key in journal.unstored if journal.records[key]["ledger"] is None]
        keys += [key for key in list(journal.records)[-2 * _LOOKED_BACK :] if key not in keys]
        wanted = {journal.records[key]["decision"]: key for key in keys if _is_ours(journal, key)}
        for step in reversed(ledger.steps):
            key = wanted.pop(step.id, None)
            if key is not None and _mark(step) != journal.records[key].get("mark"):
                journal.update(key, ledger=dumped(step), mark=_mark(step), g_after=step.g)
            if not wanted:
                break


def _is_ours(journal: Journal, key: str) -> bool:
    return key in journal.home and journal.records[key]["answers"] > 0


def read_tools(router: Router, journal: Journal, messages: Sequence[BaseMessage]) -> None:
    """Note how tool calls ended, from the results at the end of the messages."""
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        with journal.lock:
            found = journal.tools.pop(message.tool_call_id, None)
        if found is not None:
            _tool_ended(router, journal, found, shown(message) if message.status == "error" else "")


def _tool_ended(router: Router, journal: Journal, found: tuple[str, int], error: str) -> None:
    decision, index = found
    ledger = router.ledger(journal.task.id)
    step = next((item for item in reversed(ledger.steps[-32:]) if item.id == decision), None) if ledger else None
    if step is None or index >= len(step.tool_calls):
        return
    call: ToolCall = step.tool_calls[index]
    call.ok, call.error = not error, " ".join(error.split())[:200]
    made = next((item for item in reversed(router.decisions(journal.task.id)) if item.id == decision), None)
    if made is not None:
        router.report(journal.task.id, (), made)


def set_subtasks(router: Router, journal: Journal, subtasks: Sequence[Subtask]) -> None:
    """Put the subtasks a state holds into the ledger."""
    ledger = ledger_of(router, journal)
    if ledger.subtasks != list(subtasks):
        ledger.subtasks = list(subtasks)
        router.report(journal.task.id, ())


def dumped(step: Step) -> Record:
    """A step as plain JSON. Of a long output the beginning and a hash are kept: the messages hold the rest."""
    output = step.output
    if len(output) > _OUTPUT_KEPT:
        mark = hashlib.blake2b(output.encode("utf-8", "replace"), digest_size=8).hexdigest()
        output = f"{output[:_OUTPUT_KEPT]}… #{mark}"
    return {**step.model_dump(mode="json", exclude_defaults=True), "output": output}


def _mark(step: Step) -> str:
    tools = "".join(["?" if call.ok is None else "01"[call.ok] for call in step.tool_calls])
    return f"{len(step.outcome.evidence)}/{step.g}/{tools}"
