"""One request of a client, from LiteLLM's first question about deployments to its outcome: attempts, retries, fallbacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from steproute.decision import Decision
from steproute.ledger import Outcome
from steproute.plugins.litellm.asked import Asked
from steproute.plugins.litellm.conversations import Turn
from steproute.plugins.litellm.deployments import Offer
from steproute.plugins.litellm.identity import Identity
from steproute.plugins.litellm.memos import Memo

KEY = "steproute_routing"
"""Key of LiteLLM's metadata under which a call's decision is written, for its callbacks and spend logs."""


@dataclass(slots=True)
class Attempt:
    """One decision of a call, and the deployments LiteLLM was left to choose from."""

    decision: Decision
    deployments: Mapping[str, str]
    """Id → name of its model in the pool."""
    closed: bool = False

    def model(self, deployment: str) -> str:
        """The model behind the deployment that was called."""
        return self.deployments.get(deployment, self.decision.model.name)


@dataclass(slots=True)
class Call:
    """One request."""

    token: str
    identity: Identity
    asked: Asked
    step: str
    memo: Memo
    """What is remembered of its task."""
    tags: Sequence[str] = ()
    turn: Turn | None = None
    """Where its reply is to be noted; None when the task was named."""
    attempts: list[Attempt] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Models that failed in this round."""
    round: int = 0
    """How often every model has failed."""
    spent: float = 0.0
    """USD of the task before this call."""

    @property
    def key(self) -> str:
        """Key of its step for the router: once every model has failed, a new one."""
        return f"{self.step}~{self.round}" if self.round else self.step

    def dispatched(self, deployment: str) -> None:
        """LiteLLM asks again after it has called this deployment: that attempt failed, whether its outcome has come or not."""
        last = self.attempts[-1] if self.attempts else None
        if last is not None and deployment in last.deployments:
            self.give_up(last)

    def give_up(self, attempt: Attempt) -> None:
        """Do not decide for this attempt's model again in this round."""
        if attempt.decision.model.name not in self.failed:
            self.failed.append(attempt.decision.model.name)

    def next_round(self) -> None:
        """Every model failed: LiteLLM goes on trying, so all are to be had again."""
        self.failed.clear()
        self.round += 1

    def attempt_of(self, deployment: str) -> Attempt | None:
        """The attempt in which a deployment was called: the earliest open one it was left for, else the latest."""
        found = None
        for attempt in self.attempts:
            if deployment in attempt.deployments:
                if not attempt.closed:
                    return attempt
                found = attempt
        return found

    def note(self, decision: Decision) -> dict[str, Any]:
        """What is written into LiteLLM's metadata, as plain JSON; LiteLLM copies it several times, so it is short."""
        return {"call": self.token, "task": decision.task, "step": decision.step, "model": decision.model.name}


class Pick(NamedTuple):
    """A question about deployments, ready for the router."""

    call: Call
    holder: dict[str, Any]
    """LiteLLM's metadata."""
    offers: Sequence[Offer]

    def left(self, decision: Decision) -> Sequence[Offer]:
        """The deployments that LiteLLM may choose from: those of the model decided, where one was."""
        if not self.call.asked.chat:
            return self.offers
        wanted = decision.model.name
        return [offer for offer in self.offers if offer[1].model == wanted]


class Told(NamedTuple):
    """What the router is to hear of a call that returned."""

    decision: Decision
    outcome: Outcome
    output: str
    call: Call | None
