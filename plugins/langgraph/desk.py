"""Opens the journal of a call's task, and keeps router, records and checkpoints in step."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from steproute.errors import ConfigError, unknown_name
from steproute.ledger import Ledger, Step, Task
from steproute.models import Model
from steproute.plugins.langgraph import persist
from steproute.plugins.langgraph.journal import Journal, within
from steproute.plugins.langgraph.journals import journals_of
from steproute.plugins.langgraph.ledgers import ledger_of, refresh
from steproute.plugins.langgraph.prompt import CountTokens, Prompt, shown
from steproute.plugins.langgraph.reasoning import author
from steproute.plugins.langgraph.records import Record
from steproute.plugins.langgraph.site import Site
from steproute.plugins.langgraph.usage import known_names, reported_model, same_model
from steproute.router import Router

TaskSetting = str | Task | Ledger | Callable[[RunnableConfig], "str | Task"] | None

TASK = "steproute_task"
ROLE = "steproute_role"
_GENERIC_NODES = frozenset({"model", "agent", "call_model", "llm", "chatbot"})
_RUNS_KEPT = 128


@dataclass(frozen=True)
class Settings:
    """What a user may set for a node, a model or a middleware."""

    role: str | None = None
    task: TaskSetting = None
    domain: str = "generic"
    fallbacks: bool = True
    durable: bool = True
    count_tokens: CountTokens | None = None


class Desk:
    """One router with the chat models of its pool, as one node, model or middleware uses it."""

    def __init__(
        self,
        router: Router,
        clients: Mapping[str, Any] | None,
        settings: Settings,
        only: Collection[str] | None = None,
    ):
        """Check the names.

        Args:
            router: the router.
            clients: a chat model per model of the pool; None = others make the calls.
            settings: what the user set.
            only: the models that may be chosen; None = those with a client, or all where there are no clients.

        Raises:
            ConfigError: no models, one the router's pool does not have, or one that is no chat model.
        """
        if not isinstance(router, Router):
            raise ConfigError(f"router: seen {type(router).__name__}; allowed: a steproute.Router")
        if clients is not None and not clients:
            raise ConfigError("models: none given; allowed: a chat model for each model of the router's pool")
        for name, client in (clients or {}).items():
            if name not in router.pool:
                raise ConfigError(unknown_name("models", name, router.pool.names))
            if not callable(getattr(client, "invoke", None)):
                raise ConfigError(f"models[{name!r}]: seen {client!r}; allowed: a LangChain chat model")
        self.router, self.settings = router, settings
        self.clients = dict(clients or {})
        self._only = only if only is not None else clients
        self.journals = journals_of(router)
        self.caches = any(_saves_by_cache(model) for model in router.pool)
        """Whether it matters to any model's cost which prompts it has read before."""
        self._names = {name: known_names(client) for name, client in self.clients.items()}
        self._with_fallbacks = {name for name, client in self.clients.items() if getattr(client, "fallbacks", None)}
        self._reported: dict[str, str] = {}
        self._runs: OrderedDict[int, tuple[Any, str]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def absent(self) -> list[str]:
        """Models of the pool that cannot be called here, and so are never chosen. The pool may have grown since."""
        return [] if self._only is None else [name for name in self.router.pool.names if name not in self._only]

    # --- whose call it is -------------------------------------------------------------------------------------

    def role(self, site: Site, config: RunnableConfig) -> str:
        """The worker a call is made for: as set, else the agent's name, else the node's, else the subgraph's."""
        told = (config.get("configurable") or {}).get(ROLE) or self.settings.role
        if told:
            return str(told)
        if site.node not in _GENERIC_NODES:
            return site.node
        if site.agent:
            return site.agent
        names = [part.partition(":")[0] for part in site.ns.split("|")]
        return next((name for name in reversed(names) if name not in _GENERIC_NODES and not name.isdigit()), site.node)

    def journal(self, site: Site, config: RunnableConfig, prompt: Prompt) -> Journal:
        """The journal of the task a call belongs to.

        The task is the one set; else the thread; else the run of the graph; else the conversation: calls with the same
        system prompt and first human message.
        """
        told: Any = (config.get("configurable") or {}).get(TASK) or self.settings.task
        if callable(told):
            told = told(ensure_config(config))
        if isinstance(told, Ledger):
            return self._open(told.task.id, lambda: told)
        if isinstance(told, Task):
            return self._open(told.id, lambda: told)
        name = str(told or self._task_id(site, prompt))
        return self._open(name, lambda: Task(id=name, goal=prompt.goal, domain=self.settings.domain))

    def _open(self, name: str, opening: Callable[[], Ledger | Task]) -> Journal:
        known = self.journals.get(name)
        if known is None:
            known = self.journals.open(opening())
            if not self.router.ended(name):
                self.router.accounts.open(name, known.task.parent, resume=True)
                known.counted = bool(self.router.accounts.spending(name).spent)
        elif known.home and self.router.ended(name):
            known.begin_anew(opening())
        return known

    def _task_id(self, site: Site, prompt: Prompt) -> str:
        if site.thread is not None:
            return site.thread
        if site.in_graph:
            return self._run_id(site)
        system = next((shown(message) for message in prompt.messages if isinstance(message, SystemMessage)), "")
        mark = hashlib.blake2b(f"{system}\0{prompt.goal}".encode("utf-8", "replace"), digest_size=8)
        return f"chat-{mark.hexdigest()}"

    def _run_id(self, site: Site) -> str:
        """A name for a run without a thread: that of its records, else one that lasts as long as its channels."""
        for record in (site.records or {}).values():
            return str(record["task"])
        channels = getattr(site.read, "args", ())[1:2]
        if not channels or "|" in site.ns:  # in a subgraph only the outer graph's superstep is known
            return f"run-{site.root or 'unknown'}"
        token = channels[0]
        with self._lock:
            known = self._runs.get(id(token))
            if known is None or known[0] is not token:
                known = self._runs[id(token)] = (token, f"run-{site.root or id(token)}")
                while len(self._runs) > _RUNS_KEPT:
                    self._runs.popitem(last=False)
            return known[1]

    def author(self, message: BaseMessage) -> str:
        """Pool name of the model that wrote a reply: as stamped, else by the name its provider reports."""
        return author(message) or self.named(reported_model(message))

    def named(self, reported: str) -> str:
        """Pool name of the chat model a provider calls so; empty when there is none."""
        found = self._reported.get(reported)
        if found is None:
            found = self._reported[reported] = self._find(reported) if reported else ""
        return found

    def answerer(self, chosen: str, reply: BaseMessage) -> str:
        """Pool name of the model that gave a reply; under LangChain's `with_fallbacks` that may be another one."""
        return (self.named(reported_model(reply)) if chosen in self._with_fallbacks else "") or chosen

    def _find(self, reported: str) -> str:
        for exact in (True, False):
            for name, known in self._names.items():
                if any(reported == item if exact else same_model(reported, item) for item in known):
                    return name
        found = self.router.pool.resolve(reported)
        return found.name if found is not None else ""

    # --- what other processes and the state say ------------------------------------------------------------------

    def take_in(self, journal: Journal, records: Mapping[str, Any], refs: Mapping[str, str] | None = None) -> None:
        """Learn of steps that other processes made: their spending counts, their steps stand in the ledger."""
        if not records and not refs:
            return
        with journal.lock:
            news = journal.take_in(records, refs)
            for record, before in news:
                if not record.get("ended"):
                    self._count(journal, record, before)
            steps = [
                Step.model_validate(record["ledger"])
                for record, _ in news
                if record["ledger"] and not record.get("ended")
            ]
            if not steps:
                return
            ledger = ledger_of(self.router, journal)
            known = {step.id for step in ledger.steps}
            ledger.steps.extend(step for step in steps if step.id not in known)

    def _count(self, journal: Journal, record: Record, before: Record | None) -> None:
        """Enter what another process spent for a step into the books."""
        accounts, task = self.router.accounts, journal.task
        for index, call_id in enumerate(record.get("tools") or ()):
            journal.tools.setdefault(call_id, (record["decision"], index))
        if before is None and journal.counted and record["at"] < journal.since:
            return
        paid = before["spent"] if before is not None else {}
        spent = {name: amount - paid.get(name, 0.0) for name, amount in record["spent"].items()}
        if any(amount > 0 for amount in spent.values()):
            accounts.open(task.id, task.parent, resume=not self.router.ended(task.id))
            accounts.settle(task.id, None, spent)

    def load(self, site: Site, journal: Journal) -> None:
        """Read what was saved in the graph's state and checkpoints, where this process has not yet."""
        if site.in_graph:
            if self.saves(site):
                with self.router.faults.kept("reading a LangGraph checkpoint"):
                    persist.load(site, self._reading(site, journal))
            else:
                journal.follow(site)
            self.see(site, journal)

    async def aload(self, site: Site, journal: Journal) -> None:
        """`load` for asynchronous nodes."""
        if site.in_graph:
            if self.saves(site):
                with self.router.faults.kept("reading a LangGraph checkpoint"):
                    await persist.aload(site, self._reading(site, journal))
            else:
                journal.follow(site)
            self.see(site, journal)

    def see(self, site: Site, journal: Journal) -> None:
        """Take in the records of the state a node starts from."""
        if site.records:
            with self.router.faults.kept("reading LangGraph records"):
                self.take_in(journal, journal.unknown(site.records))
                with journal.lock:
                    journal.stored(site.records)

    def saves(self, site: Site) -> bool:
        """Whether records are saved beside checkpoints: the run has some, and the user did not turn it off."""
        return site.checkpointer is not None and self.settings.durable and persist.saves(site)

    def _reading(self, site: Site, journal: Journal) -> persist.Reading:
        return persist.reading(site, journal, lambda records, refs: self.take_in(journal, records, refs))

    # --- what is told to others --------------------------------------------------------------------------------

    def save(self, site: Site, journal: Journal, only: str = "") -> None:
        """Write records beside the checkpoint a node runs from.

        Args:
            site: where the call is made.
            journal: of its task.
            only: key of the one record to write; empty = all that no state holds.
        """
        if self.saves(site):
            with self.router.faults.kept("saving LangGraph records"), journal.lock:
                refresh(self.router, journal)
                payload = persist.payload(site, journal, only)
            with self.router.faults.kept("saving LangGraph records"):
                persist.save(site, payload)

    async def asave(self, site: Site, journal: Journal, only: str = "") -> None:
        """`save` for asynchronous nodes."""
        if self.saves(site):
            with self.router.faults.kept("saving LangGraph records"):
                refresh(self.router, journal)
                await persist.asave(site, persist.payload(site, journal, only))

    def unstored(self, site: Site, journal: Journal) -> list[str]:
        """Keys of records that a state should hold and does not, in this version: made in its graph or inside it."""
        refresh(self.router, journal)
        with journal.lock:
            records, parent, made = journal.records, site.parent, journal.branch.made
            return [
                key
                for key in journal.unstored
                if within(records[key]["ns"], parent) and (not (root := records[key]["root"]) or made(root))
            ]


def _saves_by_cache(model: Model) -> bool:
    priced = model.price != "unknown" and model.price.cached_input is not None
    profile = model.profile
    return priced or profile.prefill_tokens_per_s is not None or profile.prefill_j_per_token is not None
