"""What a caller of LiteLLM hears when no model may serve a call: our two errors, with the status LiteLLM looks at."""

from __future__ import annotations

from typing import Any

from steproute.errors import BudgetExceeded, NoEligibleModel


class BudgetRefused(BudgetExceeded):
    """A hard limit leaves no deployment that fits. LiteLLM would retry 429, so its own status is 402; clients get 429."""

    status_code = 402
    http_status = 429

    def __init__(self, error: BudgetExceeded):
        super().__init__(error.resource, error.limit, error.spent, error.reserved, error.asked, error.task, error.payer)

    def body(self) -> dict[str, Any]:
        """The answer's `error` object: which limit, and how far it is used."""
        return {
            "message": str(self),
            "type": "budget_exceeded",
            "param": self.resource,
            "code": "budget_exceeded",
            "task": self.task,
            "limit": self.limit,
            "spent": self.spent,
            "reserved": self.reserved,
            "asked": self.asked,
        }


class NoModelFits(NoEligibleModel):
    """No deployment has what the call needs; the message says what each lacks."""

    status_code = 400
    http_status = 400

    def __init__(self, error: NoEligibleModel):
        super().__init__(error.role, error.reasons)

    def body(self) -> dict[str, Any]:
        """The answer's `error` object."""
        return {
            "message": str(self),
            "type": "no_eligible_model",
            "param": "model",
            "code": "no_eligible_model",
            "reasons": self.reasons,
        }


Refusal = BudgetRefused | NoModelFits


def refusal(error: BudgetExceeded | NoEligibleModel) -> Refusal:
    """The error as LiteLLM is to see it."""
    return BudgetRefused(error) if isinstance(error, BudgetExceeded) else NoModelFits(error)


def refusal_in(error: BaseException | None) -> Refusal | None:
    """Our refusal in a chain of errors."""
    for _ in range(8):
        if error is None or isinstance(error, (BudgetRefused, NoModelFits)):
            return error
        error = error.__cause__ or error.__context__
    return None
