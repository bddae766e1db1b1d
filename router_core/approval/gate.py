"""Where the gate stands: which runs need an approval, and what is put before their backend."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from steproute.approval.cap import CappedBackend, SpendingCap
from steproute.approval.file import ApprovalError, costs, read_approval
from steproute.backend import Backend
from steproute.models import Model


def loopback(url: str | None) -> bool:
    """Whether a server is on this machine."""
    host = urlsplit(url or "").hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def needs_approval(backend: str, base_url: str | None, pool: Sequence[Model]) -> bool:
    """Whether a run's calls may cost money.

    Recordings, weights in this process and Ollama are free; so is a server on this machine if every model has the price 0.
    """
    if backend != "litellm":
        return False
    return not (loopback(base_url) and all(model.price != "unknown" and not costs(model.price) for model in pool))


def approve(backend: Backend, path: Path, pool: Sequence[Model], benchmark: str) -> CappedBackend:
    """Put the cap of an approval before a backend.

    Raises:
        ApprovalError: there is no approval, it does not hold, or does not cover the pool.
    """
    approval = read_approval(path)
    prices = approval.prices(pool, str(path))
    limits = {model.provider_name: model.max_output for model in pool}
    return CappedBackend(backend, SpendingCap(book_of(path), approval.usd), prices, limits, benchmark)


def approve_beside(deployment: str, base_url: str | None, path: Path) -> SpendingCap | None:
    """The cap for a model that a benchmark's own package calls, past every backend of ours; None = it is on this machine.

    Nobody can stand before each of its calls: what they cost has to be entered afterwards.

    Raises:
        ApprovalError: there is no approval, or it does not name the model.
    """
    if loopback(base_url) or (base_url is None and deployment.startswith(("ollama/", "ollama_chat/"))):
        return None
    approval = read_approval(path)
    if deployment not in approval.models:
        raise ApprovalError(f"{path}: models: {deployment!r} is not approved; named: {', '.join(approval.models)}")
    return SpendingCap(book_of(path), approval.usd)


def stop_if_refused(backend: Backend) -> None:
    """Raise what a framework between the caller and the backend may have swallowed.

    Raises:
        ApprovalError: a call was refused.
    """
    refusal: ApprovalError | None = getattr(backend, "refusal", None)
    if refusal is not None:
        raise refusal


def book_of(path: Path) -> Path:
    """Where the spending under an approval is kept: `approval.yaml` → `approval.spent.db`."""
    return path.with_suffix(".spent.db")
