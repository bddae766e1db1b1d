"""Decisions, outcomes, evidence and feedback as rows of the tables, and back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic_core import from_json, to_json

from steproute.blocks import pack, unpack
from steproute.decision import CandidateScore, Decision
from steproute.draws import Draws
from steproute.ledger import Evidence, Outcome, Step, Task
from steproute.models import Model, ModelPool
from steproute.policies.base import BudgetState, Candidate, StepContext
from steproute.progress import Progress, Regime
from steproute.redact import redact
from steproute.taskstate import printable

if TYPE_CHECKING:
    from steproute.accounts import Accounts

VECTORS = ("request:", "state:")
"""Keys of a context's memo that hold an embedding; the embedder's name follows."""
LONGEST_ERROR = 300
_KIND = re.compile(
    r"\b[A-Z]\w*(?:Error|Exception|Timeout|Exceeded)\b|\b[45]\d\d\b|rate.?limit|too many requests|overloaded|bad gateway"
    r"|service unavailable|connect failed|connection (?:error|refused|reset|aborted)|timed? ?out|content.?filter"
    r"|(?:retry|try again)[ _-]?(?:after|in)\W{0,3}\d+(?:\.\d+)? ?(?:ms|m(?!s)|s)?\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def name(text: str) -> str:
    """`clean`, for what comes again and again: ids, roles, models, reasons."""
    return clean(text)


def clean(text: str) -> str:
    """Text every database can hold: no zero bytes, no halves of surrogate pairs."""
    return printable(text.replace("\x00", "�") if "\x00" in text else text)


def plain_json(value: Any) -> str:
    """Compact JSON of plain values and dataclasses; what is not finite becomes null."""
    return to_json(value, inf_nan_mode="null").decode()


def decision_values(
    decision: Decision, context: StepContext, pinned: bool, rng: str | None, prompts: bool
) -> tuple[Any, ...]:
    """Values of `decisions` after seq, writer, created and task, in the order of its columns."""
    progress, budget = decision.progress, context.budget
    chosen = next((item for item in context.candidates if item.model is decision.model), None)
    limited = budget.limits
    held = {
        "spent": {key: budget.spent.get(key, 0.0) for key in limited},
        "reserved": {key: budget.reserved.get(key, 0.0) for key in limited},
        "queues": budget.queues,
    }
    return (
        decision.id,
        name(decision.step),
        decision.attempt,
        name(decision.role),
        context.step,
        name(decision.model.name),
        decision.policy,
        decision.propensity,
        decision.explored,
        decision.fallback,
        pinned,
        decision.stop,
        finite(decision.stop_score),
        name(decision.reason),
        progress.g,
        int(progress.regime),
        progress.r,
        progress.d,
        progress.e,
        decision.prompt_tokens,
        candidates_json(decision.candidates),
        "{}" if chosen is None else plain_json(chosen.worst),
        plain_json(held) if limited else "{}",
        pack_memo(context.memo),
        rng,
        clean(context.text) if prompts and context.text else None,
    )


def outcome_values(
    decision: Decision, outcome: Outcome, model: str, answers: bool, progress: Progress, spent: Mapping[str, float],
    fingerprint: int, output: str | None,
) -> tuple[Any, ...]:  # fmt: skip
    """Values of `outcomes` after seq, writer, created and task."""
    error = outcome.error
    if error is not None:
        error = failure_kind(error) if output is None else clean(redact(error))[:LONGEST_ERROR]
    return (
        decision.id,
        clean(outcome.call_id),
        name(decision.step),
        decision.attempt,
        name(decision.role),
        name(model),
        answers,
        outcome.prompt_tokens,
        outcome.completion_tokens,
        outcome.cached_tokens,
        outcome.tokens_estimated,
        spent.get("usd"),
        outcome.seconds,
        outcome.energy_j,
        outcome.energy_source,
        plain_json(outcome.amounts) if outcome.amounts else "{}",
        plain_json(spent),
        error,
        progress.g,
        int(progress.regime),
        progress.r,
        progress.d,
        progress.e,
        evidence_json(outcome.evidence, output is not None),
        fingerprint,
        None if output is None else clean(output),
        outcome.written_tokens,
    )


def evidence_json(evidence: Sequence[Evidence], details: bool) -> str:
    """A list of observations; their details, which may quote the user, only where asked."""
    if not evidence:
        return "[]"
    items = [{"source": item.source, "score": item.score, "count": item.count} for item in evidence]
    if details:
        for item, entry in zip(evidence, items, strict=True):
            entry["detail"] = item.detail
    return clean(plain_json(items))


def candidates_json(candidates: Sequence[CandidateScore]) -> str:
    """Every candidate, by column: what was scored first, then why the others were left out. Half as long as row by row."""
    scored = [item for item in candidates if item.score is not None]
    terms = dict.fromkeys(name for item in scored for name in item.terms)
    costs = dict.fromkeys(name for item in scored for name in item.cost)
    return plain_json(
        {
            "model": [item.model for item in scored],
            "score": [item.score for item in scored],
            "propensity": [item.propensity for item in scored],
            "gain": [item.gain for item in scored],
            "gain_sd": [item.gain_sd for item in scored],
            "terms": {name: [_plain(item.terms.get(name)) for item in scored] for name in terms},
            "cost": {name: [item.cost.get(name) for item in scored] for name in costs},
            "left_out": {item.model: item.cause for item in candidates if item.score is None},
        }
    )


def _plain(value: float | None) -> float | None:
    """A number as JSON has it: a policy of the user's may have worked with numpy's."""
    return value if value is None or type(value) is float else float(value)


def candidates_of(text: str) -> list[CandidateScore]:
    """Read what `candidates_json` made."""
    data = from_json(text)
    found = [
        CandidateScore(
            model,
            data["score"][i],
            {name: values[i] for name, values in data["terms"].items() if values[i] is not None},
            {name: values[i] for name, values in data["cost"].items() if values[i] is not None},
            data["gain"][i],
            data["gain_sd"][i],
            data["propensity"][i],
        )
        for i, model in enumerate(data["model"])
    ]
    return found + [CandidateScore(model, None, cause=cause) for model, cause in data["left_out"].items()]


def failure_kind(error: str) -> str:
    """What is known of a failure's kind: status, exception, when to try again. The rest of its text may quote the user."""
    found = dict.fromkeys(match[0].strip() for match in _KIND.finditer(error))
    return "; ".join(found)[:LONGEST_ERROR] or "failed"


def finite(value: float | None) -> float | None:
    """The number, with infinities at the end of what a column holds."""
    return value if value is None or math.isfinite(value) else math.copysign(1e308, value)


# --- back ----------------------------------------------------------------------------------------------------


class Reader:
    """Turns rows into objects again; a model that has left the pool is stood in for, and noted."""

    def __init__(self, pool: ModelPool, accounts: Accounts, draws: Draws):
        self._pool, self._accounts, self._draws = pool, accounts, draws
        self._strangers: dict[str, Model] = {}

    @property
    def strangers(self) -> list[str]:
        """Names that rows mention and the pool does not have."""
        return sorted(self._strangers)

    def model(self, name: str) -> Model:
        """The pool's model, or a stand-in without a price."""
        if name in self._pool:
            return self._pool[name]
        if name not in self._strangers:
            self._strangers[name] = Model(name, price="unknown")
        return self._strangers[name]

    def decision(self, row: Mapping[str, Any]) -> Decision:
        """A decision as it was made."""
        candidates = candidates_of(row["candidates"])
        return Decision(
            id=row["id"],
            task=row["task"],
            step=row["step"],
            attempt=row["attempt"],
            role=row["role"],
            model=self.model(row["model"]),
            candidates=candidates,
            progress=progress_of(row),
            policy=row["policy"],
            propensity=row["propensity"],
            reason=row["reason"],
            stop=bool(row["stop"]),
            stop_score=row["stop_score"],
            explored=bool(row["explored"]),
            fallback=bool(row["fallback"]),
            created=row["created"],
            prompt_tokens=row["prompt_tokens"],
        )

    def context(self, row: Mapping[str, Any], decision: Decision, task: Task, steps: Any, tried: Sequence[str]) -> StepContext:  # fmt: skip
        """What the decision was made from, but for texts."""
        worst = from_json(row["worst"])
        held = from_json(row["budget"])
        candidates = [
            Candidate(
                self.model(item.model),
                dict(item.cost),
                dict(worst) if item.model == decision.model.name else dict(item.cost),
                item.gain or 0.0,
                item.gain_sd or 0.0,
            )
            for item in decision.candidates
            if item.score is not None
        ]
        return StepContext(
            task=task,
            role=decision.role,
            step=row["position"],
            candidates=candidates,
            progress=decision.progress,
            budget=BudgetState(
                self._accounts.limits, held.get("spent", {}), held.get("reserved", {}), held.get("queues", {})
            ),
            ledger=steps,
            draws=self._draws,
            group=(task.dimension or task.domain, task.source, decision.role),
            text=row["prompt"],
            tried=tried,
            memo=unpack_memo(row["memo"]),
        )


def outcome_of(row: Mapping[str, Any]) -> Outcome:
    """An outcome as it was observed."""
    return Outcome(
        call_id=row["call_id"],
        model=row["model"],
        prompt_tokens=row["prompt_tokens"],
        completion_tokens=row["completion_tokens"],
        cached_tokens=row["cached_tokens"],
        written_tokens=row["written_tokens"],
        tokens_estimated=bool(row["tokens_estimated"]),
        usd=row["usd"],
        seconds=row["seconds"],
        energy_j=row["energy_j"],
        energy_source=row["energy_source"],
        amounts=from_json(row["amounts"]),
        error=row["error"],
        evidence=evidence_of(row),
    )


def step_of(row: Mapping[str, Any], outcome: Outcome) -> Step:
    """The ledger's step of an outcome; its output only where it was kept."""
    return Step(
        id=row["decision"],
        role=row["role"],
        model=row["model"],
        output=row["output"] or "",
        outcome=outcome,
        g=row["g"],
    )


def evidence_of(row: Mapping[str, Any]) -> list[Evidence]:
    """What was observed."""
    return [Evidence(**item) for item in from_json(row["evidence"])]


def progress_of(row: Mapping[str, Any]) -> Progress:
    """Progress as five columns hold it."""
    return Progress(row["g"], Regime(row["regime"]), row["r"], row["d"], row["e"])


def task_of(row: Mapping[str, Any]) -> Task:
    """A task, its goal only where it was kept."""
    return Task(
        id=row["id"],
        goal=row["goal"] or "",
        domain=row["domain"],
        dimension=row["dimension"],
        source=row["source"],
        parent=row["parent"],
    )


def pack_memo(memo: Mapping[str, Any]) -> str | None:
    """What policies worked out of what is not kept: embeddings of texts, the facts the trees read, and single numbers,
    which follow from beliefs of that moment."""
    kept: dict[str, Any] = {}
    for key, value in memo.items():
        if type(value) is float:
            kept[key] = value
        elif key.startswith(VECTORS):
            kept[key] = pack(value, "<f4")
    facts = memo.get("facts")
    if facts is not None:
        state = facts.state
        kept["facts"] = {
            "state": state.numbers.tolist(),
            "role": state.role,
            "last_model": state.last_model,
            "calls": dict(state.calls),
            "roles": dict(state.roles),
            "models": facts.models,
            "numbers": facts.numbers.tolist(),
        }
    return plain_json(kept) if kept else None


def unpack_memo(text: str | None) -> dict[str, Any]:
    """Read what `pack_memo` made."""
    if not text:
        return {}
    memo: dict[str, Any] = from_json(text)
    for key, value in memo.items():
        if key.startswith(VECTORS):
            memo[key] = unpack(value, "<f4", -1)
    facts = memo.get("facts")
    if facts is not None:
        from steproute.predict.features import StateFacts, StepFacts

        names = ("role", "last_model", "calls", "roles")
        state = StateFacts(_floats(facts["state"]), *(facts[name] for name in names))
        memo["facts"] = StepFacts(state, tuple(facts["models"]), _floats(facts["numbers"]))
    return memo


def _floats(values: Any) -> Any:
    return np.array(values, dtype=np.float64).astype(np.float32)  # null is NaN: unknown
