"""One LLM call of a graph, up to the model: recognise it, and decide as before or anew."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from typing_extensions import Self

from steproute.decision import Decision
from steproute.errors import BudgetExceeded, NoEligibleModel
from steproute.ledger import Ledger
from steproute.plugins.langgraph.desk import Desk
from steproute.plugins.langgraph.journal import Journal
from steproute.plugins.langgraph.ledgers import read_tools
from steproute.plugins.langgraph.prompt import Prompt, served
from steproute.plugins.langgraph.reasoning import fit_for, holder
from steproute.plugins.langgraph.records import Record
from steproute.plugins.langgraph.site import Site, site_of


@dataclass(slots=True)
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
class Deciding:
    """A call the host makes, before a model answers."""

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
    _served: dict[str, int] = field(default_factory=dict)

    @classmethod
    def prepare(
        cls,
        desk: Desk,
        config: RunnableConfig,
        prompt: Prompt,
        max_tokens: int | None = None,
        site: Site | None = None,
    ) -> Self:
        """Find out whose call it is.

        Args:
            desk: the router's side.
            config: of the call.
            prompt: what is asked.
            max_tokens: limit of the completion.
            site: where it is asked; None = as the configuration says.
        """
        site = site_of(config) if site is None else site
        journal = desk.journal(site, config, prompt)
        return cls(desk, journal, site, prompt, desk.role(site, config), max_tokens)

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
            try:
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
            except Exception as error:
                if not self.desk.router.faults.swallow(error, "LangGraph record"):
                    raise
        messages = self.prompt.messages
        if self.prompt.may_reason:
            with self.desk.router.faults.kept("fitting messages to a model"):
                messages = fit_for(messages, decision.model.name, self.desk.author)
        return Turn(decision, messages, time.perf_counter())

    def _recognised(self) -> str:
        desk = self.desk
        try:
            read_tools(desk.router, self.journal, self.prompt.messages)
            if desk.caches:
                self._served = served(self.prompt, desk.author)
            if self.kind == "call":
                desk.journals.note_call(self.role)
            return self.journal.place(self.site, self.prompt.digest, self.role, self.kind)
        except Exception as error:
            if not desk.router.faults.swallow(error, "recognising a LangGraph call"):
                raise
        return f"call/{uuid.uuid4().hex}"

    def _decide(self) -> Decision:
        pin = holder(self.prompt.messages, self.desk.author) if self.prompt.may_reason else ""
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
            decision = self._ask(
                self._step_of(record), None, [decision.model.name]
            )  # decided before the needs were known
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

    def _ask(self, step: str, pin: str | None, exclude: Sequence[str] = (), role: str | None = None) -> Decision:
        opening, prompt = self.journal.opening, self.prompt
        decision = self.desk.router.decide(
            opening,
            self.role if role is None else role,
            step=step,
            prompt_tokens=prompt.tokens,
            max_tokens=self.max_tokens,
            cached_tokens=self._served,
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

    # --- records ----------------------------------------------------------------------------------------------------

    def _known(self, name: str, default: Any = None) -> Any:
        record = self.journal.records.get(self.key)
        return default if record is None else record.get(name, default)

    def _record(self, **changes: Any) -> None:
        journal, site = self.journal, self.site
        changes["root"] = site.root
        if self.key not in journal.records:
            changes.update(kind=self.kind, role=self.role, task=journal.task.id, ns=site.parent, at=time.time())
        journal.update(self.key, changes)
