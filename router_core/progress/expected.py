"""Progress when the evidence behind it may be wrong: what PACER calls transition progress is the change of this."""

from __future__ import annotations

from steproute.progress.score import DEFAULT_WEIGHTS, Progress, Regime, Weights


def expected_progress(progress: Progress, right: float, weights: Weights = DEFAULT_WEIGHTS) -> float:
    """E[g(s)] = P + (1 − P)·g_w, with P the probability that the work is right.

    g_w is what the state is worth if it is not: g itself while something is known to be missing; for a state that looks
    complete, the base of the partial regime, since then at least one thing is wrong that no check has seen.

    Args:
        progress: the state as its evidence shows it.
        right: P(the work is right | evidence), in [0, 1]; see `steproute.evidence.EvidenceModel.belief`.
        weights: of the progress formula.

    Raises:
        ValueError: `right` is no probability.
    """
    if not 0 <= right <= 1:
        raise ValueError(f"right: seen {right!r}; allowed: a probability in [0, 1]")
    worst = weights.partial.base if progress.regime is Regime.COMPLETE else progress.g
    return right + (1 - right) * worst
