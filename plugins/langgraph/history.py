"""What a conversation tells about calls this process did not make: replies by id, never by position."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence

from langchain_core.messages import AIMessage, BaseMessage

from steproute.forecast import price_outcome
from steproute.ledger import Outcome, Step, ToolCall
from steproute.models import Needs
from steproute.plugins.langgraph.calls import Call
from steproute.plugins.langgraph.deciding import Turn
from steproute.plugins.langgraph.desk import Desk
from steproute.plugins.langgraph.journal import Journal
from steproute.plugins.langgraph.ledgers import dumped
from steproute.plugins.langgraph.prompt import Prompt, shown
from steproute.plugins.langgraph.records import KEY, Record, new_record
from steproute.plugins.langgraph.site import Site
from steproute.plugins.langgraph.usage import outcome_of, reported_model


def read_history(desk: Desk, journal: Journal, site: Site, messages: Sequence[BaseMessage], watching: bool) -> None:
    """Take in replies whose calls are not known: those of another process, and those of models that are not routed.

    Args:
        desk: the router's side.
        journal: of the task.
        site: where the reader is.
        messages: the conversation.
        watching: True = a reply without a stamp was made in this task, after the last look: an open decision of a
            router node is what it answers, and it is billed. False = it may be older than the task, and costs nothing.
    """
    with desk.router.faults.kept("reading the message history"), journal.lock:
        known: set[str] | None = None
        for message in messages:
            if not isinstance(message, AIMessage):
                continue
            name = message.id or _fingerprint(message)
            if name in journal.read:
                continue
            journal.read.add(name)
            if known is None:
                known = {record["decision"] for record in journal.records.values()}
            stamp = message.response_metadata.get(KEY)
            if isinstance(stamp, Mapping):
                if stamp.get("task") == journal.task.id and stamp.get("decision") not in known:
                    _found(desk, journal, message, name, stamp, paid=True)
            elif watching and (record := _open(desk, journal, message)) is not None:
                _answer(desk, journal, site, record, message)
            else:
                _found(desk, journal, message, name, {}, paid=watching)


def _open(desk: Desk, journal: Journal, message: AIMessage) -> Record | None:
    """The oldest decision of a node that a reply may be the answer to."""
    made = {decision.id for decision in desk.router.decisions(journal.task.id)}
    candidates = [
        record
        for record in journal.records.values()
        if record["kind"] == "node" and not record["answers"] and record["decision"] in made
    ]
    model = desk.author(message)
    exact = [record for record in candidates if record["model"] == model]
    return min(exact or candidates, key=lambda record: record["at"], default=None)


def _answer(desk: Desk, journal: Journal, site: Site, record: Record, message: AIMessage) -> None:
    decision = next(item for item in desk.router.decisions(journal.task.id) if item.id == record["decision"])
    call = Call(desk, journal, site, _nothing(decision.prompt_tokens), record["role"], kind="node", key=record["key"])
    outcome = outcome_of(message, call.prompt, 0.0)
    call.settle(Turn(decision, (), time.perf_counter()), outcome, message, desk.author(message) or decision.model.name)


def _found(desk: Desk, journal: Journal, message: AIMessage, name: str, stamp: Mapping[str, str], paid: bool) -> None:
    pool = desk.router.pool
    model = str(stamp.get("model") or desk.author(message) or reported_model(message))
    outcome = outcome_of(message, None, 0.0)
    spent = price_outcome(pool[model], outcome, pool.dearest_usd) if paid and model in pool else {}
    calls = [ToolCall(name=call["name"]) for call in message.tool_calls]
    step_id = str(stamp.get("decision") or name)
    step = Step(
        id=step_id,
        role=str(stamp.get("role") or message.name or ""),
        model=model,
        output=shown(message),
        outcome=outcome if paid else Outcome(model=model),
        tool_calls=calls,
    )
    key = f"message:{name}"
    record = new_record(
        key,
        version=1,
        kind="message",
        status="answered",
        role=step.role,
        task=journal.task.id,
        decision=step_id,
        model=model,
        reason="read from the conversation",
        answers=1,
        billed=int(bool(spent)),
        learnt=1,
        spent=spent,
        ledger=dumped(step),
        tools=[call["id"] or "" for call in message.tool_calls],
        at=time.time(),
    )
    desk.take_in(journal, {key: record})
    journal.unstored[key] = None


def _nothing(tokens: int) -> Prompt:
    return Prompt((), tokens, Needs(), "", "", "")


def _fingerprint(message: AIMessage) -> str:
    text = f"{shown(message)}\0{message.tool_calls}"
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()
