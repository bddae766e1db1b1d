"""What a router tells the outside while it runs: OpenTelemetry spans, Prometheus metrics, log lines in JSON.

`Router(models, telemetry=True)` or `telemetry: true` in `steproute.yaml`; extra `telemetry`. Nothing of it is loaded, and
no step pays for it, where it is off. `docs/observability.md` lists every name.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steproute.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from steproute.accounts import Accounts
    from steproute.faults import Faults
    from steproute.telemetry.listener import Listener

__all__ = ["Telemetry", "as_telemetry", "under"]


@dataclass(frozen=True)
class Telemetry:
    """Which signals a router gives, and where they go."""

    spans: bool = True
    """One OpenTelemetry span per decision."""
    metrics: bool = True
    """Prometheus metrics."""
    logs: bool | str | Path = False
    """Log lines of the logger `steproute.events`. True = your own logging configuration decides where they go; `"stderr"`
    or the path of a file = they are written there as JSON lines."""
    prompts: bool = False
    """True = prompts, outputs and texts of errors are in spans and log lines, without what looks like a key."""
    port: int | None = None
    """Serve the metrics over HTTP on this port; None = something else does."""
    address: str = "127.0.0.1"
    """Where that port listens."""
    tracer_provider: TracerProvider | None = None
    """Whose spans they are; None = OpenTelemetry's global provider."""
    registry: CollectorRegistry | None = None
    """Where the metrics are registered; None = prometheus_client's own registry."""

    def __post_init__(self) -> None:
        for name in ("spans", "metrics", "prompts"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"telemetry: {name}: seen {getattr(self, name)!r}; allowed: true or false")
        if not isinstance(self.logs, (bool, str, Path)) or not str(self.logs):
            raise ConfigError(
                f'telemetry: logs: seen {self.logs!r}; allowed: true, false, "stderr" or the path of a file'
            )
        whole = isinstance(self.port, int) and not isinstance(self.port, bool)
        if self.port is not None and not (whole and 0 <= self.port <= 65535):
            raise ConfigError(f"telemetry: port: seen {self.port!r}; allowed: 0 to 65535")
        if self.port is not None and not self.metrics:
            raise ConfigError("telemetry: port: serves metrics, and `metrics` is false")
        if not isinstance(self.address, str) or not self.address:
            raise ConfigError(f"telemetry: address: seen {self.address!r}; allowed: a host name or an address")

    def listen(self, told: Any, accounts: Accounts, faults: Faults) -> Listener:
        """Set it up for a router.

        Args:
            told: the router's step log, which goes on hearing everything; None = there is none.
            accounts: the router's books.
            faults: counts what goes wrong in here.

        Raises:
            ConfigError: the port is taken, or the file cannot be written.
            ImportError: the extra `telemetry` is missing.
        """
        from steproute.telemetry.listener import Listener

        return Listener(self, told, accounts, faults)


def as_telemetry(given: Telemetry | Mapping[str, Any] | bool | None) -> Telemetry | None:
    """The settings meant by `true`, by a mapping of them, or by themselves; None = off.

    Raises:
        ConfigError: it is something else, or names a setting that does not exist.
    """
    if given is None or given is False:
        return None
    if given is True:
        return Telemetry()
    if isinstance(given, Telemetry):
        return given if given.spans or given.metrics or given.logs else None
    if not isinstance(given, Mapping):
        raise ConfigError(f"telemetry: seen a {type(given).__name__}; allowed: true, false, or settings of Telemetry")
    names = [field.name for field in fields(Telemetry)]
    for name in given:
        if name not in names:
            raise ConfigError(unknown_name("telemetry", str(name), names))
    return as_telemetry(Telemetry(**given))


def under(span: Any) -> AbstractContextManager[None]:
    """Makes a span that a host hands on by argument the current one inside a `with` block; None changes nothing."""
    if span is None:
        return nullcontext()
    from steproute.telemetry.spans import below

    return below(span)
