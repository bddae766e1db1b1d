"""A decision: the model chosen for one step, every candidate's score in terms, and the reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from steproute.models import Model
from steproute.progress import Progress


@dataclass(slots=True)
class CandidateScore:
    """How one model of the pool fared in a decision."""

    model: str
    score: float | None
    """None = it was not eligible, see `cause`."""
    terms: dict[str, float] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    """Expected cost per resource."""
    gain: float | None = None
    gain_sd: float | None = None
    propensity: float = 0.0
    cause: str = ""
    """Why it was left out; empty for a candidate that was scored."""


@dataclass(slots=True)
class Decision:
    """The router's answer for one step."""

    id: str
    task: str
    step: str
    """Key of the step within its task."""
    attempt: int
    role: str
    model: Model
    candidates: list[CandidateScore]
    progress: Progress
    policy: str
    propensity: float
    """Probability with which this model was chosen."""
    reason: str
    stop: bool = False
    """True = end the task here instead of calling `model` (only where the host allowed it)."""
    stop_score: float | None = None
    """What ending the task scored, where the host allowed it and the policy has a view on it."""
    explored: bool = False
    """True = drawn, and not the best by score."""
    fallback: bool = False
    """True = the router failed inside and the pool's default stands in."""
    created: float = 0.0
    """Clock time in seconds."""
    reservation: str | None = None
    prompt_tokens: int = 0

    def score_of(self, name: str) -> CandidateScore:
        """The entry of one model.

        Raises:
            KeyError: the pool did not have it.
        """
        for item in self.candidates:
            if item.model == name:
                return item
        raise KeyError(name)

    def why(self) -> str:
        """Every candidate with its score, the terms of the score, its expected cost, or the reason it was left out."""
        p = self.progress
        head = (
            f"task {self.task} · step {self.step} · attempt {self.attempt} · role {self.role or '-'} · policy {self.policy}\n"
            f"progress g={p.g:.3f} ({p.regime.label}: r={p.r:.2f} d={p.d:+.2f} e={p.e:.2f})\n"
            f"→ {'stop' if self.stop else self.model.name} with probability {self.propensity:.3g}: {self.reason}"
        )
        rows = [] if self.stop_score is None else [f"  (end the task): score {self.stop_score:+.4g}"]
        for item in sorted(self.candidates, key=lambda c: (c.score is None, -(c.score or 0.0))):
            if item.score is None:
                rows.append(f"  {item.model}: not eligible: {item.cause}")
                continue
            terms = "  ".join(f"{name}={value:+.4g}" for name, value in item.terms.items())
            cost = ", ".join(f"{name} {value:.4g}" for name, value in item.cost.items())
            gain = "" if item.gain is None else f"  gain {item.gain:.3f}±{item.gain_sd or 0:.3f}"
            rows.append(f"  {item.model}: score {item.score:+.4g}  [{terms}]{gain}  expected cost: {cost or 'unknown'}")
        return "\n".join([head, *rows])

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, for logs and reports."""
        return {
            "id": self.id,
            "task": self.task,
            "step": self.step,
            "attempt": self.attempt,
            "role": self.role,
            "model": self.model.name,
            "policy": self.policy,
            "propensity": self.propensity,
            "reason": self.reason,
            "stop": self.stop,
            "stop_score": self.stop_score,
            "explored": self.explored,
            "fallback": self.fallback,
            "created": self.created,
            "reservation": self.reservation,
            "prompt_tokens": self.prompt_tokens,
            "progress": self.progress.as_dict(),
            "candidates": [
                {
                    "model": item.model,
                    "score": item.score,
                    "terms": item.terms,
                    "cost": item.cost,
                    "gain": item.gain,
                    "gain_sd": item.gain_sd,
                    "propensity": item.propensity,
                    "cause": item.cause,
                }
                for item in self.candidates
            ],
        }
