"""Prometheus metrics of a router; no label grows with tasks, roles or texts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, start_http_server
except ImportError as error:
    raise ImportError(f"telemetry needs prometheus-client ({error}): pip install 'steproute[telemetry]'") from error

from steproute.accounts import Accounts
from steproute.decision import Decision
from steproute.errors import BudgetExceeded, ConfigError, NoEligibleModel
from steproute.ledger import Outcome
from steproute.progress import Progress
from steproute.taskstate import Made
from steproute.telemetry.words import error_kind, kind_of, regret_estimate, word

DECIDE_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
CALL_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
USED_BUCKETS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0)


class Instruments:
    """The metrics themselves, once per registry."""

    def __init__(self, registry: CollectorRegistry):
        to: dict[str, Any] = {"registry": registry}
        self.decisions = Counter(
            "steproute_decisions", "Decisions, by how they came about.", ["model", "policy", "kind"], **to
        )
        self.refusals = Counter(
            "steproute_refusals", "Steps that no model could be chosen for, by cause.", ["cause"], **to
        )
        self.calls = Counter("steproute_calls", "Calls heard of, by result.", ["model", "result"], **to)
        self.errors = Counter("steproute_errors", "Faults of the router that were kept from its host.", ["where"], **to)
        self.tokens = Counter("steproute_tokens", "Tokens of calls.", ["model", "kind"], **to)
        self.spent = Counter("steproute_spent", "What calls took, in the resource's unit.", ["model", "resource"], **to)
        self.regret = Counter(
            "steproute_regret_estimate",
            "Estimated worth lost to choices other than the best by score.",
            ["policy"],
            **to,
        )
        self.tasks = Counter("steproute_tasks", "Tasks that ended, by result.", ["result"], **to)
        self.queue = Gauge(
            "steproute_queue",
            "Virtual queue of a long-run target, in the resource's unit.",
            ["resource"],
            multiprocess_mode="mostrecent",
            **to,
        )
        self.used = Histogram(
            "steproute_budget_used_ratio",
            "Part of a limit that a task had spent when it ended.",
            ["resource"],
            buckets=USED_BUCKETS,
            **to,
        )
        self.decide = Histogram("steproute_decide_seconds", "Time a decision took.", buckets=DECIDE_BUCKETS, **to)
        self.call = Histogram("steproute_call_seconds", "Time a call took.", ["model"], buckets=CALL_BUCKETS, **to)


# prometheus_client refuses a name that is registered twice, and two routers of one process count together
_INSTRUMENTS: WeakKeyDictionary[CollectorRegistry, Instruments] = WeakKeyDictionary()


class Metrics:
    """See `steproute.telemetry.listener.Channel`."""

    def __init__(self, registry: CollectorRegistry | None, address: str, port: int | None):
        """Register the metrics, and serve them where a port is given.

        Raises:
            ConfigError: the port cannot be opened.
        """
        self.registry = registry if registry is not None else REGISTRY
        if self.registry not in _INSTRUMENTS:
            _INSTRUMENTS[self.registry] = Instruments(self.registry)
        self._to = _INSTRUMENTS[self.registry]
        self.port: int | None = None
        self._server: Any = None
        if port is not None:
            try:
                self._server, _ = start_http_server(port, addr=address, registry=self.registry)
            except OSError as error:
                raise ConfigError(f"telemetry: port: {address}:{port} cannot be opened ({error.strerror})") from None
            self.port = int(self._server.server_port)

    def decided(self, made: Made, pinned: bool, began_ns: int, seconds: float) -> None:
        """Count a decision."""
        decision = made.decision
        self._to.decisions.labels(word(decision.model.name), word(decision.policy), kind_of(decision, pinned)).inc()
        self._to.regret.labels(word(decision.policy)).inc(regret_estimate(decision))
        self._to.decide.observe(seconds)

    def observed(
        self,
        decision: Decision,
        outcome: Outcome,
        model: str,
        spent: Mapping[str, float],
        progress: Progress,
        output: str,
        answers: bool,
    ) -> None:
        """Count a call and what it took."""
        to, name = self._to, word(model)
        to.calls.labels(name, "ok" if outcome.error is None else error_kind(outcome.error)).inc()
        to.tokens.labels(name, "prompt").inc(outcome.prompt_tokens)
        to.tokens.labels(name, "cached").inc(outcome.cached_tokens)
        to.tokens.labels(name, "completion").inc(outcome.completion_tokens)
        for resource, amount in spent.items():
            if amount > 0:
                to.spent.labels(name, word(resource)).inc(amount)
        if outcome.error is None:
            to.call.labels(name).observe(outcome.seconds)

    def ended(
        self, task: str, reward: float | None, idle: bool, spent: Mapping[str, float], accounts: Accounts
    ) -> None:
        """Count a task, its use of the limits, and show where the queues are."""
        result = "idle" if idle else "unknown" if reward is None else "success" if reward >= 1 else "failure"
        self._to.tasks.labels(result).inc()
        for resource, limit in accounts.limits.items():
            if limit.limit is not None:
                self._to.used.labels(word(resource)).observe(spent.get(resource, 0.0) / limit.limit)
        for resource, queue in accounts.queues.items():
            self._to.queue.labels(word(resource)).set(queue)

    def refused(self, task: str, role: str, error: BudgetExceeded | NoEligibleModel) -> None:
        """Count a refusal."""
        cause = f"limit:{word(error.resource)}" if isinstance(error, BudgetExceeded) else "no_eligible_model"
        self._to.refusals.labels(cause).inc()

    def failed(self, where: str, error: Exception) -> None:
        """Count a fault."""
        self._to.errors.labels(where).inc()

    def close(self) -> None:
        """Give the port back."""
        if self._server is not None:
            self._server.shutdown()
            with suppress(OSError):  # a connection that is gone has nothing left to close
                self._server.server_close()
            self._server = None
