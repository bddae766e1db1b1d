"""One LLM call of a graph, from the model on: observe what came of it, and on to the next model when it failed."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from steproute.decision import Decision
from steproute.errors import BudgetExceeded, NoEligibleModel
from steproute.forecast import price_outcome
from steproute.ledger import Outcome, ToolCall
from steproute.models import Model
from steproute.plugins.langgraph.deciding import Deciding, Turn
from steproute.plugins.langgraph.prompt import shown
from steproute.plugins.langgraph.records import KEY, Record, new_record
from steproute.plugins.langgraph.usage import describe, outcome_of, reported_model

logger = logging.getLogger("steproute")

_LOOKED_BACK = 16
"""Records that may still wait to be marked as learnt."""
_NOTHING = new_record("")


@dataclass
class Call(Deciding):
    """A call the host makes. The caller loops: `turn`, call that model, then `answered`, or `failed` and again."""

    def answered(self, turn: Turn, message: BaseMessage | None, model: str | None = None) -> None:
        """Tell the router what the model returned, and stamp the reply.

        Args:
            turn: the attempt.
            message: the reply; None = it returned, but nobody saw what.
            model: pool name of the model that really answered, where the host knows; None = as the reply says.
        """
        if model is None and message is not None:
            model = self.desk.answerer(turn.model, message)
        self.settle(turn, self._outcome(turn, message), message, model or turn.model)
        if message is not None:
            stamp(message, turn.decision, model or turn.model)

    def _outcome(self, turn: Turn, message: BaseMessage | None) -> Outcome:
        if message is not None:
            try:
                return outcome_of(message, self.prompt, turn.seconds)
            except Exception as error:
                if not self.desk.router.faults.swallow(error, "reading a reply"):
                    raise
        return Outcome(prompt_tokens=self.prompt.tokens, tokens_estimated=True, seconds=turn.seconds)

    def settle(self, turn: Turn, outcome: Outcome, message: BaseMessage | None, model: str) -> None:
        """Observe an outcome and write it down."""
        try:
            with self.journal.lock:
                self._settle(turn.decision, outcome, message, model)
        except Exception as error:
            if not self.desk.router.faults.swallow(error, "LangGraph outcome"):
                raise

    def _settle(self, decision: Decision, outcome: Outcome, message: BaseMessage | None, model: str) -> None:
        router, record = self.desk.router, self.journal.records.get(self.key) or _NOTHING
        outcome.model = model
        router.observe(decision, outcome, output=shown(message) if message is not None else "")
        answering = router.pool.resolve(model) or decision.model
        changes = _billed(record, price_outcome(answering, outcome, router.pool.dearest_usd))
        if outcome.error is None:
            changes.update(status="answered", model=model, answers=record["answers"] + 1)
            if message is not None and message.id:
                self.journal.read.add(message.id)
            if not record["answers"]:
                changes.update(self._first_answer(decision, message))
        elif not record["answers"]:
            changes["failed"] = [*record["failed"], model]
        self._record(**changes)

    def failed(self, turn: Turn, error: BaseException, message: BaseMessage | None = None) -> None:
        """Tell the router that the model failed; the next `turn` leaves it out.

        Args:
            turn: the attempt.
            error: what it raised.
            message: a reply that was paid for and is of no use: it does not follow the schema.

        Raises:
            Exception: the same error, when no other model is to be tried.
        """
        if _is_control(error) or not isinstance(error, Exception):
            self.dropped(turn)
            raise error
        outcome = Outcome(seconds=turn.seconds) if message is None else self._outcome(turn, message)
        outcome.error = describe(error)
        self.settle(turn, outcome, None, turn.model)
        self._error = error
        self._failed.append(turn.model)
        logger.warning("steproute: %s failed for role %r (%s)", turn.model, self.role, outcome.error)
        if not self.desk.settings.fallbacks:
            self.journal.gave_up(self.site, self.prompt.digest, self.key)
            raise error

    def dropped(self, turn: Turn) -> None:
        """The host gave the call up: nobody is to blame, but what was sent is likely to be paid."""
        router, decision = self.desk.router, turn.decision
        with router.faults.kept("LangGraph outcome"), self.journal.lock:
            outcome = Outcome(prompt_tokens=self.prompt.tokens, tokens_estimated=True, seconds=turn.seconds)
            spent = price_outcome(decision.model, outcome, router.pool.dearest_usd)
            router.withdraw(decision, spent)
            self._record(**_billed(self.journal.records.get(self.key) or _NOTHING, spent))

    def unused(self, turn: Turn) -> None:
        """The model decided was not called after all: something else gave the reply."""
        self.desk.router.withdraw(turn.decision)

    def credit(self, model: str, message: BaseMessage) -> None:
        """Another model than the one decided gave the reply, by the host's choice.

        Args:
            model: its pool name; empty when it is not in the pool: then it is billed at the dearest known price.
            message: the reply.
        """
        router, task = self.desk.router, self.journal.task
        outcome = outcome_of(message, self.prompt, 0.0)
        try:
            decision = self._ask(self._step_of(self.journal.records[self.key]), model) if model and self.key else None
        except (BudgetExceeded, NoEligibleModel):
            decision = None  # the call is made already: it is paid, whatever the limits say
        if decision is not None:
            turn = Turn(decision, (), time.perf_counter())
            self._record(decision=decision.id, attempt=decision.attempt, reason="chosen by the host")
            self.settle(turn, outcome, message, model)
            stamp(message, decision, model)
            return
        answering = router.pool[model] if model else Model(reported_model(message) or "unknown", price="unknown")
        spent = price_outcome(answering, outcome, router.pool.dearest_usd)
        router.accounts.open(task.id, task.parent, resume=True)
        router.accounts.settle(task.id, None, spent)
        if self.key:
            self._record(**_billed(self.journal.records.get(self.key) or _NOTHING, spent))

    def _first_answer(self, decision: Decision, message: BaseMessage | None) -> dict[str, Any]:
        journal = self.journal
        # the router learns of a step once a later one is answered
        for key in list(islice(reversed(journal.records), _LOOKED_BACK)):
            record = journal.records[key]
            if key != self.key and record["answers"] and not record["learnt"] and key in journal.home:
                journal.update(key, {"learnt": 1})
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        ledger = self.desk.router.ledger(decision.task) if calls else None
        step = next((item for item in reversed(ledger.steps[-32:]) if item.id == decision.id), None) if ledger else None
        if step is None:
            return {}
        for index, call in enumerate(calls):
            mark = hashlib.blake2b(f"{call['name']}\0{call['args']}".encode("utf-8", "replace"), digest_size=8)
            step.tool_calls.append(ToolCall(name=call["name"], fingerprint=mark.hexdigest()))
            if call["id"]:
                journal.tools[call["id"]] = (decision.id, index)
        return {"tools": [call["id"] or "" for call in calls]}


def stamp(message: BaseMessage, decision: Decision, model: str) -> None:
    """Say in a reply's metadata who answered, so that the history tells it in another process too."""
    mark = {
        "task": decision.task,
        "step": decision.step,
        "decision": decision.id,
        "model": model,
        "role": decision.role,
    }
    message.response_metadata = {**message.response_metadata, KEY: mark}


def _billed(record: Record, spent: Mapping[str, float]) -> Record:
    """What changes in a record when one more of its calls is paid."""
    total = dict(record["spent"])
    for name, amount in spent.items():
        total[name] = total.get(name, 0.0) + amount
    return {"spent": total, "billed": record["billed"] + 1}


def _is_control(error: BaseException) -> bool:
    """Whether an exception is LangGraph's way to interrupt or to jump, and no failure."""
    return any(kind.__name__ == "GraphBubbleUp" for kind in type(error).__mro__)
