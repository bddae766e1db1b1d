"""What the proxy adds to its answers: headers that say what was decided, and a body that says what was refused."""

from __future__ import annotations

from typing import Any

from steproute.plugins.litellm.calls import Call
from steproute.plugins.litellm.refusals import Refusal


def response_headers(call: Call) -> dict[str, str]:
    """Headers about the decision whose model answered."""
    decision = call.attempts[-1].decision
    texts = (
        ("x-steproute-model", decision.model.name),
        ("x-steproute-reason", decision.reason),
        ("x-steproute-task", decision.task),
        ("x-steproute-step", decision.step),
    )
    headers = {name: _printable(text) for name, text in texts if text}
    headers["x-steproute-progress"] = f"{decision.progress.g:.3f}"
    headers["x-steproute-attempt"] = str(decision.attempt)
    headers["x-steproute-task-spent-usd"] = f"{call.spent:.9f}"
    return headers


def http_error(refused: Refusal, structured: bool) -> Any:
    """The proxy's answer to a refusal: its status, and a body that says which limit or which ability.

    Args:
        refused: what was refused; routes that look at it alone find the same status there.
        structured: True = this LiteLLM passes on an object as detail; False = it can only carry text.
    """
    from fastapi import HTTPException

    body = refused.body()
    refused.status_code = refused.http_status
    detail = body if structured else body["message"]
    error = HTTPException(refused.http_status, detail=detail, headers={"x-should-retry": "false"})
    error.message = body["message"]  # type: ignore[attr-defined]
    error.type, error.param = body["type"], body["param"]  # type: ignore[attr-defined]
    return error


def _printable(value: str) -> str:
    """Text that a header may carry."""
    text = value if value.isascii() else value.encode("ascii", "replace").decode()
    return " ".join(text.split())[:300]
