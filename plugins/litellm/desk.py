"""The router's side of LiteLLM's hooks: who calls, what to ask the router, and what a call has cost. No LiteLLM in here."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from steproute.decision import Decision
from steproute.errors import NoEligibleModel
from steproute.ledger import Ledger, Outcome, Task
from steproute.models import Price
from steproute.plugins.litellm import replies
from steproute.plugins.litellm.asked import Asked, read
from steproute.plugins.litellm.calls import KEY, Attempt, Call, Pick
from steproute.plugins.litellm.conversations import Conversations, prefixes
from steproute.plugins.litellm.deployments import Deployment, Deployments, Key, admissible, id_of, key_of
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
            call = self._begin(messages, request)
            holder[KEY] = {"call": call.token}  # whatever becomes of it, a fallback belongs to the same call
        else:
            call.dispatched(id_of(holder))
        asked = call.asked
        keys = {id(item): key_of(item) for item in deployments}
        left = admissible(deployments, call.tags, lambda item: self._fits(item, keys[id(item)], asked))
        return Pick(call, holder, left, [self.deployments.name(item, keys[id(item)]) for item in left])

    def question(self, pick: Pick) -> tuple[tuple[Ledger | Task, str], dict[str, Any]]:
        """Arguments of `Router.decide` for a pick."""
        call, asked = pick.call, pick.call.asked
        allowed = set(pick.names) - set(call.failed)
        arguments = {
            "step": call.key,
            "prompt_tokens": asked.prompt_tokens,
            "max_tokens": asked.max_tokens,
            "timeout_s": asked.timeout_s,
            "cached_tokens": self.memos.of(call.identity.task.id).served if self._caches() else {},
            "needs": asked.needs,
            "text": asked.text,
            "exclude": [name for name in self.router.pool.names if name not in allowed],
        }
        return (call.identity.ledger or call.identity.task, call.identity.role), arguments

    def booking(self, pick: Pick) -> tuple[tuple[Task, str, str], dict[str, Any]]:
        """Arguments of `Router.book` for a call whose model is not chosen, such as an embedding."""
        call, asked = pick.call, pick.call.asked
        arguments = {"prompt_tokens": asked.prompt_tokens, "max_tokens": asked.max_tokens or 0}
        return (call.identity.task, pick.names[0], call.identity.role), arguments

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
            ids = {id_of(pick.deployments[index]): name for index, name in left.items()}
            call.attempts.append(Attempt(decision, ids))
        pick.holder[KEY] = call.note(decision)
        return [pick.deployments[index] for index in left]

    def call_in(self, meta: Mapping[str, Any]) -> Call | None:
        """The call that LiteLLM's metadata speaks of."""
        note = meta.get(KEY)
        return self._calls.get(str(note.get("call"))) if isinstance(note, (dict, Mapping)) else None

    def _caches(self) -> bool:
        """Whether any model has a price of its own for cached tokens: otherwise nothing hangs on them."""
        for model in self.router.pool:
            price = model.price
            if isinstance(price, Price) and price.cached_input not in (None, price.input):
                return True
        return False

    def _begin(self, messages: Sequence[Any] | None, request: Mapping[str, Any]) -> Call:
        asked, given = read(messages, request, self._count_tokens)
        identity, turn = self._whose(asked, given, request)
        task = identity.task.id
        with self.router.faults.kept("reading the messages of a LiteLLM call"):
            self.memos.read_tools(task, given)
            if identity.evidence:
                self.router.report(task, identity.evidence)
        ledger = self.router.ledger(task)
        tags = metadata_of(request).get("tags")
        token = uuid.uuid4().hex
        call = Call(
            identity,
            asked,
            identity.step or self.memos.next_step(task, len(ledger.steps) if ledger is not None else 0, token[:8]),
            tuple(str(tag) for tag in tags) if isinstance(tags, (list, tuple)) else (),
            turn,
            token,
        )
        with self._lock:
            self._calls[token] = call
            while len(self._calls) > _KEPT:
                self._calls.popitem(last=False)
        return call

    def _whose(self, asked: Asked, messages: Sequence[Any], request: Mapping[str, Any]) -> tuple[Identity, Any]:
        """The call's labels; without a task among them, that of the conversation it goes on with, or a new one."""
        identity = identify(request)
        if identity.task.id:
            return identity, None
        client, origin, turn = client_of(request), "new", None
        task = next(filter(None, map(self.conversations.of_response, previous_of(request))), "")
        if task:
            origin = "response"
        elif asked.chat:
            digests = prefixes(messages)
            task = self.conversations.find(client, messages, digests)
            origin = "conversation" if task else origin
            task = task or uuid.uuid4().hex
            turn = self.conversations.note(client, digests[-1], task)
        task = task or uuid.uuid4().hex
        return replace(identity, task=identity.task.model_copy(update={"id": task}), origin=origin), turn

    def _fits(self, deployment: Deployment, key: Key, asked: Asked) -> bool:
        """Whether a prompt fits a deployment. Far below its limit no tokens are counted; near it LiteLLM counts too."""
        limit = self.deployments.limit(deployment, key)
        if limit is None or asked.bytes + 16 <= limit:
            return True
        return asked.prompt_tokens <= limit

    # --- after the call ---------------------------------------------------------------------------------------------

    def success(
        self, event: Mapping[str, Any], response: Any, start: Any, end: Any
    ) -> tuple[Decision, Outcome, str] | None:
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
            self.memos.of(decision.task).served[name] = outcome.prompt_tokens
        if call.turn is not None:
            call.turn.reply = replies.reply_digest(response)
        response_id = replies.id_of(response)
        if response_id and "responses" in str(event.get("call_type")):
            self.conversations.answered(response_id, decision.task)
        return decision, outcome, replies.text_of(response)

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

    def settled(self, event: Mapping[str, Any], decision: Decision, response: Any) -> None:
        """After the router has taken in an outcome: tool calls, and the end of a task whose caller said so."""
        calls = list(replies.tool_calls_of(response))
        if calls:
            self.memos.ask_tools(decision, calls)
        call, _ = self._heard(event)
        if call is not None and call.identity.ends:
            self.router.finish(decision.task, call.identity.success)

    def _heard(self, event: Mapping[str, Any]) -> tuple[Call | None, str]:
        params = event.get("litellm_params") or {}
        info = params.get("model_info")
        deployment = str(info.get("id") or "") if isinstance(info, (dict, Mapping)) else ""
        for name in METADATA:
            meta = params.get(name)
            if isinstance(meta, (dict, Mapping)):
                call = self.call_in(meta)
                if call is not None:
                    return call, deployment or id_of(meta)
        return None, deployment

    def _unrouted(
        self, event: Mapping[str, Any], response: Any, start: Any, end: Any, call: Call | None
    ) -> tuple[Decision, Outcome, str] | None:
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
            named = identify(params)
            if group is None and not (named.task.id and named.origin in ("metadata", "headers")):
                return None
            messages = event.get("messages")
            asked, given = read(messages if isinstance(messages, list) else None, params, lambda _: 0)
            identity, turn = self._whose(asked, given, params)
        provider, model = event.get("custom_llm_provider"), str(event.get("model") or "")
        full = model if not provider or model.startswith(f"{provider}/") else f"{provider}/{model}"
        name = self.deployments.name(
            {"model_name": group, "litellm_params": {"model": full}, "model_info": params.get("model_info") or {}}
        )
        decision = self.router.book(identity.task, name, identity.role, within_limits=False)
        unknown, call_id = self.deployments.price_unknown(name), str(event.get("litellm_call_id") or decision.id)
        outcome = replies.outcome_of(event, response, start, end, unknown, call_id=call_id, model=name)
        if turn is not None:
            turn.reply = replies.reply_digest(response)
        return decision, outcome, ""
