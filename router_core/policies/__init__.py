"""Policies by name. A policy of your own is any object with `name` and `score(context)`."""

from steproute.policies.base import (
    BudgetState,
    Candidate,
    Feedback,
    Floats,
    Policy,
    PolicyConfig,
    Scores,
    StepContext,
)
from steproute.policies.registry import make_policy, policy_names

__all__ = [
    "BudgetState",
    "Candidate",
    "Feedback",
    "Floats",
    "Policy",
    "PolicyConfig",
    "Scores",
    "StepContext",
    "make_policy",
    "policy_names",
]
