"""Log lines of what a router does, through the standard logging module: logger `steproute.events`, level INFO."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from steproute.accounts import Accounts
from steproute.decision import Decision
from steproute.errors import BudgetExceeded, ConfigError, NoEligibleModel
from steproute.ledger import Outcome
from steproute.progress import Progress
from steproute.redact import redact
from steproute.taskstate import Made
from steproute.telemetry.words import error_kind, kind_of, prose, regret_estimate, word

NAME = "steproute.events"
"""The logger."""
FIELDS = "steproute"
"""Attribute of a log record that holds the fields of an event."""


class JsonLines(logging.Formatter):
    """Any log record as one JSON object: `time`, `level`, `logger`, `message`, and the fields of an event."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        moment = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": redact(record.getMessage()),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
        return json.dumps(line, ensure_ascii=False, default=str)


class Events:
    """See `steproute.telemetry.listener.Channel`."""

    def __init__(self, where: bool | str | Path, prompts: bool):
        """Say where the lines go.

        Args:
            where: True = to whatever handlers the host's logging has; `"stderr"`; or the path of a file.
            prompts: whether prompts and outputs may be in the lines.

        Raises:
            ConfigError: the file cannot be written.
        """
        self._prompts = prompts
        self._handler: logging.Handler | None = None
        self._logger = logging.getLogger(NAME)
        if where is True:
            return
        try:
            self._handler = (
                logging.StreamHandler(sys.stderr)
                if where == "stderr"
                else logging.FileHandler(Path(str(where)), encoding="utf-8")
            )
        except OSError as error:
            raise ConfigError(f"telemetry: logs: {where} cannot be written ({error.strerror})") from None
        self._handler.setFormatter(JsonLines())
        # of its own and below no other: what is for a file is not for the host's handlers, nor for another router's file
        self._logger = logging.Logger(NAME, logging.INFO)
        self._logger.addHandler(self._handler)

    def decided(self, made: Made, pinned: bool, began_ns: int, seconds: float) -> None:
        """One line per decision."""
        decision = made.decision
        fields: dict[str, Any] = {
            **_step(decision),
            "model": word(decision.model.name),
            "policy": word(decision.policy),
            "kind": kind_of(decision, pinned),
            "reason": word(decision.reason),
            "propensity": decision.propensity,
            "g": decision.progress.g,
            "regime": decision.progress.regime.label,
            "scores": {word(item.model): _finite(item.score) for item in decision.candidates if item.score is not None},
            "left_out": [word(item.model) for item in decision.candidates if item.score is None],
            "regret_estimate": regret_estimate(decision),
            "decide_seconds": round(seconds, 6),
        }
        if self._prompts and made.context.text:
            fields["prompt"] = prose(made.context.text)
        self._say("decision", f"{fields['model']} for {fields['task']} {fields['step']}", fields)

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
        """One line per call that was paid for."""
        fields: dict[str, Any] = {
            **_step(decision),
            "model": word(model),
            "answers": answers,
            "prompt_tokens": outcome.prompt_tokens,
            "completion_tokens": outcome.completion_tokens,
            "cached_tokens": outcome.cached_tokens,
            "tokens_estimated": outcome.tokens_estimated,
            "seconds": outcome.seconds,
            "spent": {word(name): amount for name, amount in spent.items()},
            "energy_source": word(outcome.energy_source),
            "error": None if outcome.error is None else error_kind(outcome.error),
            "g": progress.g,
        }
        if self._prompts and output:
            fields["output"] = prose(output)
        if self._prompts and outcome.error is not None:
            fields["error_text"] = prose(outcome.error)
        said = "answered" if outcome.error is None else "failed"
        self._say("outcome", f"{fields['model']} {said} {fields['task']} {fields['step']}", fields)

    def ended(
        self, task: str, reward: float | None, idle: bool, spent: Mapping[str, float], accounts: Accounts
    ) -> None:
        """One line per end of a task."""
        fields = {
            "task": word(task),
            "reward": reward,
            "idle": idle,
            "spent": {word(name): amount for name, amount in spent.items()},
            "queues": {word(name): value for name, value in accounts.queues.items()},
        }
        self._say("task", f"{fields['task']} ended", fields)

    def refused(self, task: str, role: str, error: BudgetExceeded | NoEligibleModel) -> None:
        """One line per step that no model could be chosen for."""
        fields: dict[str, Any] = {"task": word(task), "role": word(role), "error": type(error).__name__}
        if isinstance(error, BudgetExceeded):
            fields |= {
                "resource": word(error.resource),
                "limit": error.limit,
                "spent": error.spent,
                "asked": error.asked,
            }
        else:
            fields["left_out"] = [word(name) for name in error.reasons]
        self._say("refusal", f"no model for {fields['task']}", fields)

    def failed(self, where: str, error: Exception) -> None:
        """One line per fault of the router itself; its text may quote the user and stays out."""
        self._say("error", f"{where} failed inside", {"where": where, "error": type(error).__name__}, logging.ERROR)

    def _say(self, event: str, message: str, fields: Mapping[str, Any], level: int = logging.INFO) -> None:
        self._logger.log(level, "%s: %s", event, message, extra={FIELDS: {"event": event, **fields}})

    def close(self) -> None:
        """Let go of the file."""
        if self._handler is not None:
            self._logger.removeHandler(self._handler)
            self._handler.close()
            self._handler = None


def _step(decision: Decision) -> dict[str, Any]:
    return {
        "decision": decision.id,
        "task": word(decision.task),
        "step": word(decision.step),
        "attempt": decision.attempt,
        "role": word(decision.role),
    }


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.copysign(1e308, value)
