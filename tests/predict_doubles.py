"""Contexts and samples for the tests of the gain predictor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from steproute import Ledger, Model, Profile, Regime, Step, Task
from steproute.draws import Draws
from steproute.policies import BudgetState, Candidate, Feedback, StepContext
from steproute.predict.buffer import Sample
from steproute.predict.features import MODEL, STATE, StateFacts
from steproute.progress import Progress

MODELS = (
    Model("small", price="free", size_b=1, profile=Profile(decode_tokens_per_s=100, decode_j_per_token=0.5)),
    Model("large", price="free", size_b=30, profile=Profile(decode_tokens_per_s=20, decode_j_per_token=5)),
)


def make_context(
    text: str | None = None,
    task: str = "t",
    g: float = 0.3,
    steps: Sequence[Step] = (),
    tried: Sequence[str] = (),
    role: str = "coder",
    budget: BudgetState | None = None,
    **ledger: object,
) -> StepContext:
    book = Ledger(task=Task(id=task, goal="a goal"), steps=list(steps), **ledger)  # type: ignore[arg-type]
    costs = ({"energy_j": 100.0, "tokens": 500.0}, {"energy_j": 1500.0, "tokens": 500.0})
    return StepContext(
        task=book.task,
        role=role,
        step=len(steps),
        candidates=[Candidate(model, dict(cost), dict(cost)) for model, cost in zip(MODELS, costs, strict=True)],
        progress=Progress(g, Regime.RECOVERABLE, 0.5, 0.1, 0.5),
        budget=budget or BudgetState({}, {}, {}, {}),
        ledger=book,
        draws=Draws(0),
        text=text,
        tried=tuple(tried),
    )


def feedback(context: StepContext, index: int, gain: float, reliability: float = 1.0) -> Feedback:
    return Feedback(context, index, gain, context.progress, reliability, {})


def samples(
    n: int,
    rule: Callable[[StateFacts, str, np.ndarray], float],
    per_task: int = 4,
    dim: int = 16,
    seed: int = 0,
) -> list[Sample]:
    """Rows whose gain follows a rule of state, model and embedding."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        numbers = np.zeros(len(STATE), dtype=np.float32)
        numbers[0], numbers[1] = rng.random() * 0.9, rng.integers(0, 3)
        state = StateFacts(numbers, "coder", "", {}, {})
        model = str(rng.choice(["small", "large"]))
        own = np.full(len(MODEL), np.nan, dtype=np.float32)
        own[0] = 0.3 if model == "small" else 0.7
        embedding = rng.standard_normal(dim).astype(np.float16)
        gain = float(np.clip(rule(state, model, embedding), -1, 1))
        found.append(Sample(f"task-{i // per_task}", model, state, own, embedding, gain, 1.0))
    return found
