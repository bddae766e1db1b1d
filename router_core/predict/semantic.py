"""The semantic view of a state: a short text that says where the task stands, to be embedded."""

from __future__ import annotations

from steproute.embed import RecentTexts, Vectors
from steproute.ledger import Step
from steproute.policies.base import StepContext

GOAL, TEXT, DETAIL = 600, 1600, 240
"""Most characters taken of the goal, of the host's text, and of one finding."""


def summarise(context: StepContext) -> str:
    """The state in words.

    The coordinator's own summary comes first, where the host keeps one in `ledger.notes["summary"]`; then what the host
    says the step is about, or else the goal; then role, regime and the findings of the last two steps.
    """
    ledger = context.ledger
    own = ledger.notes.get("summary")
    parts = [own[:TEXT]] if isinstance(own, str) and own else []
    if context.text:
        parts.append(_both_ends(context.text, TEXT))
    elif not parts:
        parts.append(context.task.goal[:GOAL])
    parts.append(f"role {context.role or 'none'}; {context.progress.regime.label}")
    for step in ledger.steps[-2:]:
        parts.extend(_findings(step))
    return "\n".join(part for part in parts if part)


def embed_state(context: StepContext, texts: RecentTexts) -> Vectors:
    """Embedding of the state, shape (dim,); computed once per step."""
    key = f"state:{texts.embedder.name}"
    if key not in context.memo:
        context.memo[key] = texts(summarise(context))
    found: Vectors = context.memo[key]
    return found


def embed_request(context: StepContext, texts: RecentTexts) -> Vectors | None:
    """Embedding of what is asked (the host's text, else the goal), shape (dim,); None when there is no text at all."""
    text = context.text or context.task.goal
    key = f"request:{texts.embedder.name}"
    if key not in context.memo:
        if not text:
            return None
        context.memo[key] = texts(text)
    found: Vectors = context.memo[key]
    return found


def _findings(step: Step) -> list[str]:
    found = []
    if step.outcome.error:
        found.append(f"call failed: {step.outcome.error[:DETAIL]}")
    for item in step.outcome.evidence:
        if item.score < 1 and item.detail:
            found.append(f"{item.source}: {item.detail[:DETAIL]}")
    found.extend(f"tool {call.name} failed: {call.error[:DETAIL]}" for call in step.tool_calls if call.ok is False)
    return found


def _both_ends(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} {text[-most // 2 :]}"
