"""Whether a log says anything about another policy: it must have tried what that policy would do, often enough."""

from __future__ import annotations

from steproute.errors import SteprouteError


class OverlapError(SteprouteError):
    """The log and the new policy have too little in common for an estimate."""


def check_overlap(
    ess: float, n: int, unseen: float, least_ess: float, most_unseen: float, policy: str, unit: str = "decisions"
) -> None:
    """Refuse what would be a guess.

    Args:
        ess: effective sample size, as it is to be expected.
        n: how many there are.
        unseen: share of what the new policy would do that the log could never have done.
        least_ess: least effective sample size.
        most_unseen: most of `unseen`.
        policy: the new policy's name.
        unit: what the sample is of.

    Raises:
        OverlapError: too thin; says by how much and what to do.
    """
    hint = "log with `explore: 0.01` or more, so that every model keeps a chance, or gather more"
    if unseen > most_unseen:
        raise OverlapError(
            f"overlap too thin: {policy!r} would do in {100 * unseen:.1f} % of {n} {unit} what the policy that ran had no "
            f"chance of doing; allowed: {100 * most_unseen:g} % ({hint})"
        )
    if ess < least_ess:
        raise OverlapError(
            f"overlap too thin: expected effective sample size {ess:.1f} of {n} {unit}; needed: {least_ess:g} ({hint})"
        )
