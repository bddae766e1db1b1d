"""What another policy would have been worth, from the log of the one that ran."""

from steproute.evaluate.estimators import Estimate, doubly_robust, ips, per_decision_ips, snips
from steproute.evaluate.overlap import OverlapError
from steproute.evaluate.propensity import best_chances, logged_propensities
from steproute.evaluate.study import Evaluation, evaluate

__all__ = [
    "Estimate",
    "Evaluation",
    "OverlapError",
    "best_chances",
    "doubly_robust",
    "evaluate",
    "ips",
    "logged_propensities",
    "per_decision_ips",
    "snips",
]
