"""Between the router's ledger and a task's journal: steps written down, tool results and subtasks read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import islice
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from steproute.ledger import Ledger, Outcome, Step, Subtask, ToolCall
from steproute.plugins.langgraph.journal import Journal
from steproute.plugins.langgraph.prompt import shown
from steproute.plugins.langgraph.records import Record
from steproute.router import Router

_LOOKED_BACK = 4
"""Steps whose evidence may still change after later steps have begun."""
_OUTPUT_KEPT = 200
_UNTOLD = vars(Outcome(call_id=""))
"""What an outcome says that says nothing."""


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
        records = journal.records
        keys = [key for key in journal.unstored if records[key]["ledger"] is None]
        keys += islice(reversed(records), 2 * _LOOKED_BACK)
        wanted = {
            record["decision"]: key for key in keys if (record := records[key])["answers"] and key in journal.home
        }
        for step in reversed(ledger.steps):
            key = wanted.pop(step.id, None)
            if key is not None and (mark := _mark(step)) != records[key].get("mark"):
                journal.update(key, {"ledger": dumped(step), "mark": mark, "g_after": step.g})
            if not wanted:
                break


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
    """A step as plain JSON, as `model_dump` would give it at four times the price.

    Of a long output the beginning and a hash are kept: the messages hold the rest.
    """
    output = step.output
    if len(output) > _OUTPUT_KEPT:
        mark = hashlib.blake2b(output.encode("utf-8", "replace"), digest_size=8).hexdigest()
        output = f"{output[:_OUTPUT_KEPT]}… #{mark}"
    told: Record = {"id": step.id, "role": step.role, "model": step.model, "output": output}
    told["outcome"] = {name: value for name, value in vars(step.outcome).items() if value != _UNTOLD[name]}
    if step.outcome.amounts:
        told["outcome"]["amounts"] = dict(step.outcome.amounts)
    if step.outcome.evidence:
        told["outcome"]["evidence"] = [item.model_dump(exclude_defaults=True) for item in step.outcome.evidence]
    if step.tool_calls:
        told["tool_calls"] = [call.model_dump(exclude_defaults=True) for call in step.tool_calls]
    if step.g is not None:
        told["g"] = step.g
    return told


def _mark(step: Step) -> list[Any]:
    """What may still change of a step that was answered."""
    tools = "".join(["?" if call.ok is None else "01"[call.ok] for call in step.tool_calls]) if step.tool_calls else ""
    return [len(step.outcome.evidence), step.g, tools]
