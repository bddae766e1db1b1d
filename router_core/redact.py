"""Take keys out of text: for error messages, logs and recordings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

REDACTED = "REDACTED"

_WITH_DIGIT = r"(?=[A-Za-z0-9._~+/=-]*\d)"
_TOKEN_FORMS = re.compile(
    "|".join(
        [
            rf"\bsk-{_WITH_DIGIT}[A-Za-z0-9_-]{{12,}}",  # OpenAI, Anthropic, OpenRouter, LiteLLM
            r"\bgh[pousr]_[A-Za-z0-9]{20,}",
            r"\bgithub_pat_[A-Za-z0-9_]{20,}",
            r"\bhf_[A-Za-z0-9]{20,}",
            r"\bAKIA[0-9A-Z]{16}\b",
            r"\bAIza[A-Za-z0-9_-]{30,}",
            r"\bxox[abposr]-[A-Za-z0-9-]{10,}",
            r"\b(?:gsk|pplx|xai|r8|nvapi|lsv2_pt|lsv2_sk)[-_][A-Za-z0-9_-]{20,}",
            r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",  # JSON web token
            rf"\b(?:org|proj|req)[-_]{_WITH_DIGIT}[A-Za-z0-9]{{10,}}",
        ]
    )
)
_BEARER = re.compile(rf"(?i)\b(bearer\s+){_WITH_DIGIT}[A-Za-z0-9._~+/=-]{{10,}}")
_USERINFO = re.compile(r"://[^/\s@\"']+@")
SECRET_QUERY = (
    r"(?:api[-_]?key|key|access[-_]token|auth|token|code|secret|sig|signature"
    r"|x-amz-(?:signature|credential|security-token))"
)
"""Pattern of the names of query parameters whose values are secret."""
_QUERY = re.compile(rf"(?i)([?&]{SECRET_QUERY}=)[^&\s\"'<>\\]+")
_SECRET_NAME = re.compile(r"(?i)(?:api_?key|_token|secret|password|secret_access_key)$")


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Text without what looks like a key and without the given secrets.

    Args:
        text: any text.
        secrets: exact strings to remove as well, e.g. the key a request was sent with.

    Returns:
        The text with each of them replaced by `REDACTED`; unchanged text where there is none.
    """
    for secret in sorted(set(secrets), key=len, reverse=True):
        if secret:
            text = text.replace(secret, REDACTED)
    text = _BEARER.sub(rf"\1{REDACTED}", text)
    text = _TOKEN_FORMS.sub(REDACTED, text)
    text = _USERINFO.sub(f"://{REDACTED}@", text)
    return _QUERY.sub(rf"\1{REDACTED}", text)


def distinctive(value: str, length: int = 6) -> bool:
    """Whether a credential can be searched for literally without hitting ordinary words."""
    return len(value) >= length and not value.isalpha() and not value.isspace()


def environment_secrets(environ: Mapping[str, str] | None = None) -> list[str]:
    """Values of environment variables named like a key, token, secret or password."""
    variables = os.environ if environ is None else environ
    return [value for name, value in variables.items() if _SECRET_NAME.search(name) and distinctive(value, 8)]
