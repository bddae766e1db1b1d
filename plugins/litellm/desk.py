"""The router's side of LiteLLM's hooks: who calls, what to ask the router, and what a call has cost. No LiteLLM in here."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steproute.decision import Decision
from steproute.errors import NoEligibleModel
from steproute.ids import new_id
from steproute.ledger import Ledger, Outcome, Task
from steproute.plugins.litellm import replies
from steproute.plugins.litellm.asked import Asked, read
from steproute.plugins.litellm.calls import KEY, Attempt, Call, Pick, Told
from steproute.plugins.litellm.conversations import Conversations, prefixes
from steproute.plugins.litellm.deployments import Deployment, Deployments, admissible, id_of
from steproute.plugins.litellm.identity import (
    METADATA,
    Identity,
    client_of,
    holder_of,
    identify,
    metadata_of,
    previous_of,
)
from steproute.plugins.litellm.memos import Memos
from steproute.router import Router

_KEPT = 10_000


class Desk:
    """What the plugin keeps about one router's calls. Safe between threads."""

    def __init__(self, router: Router, count_tokens: Callable[[Sequence[Any]], int] | None = None):
        self.router = router
        self.deployments = Deployments(router)
        self.conversations = Conversations()
        self.memos = Memos(router)
        self._count_tokens = count_tokens
        self._calls: OrderedDict[str, Call] = OrderedDict()
        self._lock = threading.Lock()

    # --- before the call ------------------------------------------------------------------------------------------

    def pick(
        self, deployments: Sequence[Deployment], messages: Sequence[Any] | None, request: Mapping[str, Any]
    ) -> Pick | None:
        """Recognise a request and the models it may go to; None when there is nothing to choose or nowhere to note it."""
        holder = holder_of(request)
        if holder is None or not deployments:
            return None
        call = self.call_in(holder)
        if call is None:
            call = self._begin(messages, request, metadata_of(request))
            holder[KEY] = {"call": call.token}  # whatever becomes of it, a fallback belongs to the same call
        else:
            call.dispatched(id_of(holder))
        offers = [(item, self.deployments.known(item)) for item in deployments]
        return Pick(call, holder, admissible(offers, call.tags, call.asked.least_tokens))

    def question(self, pick: Pick) -> tuple[tuple[Ledger | Task, str], dict[str, Any]]:
        """Arguments of `Router.decide` for a pick."""
        call, asked = pick.call, pick.call.asked
        offered = {known.model for _, known in pick.offers}
        arguments = {
            "step": call.key,
            "prompt_tokens": asked.prompt_tokens,
            "max_tokens": asked.max_tokens,
            "timeout_s": asked.timeout_s,
            "cached_tokens": call.memo.served if self.router.pool.caching else None,
            "needs": asked.needs,
            "text": asked.text,
            "exclude": tuple(name for name in self.router.pool.names if name not in offered or name in call.failed),
        }
        return (call.identity.ledger or call.identity.task, call.identity.role), arguments

    def booking(self, pick: Pick) -> tuple[tuple[Task, str, str], dict[str, Any]]:
        """Arguments of `Router.book` for a call whose model is not chosen, such as an embedding."""
        call, asked = pick.call, pick.call.asked
        arguments = {"prompt_tokens": asked.prompt_tokens, "max_tokens": asked.max_tokens or 0}
        return (call.identity.task, pick.offers[0][1].model, call.identity.role), arguments

    def goes_on(self, pick: Pick, error: NoEligibleModel) -> None:
        """No model is left because all have failed: ask again from the start. For any other reason the error is right.

        Raises:
            NoEligibleModel: nothing has failed.
        """
        if not pick.call.failed:
            raise error
        pick.call.next_round()

    def answer(self, pick: Pick, decision: Decision) -> list[Deployment]:
        """Note a decision, and leave LiteLLM the deployments of its model."""
        call, left = pick.call, pick.left(decision)
        if not call.attempts or call.attempts[-1].decision.id != decision.id:
            call.spent = float(self.router.spent(decision.task).get("usd", 0.0))
            call.attempts.append(Attempt(decision, {known.id: known.model for _, known in left}))
        pick.holder[KEY] = call.note(decision)
        return [deployment for deployment, _ in left]

    def call_in(self, meta: Mapping[str, Any] | None) -> Call | None:
        """The call that LiteLLM's metadata speaks of."""
        note = meta.get(KEY) if meta and isinstance(meta, (dict, Mapping)) else None
        return self._calls.get(str(note.get("call"))) if note and isinstance(note, (dict, Mapping)) else None

    def _begin(self, messages: Sequence[Any] | None, request: Mapping[str, Any], meta: Mapping[str, Any]) -> Call:
        asked, given = read(messages, request, self._count_tokens)
        identity, turn = self._whose(asked, given, request, meta)
        task = identity.task.id
        memo = self.memos.of(task)
        if memo.tools or identity.evidence:
            with self.router.faults.kept("reading the messages of a LiteLLM call"):
                self.memos.read_tools(memo, given)
                if identity.evidence:
                    self.router.report(task, identity.evidence)
        ledger, tags, token = self.router.ledger(task), meta.get("tags"), new_id()
        call = Call(
            token,
            identity,
            asked,
            identity.step or self.memos.next_step(memo, len(ledger.steps) if ledger is not None else 0, token[:8]),
            memo,
            tuple(str(tag) for tag in tags) if isinstance(tags, (list, tuple)) else (),
            turn,
        )
        with self._lock:
            self._calls[token] = call
            while len(self._calls) > _KEPT:
                self._calls.popitem(last=False)
        return call

    def _whose(
        self, asked: Asked, messages: Sequence[Any], request: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> tuple[Identity, Any]:
        """The call's labels; without a task among them, that of the conversation it goes on with, or a new one."""
        identity = identify(request, meta, self.router.ledger)
        if identity.task.id:
            return identity, None
        client, origin, turn = client_of(meta), "new", None
        task = next(filter(None, map(self.conversations.of_response, previous_of(request))), "")
        if task:
            origin = "response"
        elif asked.chat:
            digests = prefixes(messages)
            task = self.conversations.find(client, messages, digests)
            origin = "conversation" if task else origin
            task = task or new_id()
            turn = self.conversations.note(client, digests[-1], task)
        task = task or new_id()
        return identity._replace(task=identity.task.model_copy(update={"id": task}), origin=origin), turn

    # --- after the call ---------------------------------------------------------------------------------------------

    def success(self, event: Mapping[str, Any], response: Any, start: Any, end: Any) -> Told | None:
        """What to tell the router about a call that returned; None when it is none of ours."""
        call, deployment = self._heard(event)
        attempt = call.attempt_of(deployment) if call is not None else None
        if call is None or attempt is None:
            return self._unrouted(event, response, start, end, call)
        decision = attempt.decision
        attempt.closed = True
        name = attempt.model(deployment)
        unknown = self.deployments.price_unknown(name)
        outcome = replies.outcome_of(
            event, response, start, end, unknown, call_id=f"{decision.id}/returned", model=name
        )
        if call.asked.chat:
            call.memo.served[name] = outcome.prompt_tokens
        if call.turn is not None:
            call.turn.reply = replies.reply_digest(response)
        if "responses" in str(event.get("call_type")) and (response_id := replies.id_of(response)):
            self.conversations.answered(response_id, decision.task)
        return Told(decision, outcome, replies.text_of(response), call)

    def failure(self, event: Mapping[str, Any], start: Any, end: Any) -> tuple[Decision, Outcome] | None:
        """What to tell the router about a call that failed; None when it is none of ours, or no fault of the model's."""
        call, deployment = self._heard(event)
        attempt = call.attempt_of(deployment) if call is not None else None
        if call is None or attempt is None:
            return None
        attempt.closed = True
        call.give_up(attempt)
        decision = attempt.decision
        if replies.blameless(event):
            self.router.withdraw(decision)
            return None
        outcome = replies.failure_of(event, start, end)
        outcome.call_id, outcome.model = f"{decision.id}/failed", attempt.model(deployment)
        return decision, outcome

    def settled(self, told: Told, response: Any) -> None:
        """After the router has taken in an outcome: tool calls, and the end of a task whose caller said so."""
        calls = list(replies.tool_calls_of(response))
        if calls:
            self.memos.ask_tools(told.decision, calls)
        if told.call is not None and told.call.identity.ends:
            self.router.finish(told.decision.task, told.call.identity.success)

    def _heard(self, event: Mapping[str, Any]) -> tuple[Call | None, str]:
        params = event.get("litellm_params") or {}
        info = params.get("model_info")
        deployment = str(info.get("id") or "") if isinstance(info, (dict, Mapping)) else ""
        for name in METADATA:
            call = self.call_in(params.get(name))
            if call is not None:
                return call, deployment or id_of(params[name])
        return None, deployment

    def _unrouted(
        self, event: Mapping[str, Any], response: Any, start: Any, end: Any, call: Call | None
    ) -> Told | None:
        """A call that nothing was decided for: synchronous, to a deployment by its id, or after a fault in here. Its
        spending counts all the same. Calls of LiteLLM's SDK without its Router are left alone unless they name a task.
        """
        params = {**(event.get("litellm_params") or {}), "messages": event.get("messages")}
        metas = [meta for name in METADATA if isinstance(meta := params.get(name), Mapping)]
        if call is None and any(KEY in meta for meta in metas):
            return None  # another router's call, or one so old that it has been forgotten
        group = next((meta["model_group"] for meta in metas if meta.get("model_group")), None)
        if call is not None:
            identity, turn = call.identity, call.turn
        else:
            meta = metadata_of(params)
            named = identify(params, meta)
            if group is None and not (named.task.id and named.origin in ("metadata", "headers")):
                return None
            messages = event.get("messages")
            asked, given = read(messages if isinstance(messages, list) else None, params, lambda _: 0)
            identity, turn = self._whose(asked, given, params, meta)
        provider, model = event.get("custom_llm_provider"), str(event.get("model") or "")
        full = model if not provider or model.startswith(f"{provider}/") else f"{provider}/{model}"
        name = self.deployments.known(
            {"model_name": group, "litellm_params": {"model": full}, "model_info": params.get("model_info") or {}}
        ).model
        decision = self.router.book(identity.task, name, identity.role, within_limits=False)
        unknown, call_id = self.deployments.price_unknown(name), str(event.get("litellm_call_id") or decision.id)
        outcome = replies.outcome_of(event, response, start, end, unknown, call_id=call_id, model=name)
        if turn is not None:
            turn.reply = replies.reply_digest(response)
        return Told(decision, outcome, "", call)
