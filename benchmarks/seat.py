"""One task under one policy: the routed model an agent calls, the ledger that fills, and the rows of the log."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from steproute.backend import Backend, BackendError, ChatRequest, ChatResponse
from steproute.decision import Decision
from steproute.errors import NoEligibleModel
from steproute.ledger import Evidence, Ledger, Outcome, Step, Task, ToolCall
from steproute.models import Needs
from steproute.progress import Progress
from steproute.router import Router

Row = dict[str, Any]


@dataclass(frozen=True)
class Played:
    """A task that was played: the lines for `steps.jsonl` and the line for `tasks.jsonl`."""

    steps: list[Row]
    task: Row


@dataclass
class Seat:
    """Where an agent sits: everything it needs to call a routed model for one task. Not shared between threads."""

    id: str
    """The task."""
    policy: str
    framework: str
    router: Router
    backend: Backend
    deployments: Mapping[str, str]
    """Pool name → name the backend knows."""
    ledger: Ledger
    _failed: dict[str, Outcome] = field(default_factory=dict)
    _served: dict[str, int] = field(default_factory=dict)

    def describe(self, goal: str, domain: str, *, dimension: str = "", source: str = "") -> Ledger:
        """Say what the task is about, before the first call; returns the ledger.

        Args:
            goal: what the user asks for.
            domain: chooses the progress view: `code`, `math`, `retrieval`, `tools`, `swe` or `generic`.
            dimension: kind of task, the first context group of the learners.
            source: the benchmark, a finer group.
        """
        self.ledger.task = Task(id=self.id, goal=goal, domain=domain, dimension=dimension, source=source)
        return self.ledger

    def call(
        self,
        role: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str | Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        stop: Sequence[str] = (),
        seed: int | None = None,
        timeout: float | None = None,
        grows: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> ChatResponse:
        """Choose a model, call it, and take in the outcome. A model that fails is replaced by the next best.

        Args:
            role: the worker that asks.
            messages: in the form of OpenAI's chat completions.
            tools: functions the model may call.
            tool_choice: as in OpenAI's API.
            max_tokens: limit of the completion.
            temperature: of sampling.
            stop: texts that end the completion.
            seed: of sampling.
            timeout: seconds for one call.
            grows: True = each prompt starts with the one before, so that a model may find in its cache what it served.
            extra: passed to the model server.

        Raises:
            BackendError: every eligible model failed; the last one's error.
            BudgetExceeded: a hard limit leaves no model that fits.
            NoEligibleModel: no model has what the call needs.
        """
        failure: BackendError | None = None
        text = "\n".join(str(message.get("content") or "") for message in messages)
        for _ in range(len(self.router.pool)):
            try:
                decision = self.router.decide(
                    self.ledger,
                    role,
                    prompt_tokens=(len(text) + sum(len(str(tool)) for tool in tools)) // 4,
                    max_tokens=max_tokens,
                    timeout_s=timeout,
                    cached_tokens=self._served if grows else None,
                    needs=Needs(tools=bool(tools)),
                    text=text[-8000:],
                )
            except NoEligibleModel:
                if failure is not None:
                    raise failure from None
                raise
            request = ChatRequest(
                self.deployments[decision.model.name],
                messages,
                tools=tools,
                tool_choice=tool_choice,
                temperature=temperature,
                max_tokens=max_tokens,
                stop=stop,
                seed=seed,
                timeout=timeout,
                extra={**(extra or {}), "task": self.id, "step": decision.step, "role": role},
            )
            try:
                response = self.backend.complete(request)
            except BackendError as error:
                failure = error
                outcome = Outcome(error=str(error))
                self.router.observe(decision, outcome)
                self._failed[decision.id] = outcome
                continue
            self._take(decision, response)
            return response
        assert failure is not None
        raise failure

    def _take(self, decision: Decision, response: ChatResponse) -> None:
        usage = response.usage
        outcome = Outcome(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=min(usage.cached_tokens, usage.prompt_tokens),
            tokens_estimated=usage.estimated,
            seconds=response.seconds,
        )
        self._served[decision.model.name] = usage.prompt_tokens + usage.completion_tokens
        asked = "".join(f"\n{call.name}({call.arguments})" for call in response.tool_calls)
        self.router.observe(decision, outcome, output=response.content + asked)
        if response.tool_calls and self.ledger.steps:
            self.ledger.steps[-1].tool_calls = [
                ToolCall(name=call.name, fingerprint=fingerprint(call.name, call.arguments))
                for call in response.tool_calls
            ]

    def report(
        self, evidence: Sequence[Evidence] = (), tool_calls: Sequence[ToolCall] | None = None
    ) -> Progress | None:
        """Say what came of the last step: evidence about its quality, and how its tool calls ended.

        Returns:
            Progress after it; None before the first step.
        """
        if not self.ledger.steps:
            return None
        if tool_calls is not None:
            self.ledger.steps[-1].tool_calls = list(tool_calls)
        return self.router.report(self.id, evidence)

    def played(
        self, passed: bool, reward: float | None = None, *, visible_ok: bool | None = None, **more: Any
    ) -> Played:
        """The rows of the task.

        Args:
            passed: the benchmark's verdict.
            reward: its score in [0, 1]; None = 1 or 0.
            visible_ok: whether all checks the agent could see had passed.
            more: plain JSON values to keep in the task's row.
        """
        ledger = self.router.ledger(self.id) or self.ledger
        made = {step.id: step for step in ledger.steps}
        steps = [self._row(decision, made.get(decision.id)) for decision in self.router.decisions(self.id)]
        calls = [row for row in steps if row["model"] is not None]
        outcomes = [row["outcome"] for row in calls]
        joules = [outcome["energy_j"] for outcome in outcomes]
        usd = [outcome["usd"] for outcome in outcomes if outcome["error"] is None]
        task: Row = {
            "policy": self.policy,
            "task": self.id,
            "passed": passed,
            "reward": float(passed) if reward is None else reward,
            "visible_ok": visible_ok,
            "calls": len(calls),
            "seconds": sum(outcome["seconds"] for outcome in outcomes),
            "tokens": sum(outcome["prompt_tokens"] + outcome["completion_tokens"] for outcome in outcomes),
            "usd": None if None in usd else sum(usd),
            "energy_j": None if not joules or None in joules else sum(joules),
            "models": [row["model"] for row in calls],
            "regret": None,
            "choices": 0,
            "regime_path": [row["decision"]["progress"]["regime"] for row in calls],
            "g_path": [row["g_after"] for row in calls],
            "about": {name: getattr(ledger.task, name) for name in ("domain", "dimension", "source")},
            **more,
        }
        return Played(steps, task)

    def _row(self, decision: Decision, step: Step | None) -> Row:
        outcome = step.outcome if step is not None else self._failed.get(decision.id)
        return {
            "policy": self.policy,
            "task": self.id,
            "step": decision.step,
            "attempt": decision.attempt,
            "role": decision.role,
            "model": None if decision.stop else step.model if step is not None else decision.model.name,
            "decision": decision.as_dict(),
            "outcome": None if decision.stop else _outcome(outcome or Outcome(error="no outcome was observed")),
            "evidence": [] if step is None else [item.model_dump() for item in step.outcome.evidence],
            "tools": [] if step is None else [call.model_dump() for call in step.tool_calls],
            "output_id": None if step is None else fingerprint(step.output),
            "visible": _visible(step),
            "g_after": None if step is None else step.g,
            "q": None,
            "regret": None,
        }


def fingerprint(*parts: str) -> str:
    """A short name for a text: equal texts have equal names, and the text cannot be read from it."""
    return hashlib.blake2b("\x00".join(parts).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _outcome(outcome: Outcome) -> Row:
    names = (
        "usd",
        "seconds",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "energy_j",
        "energy_source",
        "error",
    )
    return {name: getattr(outcome, name) for name in names}


def _visible(step: Step | None) -> Row | None:
    """What the checks said about a step, as the report shows it."""
    seen = [] if step is None else [item for item in step.outcome.evidence if item.count > 0]
    if not seen:
        return None
    total = sum(item.count for item in seen)
    return {
        "passed": round(sum(item.score * item.count for item in seen)),
        "total": total,
        "ok": all(item.score >= 1 for item in seen),
        "error": next((item.detail for item in seen if item.score < 1), ""),
    }
