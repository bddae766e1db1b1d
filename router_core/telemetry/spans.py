"""One OpenTelemetry span per decision, from the decision to the outcome of its call, with the GenAI attributes."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

try:
    from opentelemetry import trace
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode
except ImportError as error:
    raise ImportError(f"telemetry needs OpenTelemetry ({error}): pip install 'steproute[telemetry]'") from error

from steproute.accounts import Accounts
from steproute.decision import Decision
from steproute.errors import BudgetExceeded, NoEligibleModel
from steproute.ledger import Outcome
from steproute.progress import Progress
from steproute.taskstate import Made
from steproute.telemetry.words import error_kind, kind_of, prose, regret_estimate, word

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

OPERATION = "decide"
MOST_OPEN = 10_000
"""Spans that wait for the outcome of their call; the oldest end without one."""


class Spans:
    """See `steproute.telemetry.listener.Channel`."""

    def __init__(self, provider: TracerProvider | None, prompts: bool):
        """Take a tracer.

        Args:
            provider: whose tracer; None = the global one.
            prompts: whether prompts and outputs may be in the spans.
        """
        self._tracer = (provider or trace.get_tracer_provider()).get_tracer("steproute")
        self._prompts = prompts
        self._open: OrderedDict[str, tuple[str, Span]] = OrderedDict()
        """Decision id → its task and span."""

    def decided(self, made: Made, pinned: bool, began_ns: int, seconds: float) -> None:
        """Begin the span of a decision, below the current span where there is one, and linked to it."""
        decision = made.decision
        around = trace.get_current_span().get_span_context()
        span = self._tracer.start_span(
            f"{OPERATION} {word(decision.model.name)}",
            kind=SpanKind.INTERNAL,
            attributes=_whose(decision.task, decision.role),
            links=[Link(around)] if around.is_valid else None,
            start_time=began_ns,
        )
        if not span.is_recording():  # no SDK, or not sampled
            return
        span.set_attributes(_about(made, pinned, seconds))
        if self._prompts and made.context.text:
            span.set_attribute("gen_ai.input.messages", _message("user", made.context.text))
        if decision.stop:
            span.end()
            return
        self._open[decision.id] = (decision.task, span)
        while len(self._open) > MOST_OPEN:
            _, (_, oldest) = self._open.popitem(last=False)
            _unreported(oldest)

    def observed(
        self,
        decision: Decision,
        outcome: Outcome,
        model: str,
        spent: Mapping[str, float],
        progress: Progress,
        output: str,
        answers: bool,
    ) -> None:
        """End the span with what the call took and returned."""
        _, span = self._open.pop(decision.id, (None, None))
        if span is None:  # booked, restored from a store, or answered before
            return
        around = trace.get_current_span().get_span_context()
        parent = getattr(span, "parent", None)
        if around.is_valid and around.span_id not in (
            getattr(parent, "span_id", None),
            span.get_span_context().span_id,
        ):
            span.add_link(around)
        answered = decision.model.provider_name if model == decision.model.name else model
        span.set_attributes(_came(outcome, answered, spent, progress))
        if outcome.error is not None:
            kind = error_kind(outcome.error)
            span.set_attribute("error.type", kind)
            span.set_status(Status(StatusCode.ERROR, prose(outcome.error)[:300] if self._prompts else kind))
        if self._prompts and output:
            span.set_attribute("gen_ai.output.messages", _message("assistant", output))
        span.end()

    def ended(
        self, task: str, reward: float | None, idle: bool, spent: Mapping[str, float], accounts: Accounts
    ) -> None:
        """End the spans of a task's calls whose outcome nobody told."""
        for key in [key for key, (owner, _) in self._open.items() if owner == task]:
            _unreported(self._open.pop(key)[1])

    def refused(self, task: str, role: str, error: BudgetExceeded | NoEligibleModel) -> None:
        """A decision that could not be made is a span too, with an error."""
        span = self._tracer.start_span(OPERATION, kind=SpanKind.INTERNAL, attributes=_whose(task, role))
        span.set_attribute("error.type", type(error).__name__)
        if isinstance(error, BudgetExceeded):
            span.set_attribute("steproute.limit.resource", word(error.resource))
        span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        span.end()

    def failed(self, where: str, error: Exception) -> None:
        """Note a fault on the current span, where there is one."""
        trace.get_current_span().add_event("steproute.error", {"where": where, "error.type": type(error).__name__})

    def close(self) -> None:
        """End what is open."""
        while self._open:
            _unreported(self._open.popitem(last=False)[1][1])


@contextmanager
def below(span: Any) -> Iterator[None]:
    """Make a span that a host hands on by argument the current one, without ending it; None = leave it as it is."""
    if span is None or not isinstance(span, trace.Span):
        yield
        return
    with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
        yield


def _unreported(span: Span) -> None:
    span.set_attribute("steproute.outcome", "unreported")
    span.end()


def _whose(task: str, role: str) -> dict[str, Any]:
    found = {"gen_ai.operation.name": OPERATION, "gen_ai.conversation.id": word(task)}
    return {**found, "gen_ai.agent.name": word(role)} if role else found


def _about(made: Made, pinned: bool, seconds: float) -> dict[str, Any]:
    decision = made.decision
    scored = [item for item in decision.candidates if item.score is not None]
    chosen = next((item for item in scored if item.model == decision.model.name), None)
    found: dict[str, Any] = {
        "gen_ai.request.model": word(decision.model.provider_name),
        "steproute.decision.id": decision.id,
        "steproute.model": word(decision.model.name),
        "steproute.step": word(decision.step),
        "steproute.attempt": decision.attempt,
        "steproute.policy": word(decision.policy),
        "steproute.kind": kind_of(decision, pinned),
        "steproute.reason": word(decision.reason),
        "steproute.propensity": decision.propensity,
        "steproute.progress.before": decision.progress.g,
        "steproute.regime": decision.progress.regime.label,
        "steproute.prompt_tokens.expected": decision.prompt_tokens,
        "steproute.decide_seconds": seconds,
        "steproute.regret.estimate": regret_estimate(decision),
        "steproute.candidates": [word(item.model) for item in scored],
        "steproute.scores": [float(item.score or 0.0) for item in scored],
    }
    if chosen is not None:
        found |= {f"steproute.expected.{word(name)}": float(value) for name, value in chosen.cost.items()}
        if chosen.gain is not None:
            found["steproute.expected.gain"] = float(chosen.gain)
    return found


def _came(outcome: Outcome, model: str, spent: Mapping[str, float], progress: Progress) -> dict[str, Any]:
    return {
        "gen_ai.response.model": word(model),
        "gen_ai.usage.input_tokens": outcome.prompt_tokens,
        "gen_ai.usage.output_tokens": outcome.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": outcome.cached_tokens,
        "steproute.outcome": "failed" if outcome.error is not None else "answered",
        "steproute.tokens_estimated": outcome.tokens_estimated,
        "steproute.progress.after": progress.g,
        **{f"steproute.spent.{word(name)}": float(amount) for name, amount in spent.items()},
        **({"steproute.energy_source": word(outcome.energy_source)} if outcome.energy_source else {}),
    }


def _message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": prose(text)}]}], ensure_ascii=False)
