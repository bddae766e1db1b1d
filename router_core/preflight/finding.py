"""One thing a preflight found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from steproute.redact import redact

Level = Literal["ok", "skipped", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """What was looked at, and what was seen. `docs/observability.md` lists every code."""

    level: Level
    """`error`: it will not work, or not as configured; `warning`: it may; `skipped`: not looked at."""
    code: str
    """Stable name, `CHECK.WHAT`."""
    subject: str
    """The model, field, file or address it is about."""
    message: str

    def as_dict(self) -> dict[str, str]:
        """Plain JSON values, without what looks like a key."""
        return {name: redact(str(value)) for name, value in asdict(self).items()}
