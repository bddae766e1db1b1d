"""steproute picks, for every single LLM call an agent makes, which model serves it."""

from steproute.budget import Budget, Limit, Tail
from steproute.decision import CandidateScore, Decision
from steproute.errors import BudgetExceeded, ConfigError, LedgerError, NoEligibleModel, SteprouteError, StoreError
from steproute.ledger import Evidence, Ledger, Outcome, Step, Subtask, Task, ToolCall
from steproute.models import Model, ModelPool, Needs, Price, Profile, Serving
from steproute.progress import Progress, Regime
from steproute.router import Router

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "BudgetExceeded",
    "CandidateScore",
    "ConfigError",
    "Decision",
    "Evidence",
    "Ledger",
    "LedgerError",
    "Limit",
    "Model",
    "ModelPool",
    "Needs",
    "NoEligibleModel",
    "Outcome",
    "Price",
    "Profile",
    "Progress",
    "Regime",
    "Router",
    "Serving",
    "Step",
    "SteprouteError",
    "StoreError",
    "Subtask",
    "Tail",
    "Task",
    "ToolCall",
]
