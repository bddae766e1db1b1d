"""Progress g(s) of a ledger in [0, 1]."""

from steproute.progress.answers import MathView, RetrievalView
from steproute.progress.domains import view_for
from steproute.progress.expected import expected_progress
from steproute.progress.score import DEFAULT_WEIGHTS, Progress, Regime, RegimeWeights, Weights, score
from steproute.progress.tracker import ProgressTracker
from steproute.progress.views import CodeView, GenericView, Signals, View

__all__ = [
    "DEFAULT_WEIGHTS",
    "CodeView",
    "GenericView",
    "MathView",
    "Progress",
    "ProgressTracker",
    "Regime",
    "RegimeWeights",
    "RetrievalView",
    "Signals",
    "View",
    "Weights",
    "expected_progress",
    "score",
    "view_for",
]
