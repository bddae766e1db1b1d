"""One LLM call of a graph: recognise it, decide, hand it to a model, observe, and on to the next model when it failed."""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from steproute.decision import Decision
from steproute.errors import BudgetExceeded, NoEligibleModel
from steproute.forecast import price_outcome
from steproute.ledger import Ledger, Outcome, ToolCall
from steproute.models import Model
from steproute.plugins.langgraph.desk import Desk, dumped
from steproute.plugins.langgraph.journal import Journal
from steproute.plugins.langgraph.prompt import Prompt, shown
from steproute.plugins.langgraph.reasoning import fit_for, holder
from steproute.plugins.langgraph.records import KEY, Record
from steproute.plugins.langgraph.site import Site, site_of
from steproute.plugins.langgraph.usage import describe, outcome_of, reported_model

logger = logging.getLogger("steproute")


@dataclass(frozen=True, slots=True)
class Turn:
    """One attempt: the model to call now."""

    decision: Decision
    messages: Sequence[BaseMessage]
    """As this model may be sent them."""
    started: float

    @property
    def model(self) -> str:
        """Pool name."""
        return self.decision.model.name

    @property
    def seconds(self) -> float:
        """Time since the attempt began."""
        return time.perf_counter() - self.started


@dataclass
class Call:
    """A call the host makes. The caller loops: `turn`, call that model, then `answered`, or `failed` and again."""

    desk: Desk
    journal: Journal
    site: Site
    prompt: Prompt
    role: str
    max_tokens: int | None = None
    kind: str = "call"
    key: str = ""
    """Key of the call's record, once it is recognised."""
    _error: Exception | None = field(default=None, repr=False)
    _failed: list[str] = field(default_factory=list)

    @classmethod
    def prepare(
        cls, desk: Desk, config: RunnableConfig, prompt: Prompt, max_tokens: int | None = None, kind: str = "call"
    ) -> Call:
        """Find out whose call it is."""
        site = site_of(config)
        journal = desk.journal(site, config, prompt)
        return cls(desk, journal, site, prompt, desk.role(site, config), max_tokens, kind)

    # --- before ---------------------------------------------------------------------------------------------------

    def turn(self) -> Turn:
        """The model to call next.

        Raises:
            BudgetExceeded: a hard limit leaves no model that fits.
            NoEligibleModel: no model has what the call needs.
            Exception: the provider's own error, once every model that could serve the call has failed.
        """
        with self.journal.lock:
            if not self.key:
                self.key = self._recognised()
            decision = self._decide()
            with self.desk.router.faults.kept("LangGraph record"):
                self._record(
                    status="decided",
                    step=decision.step.partition("~")[0],
                    decision=decision.id,
                    model=decision.model.name,
                    attempt=decision.attempt,
                    reason=decision.reason,
                    propensity=decision.propensity,
                    explored=decision.explored,
                    g=decision.progress.g,
                    scores={item.model: item.score for item in decision.candidates},
                )
                self.journal.home.add(self.key)
        messages = self.prompt.messages
        with self.desk.router.faults.kept("fitting messages to a model"):
            messages = fit_for(messages, decision.model.name, self.desk.author)
        return Turn(decision, messages, time.perf_counter())

    def _recognised(self) -> str:
        with self.desk.router.faults.kept("recognising a LangGraph call"):
            self.desk.read_tools(self.journal, self.prompt.messages)
            return self.journal.place(self.site, self.prompt.digest, self.role, self.kind)
        return f"call/{uuid.uuid4().hex}"

    def _decide(self) -> Decision:
        pin = holder(self.prompt.messages, self.desk.author)
        if pin and pin not in self._failed and pin not in self.desk.absent and pin in self.desk.router.pool:
            try:
                return self._decision(pin)
            except (BudgetExceeded, NoEligibleModel):
                pass  # another model goes on without the reasoning, which is better than to end here
        try:
            return self._decision(None)
        except NoEligibleModel:
            if self._error is not None:
                self.journal.gave_up(self.site, self.prompt.digest, self.key)
                self._record(round=self._known("round", 0) + 1, failed=[])
                raise self._error from None
            if not self._known("failed", ()):
                raise
            self._record(round=self._known("round", 0) + 1, failed=[])  # all failed in an earlier execution: once more
            return self._decision(None)
        except BudgetExceeded as refusal:
            raise refusal from self._error

    def _decision(self, pin: str | None) -> Decision:
        record = self.journal.records.get(self.key)
        if record is None or not record["step"]:
            return self._ask(self._new_step(), pin)
        if self.key not in self.journal.home:
            return self._recall(record, pin)
        decision = self._ask(self._step_of(record), pin, role=record["role"] or self.role)
        if decision.model.lacks(decision.role, self.prompt.needs) or decision.model.name in self.desk.absent:
            decision = self._ask(self._step_of(record), None, [decision.model.name])  # decided before the needs were known
        if record["answers"] and record["decision"] == decision.id:
            self._reserve_again(decision)
        return decision

    def _recall(self, record: Record, pin: str | None) -> Decision:
        """Decide as another process did. What it learnt is not learnt again."""
        if record["failed"]:
            return self._ask(self._step_of(record), pin, record["failed"])
        try:
            decision = self._ask(self._step_of(record), record["model"], role=record["role"] or self.role)
        except NoEligibleModel:
            return self._ask(self._step_of(record), pin)
        decision.id, decision.reason = record["decision"], record["reason"]
        decision.propensity, decision.explored = record["propensity"], bool(record.get("explored"))
        if record["answers"] and record["learnt"]:
            self.desk.router.recall(decision)
        return decision

    def _ask(
        self, step: str, pin: str | None, exclude: Sequence[str] = (), role: str | None = None
    ) -> Decision:
        opening, prompt = self.journal.opening, self.prompt
        decision = self.desk.router.decide(
            opening,
            self.role if role is None else role,
            step=step,
            prompt_tokens=prompt.tokens,
            max_tokens=self.max_tokens,
            needs=prompt.needs,
            text=prompt.text,
            pin=pin,
            exclude=[*self.desk.absent, *exclude],
        )
        if isinstance(opening, Ledger):
            self.journal.opening = opening.task  # the router has it now
        return decision

    def _new_step(self) -> str:
        ledger = self.desk.router.ledger(self.journal.task.id)
        if ledger is None and isinstance(self.journal.opening, Ledger):
            ledger = self.journal.opening
        return self.journal.next_step(len(ledger.steps) if ledger is not None else 0)

    def _step_of(self, record: Record) -> str:
        return str(record["step"]) + (f"~{record['round']}" if record["round"] else "")

    def _reserve_again(self, decision: Decision) -> None:
        """A step that was answered is asked again: its second call needs room of its own within the limits."""
        router = self.desk.router
        if decision.reservation is not None and router.accounts.holds(decision.reservation):
            return
        cost, worst = router.forecast.predict(
            decision.model, decision.role, self.prompt.tokens, self.max_tokens, router.pool.dearest_usd
        )
        decision.reservation = router.accounts.reserve(decision.task, cost, worst)

    # --- after ----------------------------------------------------------------------------------------------------

    def answered(self, turn: Turn, message: BaseMessage | None, model: str | None = None) -> None:
        """Tell the router what the model returned, and stamp the reply.

        Args:
            turn: the attempt.
            message: the reply; None = it returned, but nobody saw what.
            model: pool name of the model that really answered, where it is not the one of the turn.
        """
        self.settle(turn, self._outcome(turn, message), message, model or turn.model)
        if message is not None:
            stamp(message, turn.decision, model or turn.model)

    def _outcome(self, turn: Turn, message: BaseMessage | None) -> Outcome:
        if message is not None:
            with self.desk.router.faults.kept("reading a reply"):
                return outcome_of(message, self.prompt, turn.seconds)
        return Outcome(prompt_tokens=self.prompt.tokens, tokens_estimated=True, seconds=turn.seconds)

    def settle(self, turn: Turn, outcome: Outcome, message: BaseMessage | None, model: str) -> None:
        """Observe an outcome and write it down."""
        router, decision = self.desk.router, turn.decision
        with router.faults.kept("LangGraph outcome"), self.journal.lock:
            outcome.model = model
            output = shown(message) if message is not None else ""
            first = not self._known("answers", 0)
            router.observe(decision, outcome, output=output)
            answering = router.pool[model] if model in router.pool else decision.model
            self._bill(price_outcome(answering, outcome, router.pool.dearest_usd))
            if outcome.error is not None:
                if first:
                    self._record(failed=[*self._known("failed", []), model])
                return
            if message is not None and message.id:
                self.journal.read.add(message.id)
            self._record(status="answered", model=model, answers=self._known("answers", 0) + 1)
            if first:
                self._first_answer(decision, message)

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
            router.accounts.settle(decision.task, decision.reservation, spent)
            self._bill(spent)

    def unused(self, turn: Turn) -> None:
        """The model decided was not called after all: something else gave the reply."""
        self.desk.router.accounts.release(turn.decision.reservation)

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
            self._bill(spent)

    def _bill(self, spent: Mapping[str, float]) -> None:
        total = dict(self._known("spent", {}))
        for name, amount in spent.items():
            total[name] = total.get(name, 0.0) + amount
        self._record(spent=total, billed=self._known("billed", 0) + 1)

    def _first_answer(self, decision: Decision, message: BaseMessage | None) -> None:
        journal, router = self.journal, self.desk.router
        for key in reversed(list(journal.records)[-16:]):  # the router learns of a step once a later one is answered
            record = journal.records[key]
            if key != self.key and record["answers"] and not record["learnt"] and key in journal.home:
                journal.update(key, learnt=1)
        ledger = router.ledger(decision.task)
        step = next((item for item in reversed(ledger.steps[-32:]) if item.id == decision.id), None) if ledger else None
        if step is None:
            return
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        for index, call in enumerate(calls):
            mark = hashlib.blake2b(f"{call['name']}\0{call['args']}".encode(), digest_size=8).hexdigest()
            step.tool_calls.append(ToolCall(name=call["name"], fingerprint=mark))
            if call["id"]:
                journal.tools[call["id"]] = (decision.id, index)
        self._record(ledger=dumped(step), tools=[call["id"] or "" for call in calls], g_after=step.g)
        self.desk.refresh(journal)

    # --- records ----------------------------------------------------------------------------------------------------

    def _known(self, name: str, default: Any = None) -> Any:
        record = self.journal.records.get(self.key)
        return default if record is None else record.get(name, default)

    def _record(self, **changes: Any) -> None:
        journal = self.journal
        if self.key not in journal.records:
            changes = {
                "kind": self.kind,
                "role": self.role,
                "task": journal.task.id,
                "ns": self.site.parent,
                "at": time.time(),
                **changes,
            }
        journal.update(self.key, root=self.site.root, **changes)


def stamp(message: BaseMessage, decision: Decision, model: str) -> None:
    """Say in a reply's metadata who answered, so that the history tells it in another process too."""
    mark = {"task": decision.task, "step": decision.step, "decision": decision.id, "model": model, "role": decision.role}
    message.response_metadata = {**message.response_metadata, KEY: mark}


def _is_control(error: BaseException) -> bool:
    """Whether an exception is LangGraph's way to interrupt or to jump, and no failure."""
    return any(kind.__name__ == "GraphBubbleUp" for kind in type(error).__mro__)
