"""mini-swe-agent's `Model`, routed: each of its queries goes to the model the router picks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from minisweagent.exceptions import FormatError
from minisweagent.models.utils.actions_text import format_observation_messages, parse_regex_actions
from pydantic import BaseModel, ConfigDict

from steproute.benchmarks.seat import Seat
from steproute.benchmarks.swebench.evidence import evidence_of
from steproute.ledger import Evidence

ROLE = "engineer"


class RoutedModelConfig(BaseModel):
    """Templates as in mini-swe-agent's configuration files, and the sampling."""

    model_config = ConfigDict(extra="forbid")

    observation_template: str
    format_error_template: str
    action_regex: str = r"```mswea_bash_command\s*\n(.*?)\n```"
    model_name: str = "steproute"
    temperature: float | None = 0.0
    max_tokens: int | None = None


class RoutedModel:
    """Serves mini-swe-agent's `DefaultAgent` from a seat; return codes, patches and test runs feed the ledger."""

    def __init__(self, seat: Seat, look: Callable[[], Sequence[Evidence]] = tuple, **settings: Any):
        """Sit down.

        Args:
            seat: of the task.
            look: says what can be seen of the change after a command.
            settings: see `RoutedModelConfig`.
        """
        self.config = RoutedModelConfig(**settings)
        self.seat = seat
        self._look = look

    def query(self, messages: list[dict[str, Any]], **kwargs: Any) -> dict[str, Any]:
        """The next message and the command in it.

        Raises:
            FormatError: the reply holds no command, or more than one; mini-swe-agent tells the model so.
            BackendError: every model failed.
        """
        response = self.seat.call(
            ROLE,
            [{"role": message["role"], "content": message["content"]} for message in messages],
            temperature=self.config.temperature,
            max_tokens=self.config.max_tokens,
            grows=True,
        )
        usd = self.seat.ledger.steps[-1].outcome.usd or 0.0
        try:
            actions = parse_regex_actions(
                response.content,
                action_regex=self.config.action_regex,
                format_error_template=self.config.format_error_template,
                template_kwargs={"finish_reason": response.finish_reason},
            )
        except FormatError as error:
            self.seat.report([Evidence(source="command", score=0, detail="not exactly one command")])
            error.messages[0]["extra"].update(cost=usd, response=response.content)
            raise
        extra = {"actions": actions, "cost": usd, "timestamp": time.time()}
        return {"role": "assistant", "content": response.content, "extra": extra}

    def format_message(self, **kwargs: Any) -> dict[str, Any]:
        """A message as it is."""
        return kwargs

    def format_observation_messages(
        self, message: dict[str, Any], outputs: list[dict[str, Any]], template_vars: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """What the commands printed, in the words of the template; the ledger hears of it too."""
        self.seat.report([item for output in outputs for item in evidence_of(output)] + list(self._look()))
        template = self.config.observation_template
        made = format_observation_messages(outputs, observation_template=template, template_vars=template_vars)
        return list(made)

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """For the prompts."""
        return self.config.model_dump()

    def serialize(self) -> dict[str, Any]:
        """For mini-swe-agent's trajectory files."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {"info": {"config": {"model": self.config.model_dump(), "model_type": kind}}}
