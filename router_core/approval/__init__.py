"""The gate before live paid calls: they stay off until a file names the models and a spending cap (PACER's approval file)."""

from steproute.approval.cap import CappedBackend, SpendingCap, most_tokens
from steproute.approval.file import Approval, ApprovalError, approval_file, read_approval
from steproute.approval.gate import approve, approve_beside, book_of, loopback, needs_approval, stop_if_refused

__all__ = [
    "Approval",
    "ApprovalError",
    "CappedBackend",
    "SpendingCap",
    "approval_file",
    "approve",
    "approve_beside",
    "book_of",
    "loopback",
    "most_tokens",
    "needs_approval",
    "read_approval",
    "stop_if_refused",
]
