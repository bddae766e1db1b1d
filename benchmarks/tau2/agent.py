"""tau2's own agent with one change: each of its messages comes from the model the router picks for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

try:
    from tau2.agent.llm_agent import LLMAgent
    from tau2.data_model.message import AssistantMessage, MultiToolMessage, ToolMessage
    from tau2.data_model.message import ToolCall as Tau2ToolCall
    from tau2.utils.llm_utils import to_litellm_messages
except ImportError as error:
    from steproute.benchmarks.tau2.package import INSTALL

    raise ImportError(f"{INSTALL} ({error})") from error

from steproute.backend import ChatResponse
from steproute.benchmarks.seat import Seat, fingerprint
from steproute.ledger import Evidence, ToolCall

NAME = "steproute"
"""Of the agent in tau2's registry."""
TRIES = 3
"""Times an empty reply is asked for again; each counts as a step whose output was unusable."""


class RoutedAgent(LLMAgent):  # type: ignore[misc]
    """Prompts, tools and state are tau2's; `llm_args["seat"]` is the seat the agent works from."""

    def __init__(
        self, tools: list[Any], domain_policy: str, llm: str | None = None, llm_args: dict[str, Any] | None = None
    ) -> None:
        settings = dict(llm_args or {})
        self.seat: Seat = settings.pop("seat")
        super().__init__(tools=tools, domain_policy=domain_policy, llm=llm or NAME, llm_args=settings)
        self._asked: dict[str, ToolCall] = {}
        self.seat.ledger.notes["policy"] = domain_policy
        self.seat.ledger.notes["actions"] = []

    def generate_next_message(self, message: Any, state: Any) -> tuple[Any, Any]:
        """Hear what came of the last message, then answer by the model chosen now."""
        incoming = message.tool_messages if isinstance(message, MultiToolMessage) else [message]
        self._hear(incoming)
        state.messages.extend(incoming)
        messages = to_litellm_messages(state.system_messages + state.messages)
        schemas = [tool.openai_schema for tool in self.tools]
        for attempt in range(1, TRIES + 1):
            response = self.seat.call(
                "agent",
                messages,
                tools=schemas,
                tool_choice="auto" if schemas else None,
                grows=True,
                **self._sampling(),
            )
            if response.content.strip() or response.tool_calls or attempt == TRIES:
                break
            self.seat.report([Evidence(source="syntax", score=0, detail="empty reply")])
        reply = self._message(response)
        state.messages.append(reply)
        return reply, state

    def _sampling(self) -> dict[str, Any]:
        known = ("temperature", "max_tokens", "seed", "timeout")
        return {name: self.llm_args[name] for name in known if name in self.llm_args}

    def _hear(self, incoming: Sequence[Any]) -> None:
        """Tell the ledger how the last step's tool calls ended; the customer's first words are the task's goal."""
        results = [item for item in incoming if isinstance(item, ToolMessage)]
        if not results:
            if not self.seat.ledger.steps:
                self.seat.ledger.task.goal = str(incoming[-1].content or "")[:2000]
            return
        calls = []
        for result in results:
            asked = self._asked.get(result.id)
            if asked is not None:
                error = str(result.content or "")[:200] if result.error else ""
                calls.append(asked.model_copy(update={"ok": not result.error, "error": error}))
        failed = [call for call in calls if not call.ok]
        share = 1 - len(failed) / len(calls) if calls else 0.0
        detail = failed[0].error if failed else ""
        self.seat.report([Evidence(source="tool", score=share, count=len(calls), detail=detail)], calls)
        actions = self.seat.ledger.notes["actions"]
        assert isinstance(actions, list)
        actions += [call.name for call in calls if call.ok]

    def _message(self, response: ChatResponse) -> Any:
        """The reply in tau2's form, with what it cost by our meter: tau2 counts a model it does not know as free."""
        calls = [
            Tau2ToolCall(id=call.id, name=call.name, arguments=_arguments(call.arguments))
            for call in response.tool_calls
        ]
        self._asked = {
            call.id: ToolCall(name=call.name, fingerprint=fingerprint(call.name, call.arguments))
            for call in response.tool_calls
        }
        outcome = self.seat.ledger.steps[-1].outcome
        return AssistantMessage(
            role="assistant",
            content=response.content or None,
            tool_calls=calls or None,
            cost=outcome.usd,
            usage={"prompt_tokens": outcome.prompt_tokens, "completion_tokens": outcome.completion_tokens},
        )


def _arguments(text: str) -> dict[str, Any]:
    """Arguments a model wrote; what is no JSON object becomes an argument no tool has, so that the tool says so."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        arguments = None
    return arguments if isinstance(arguments, dict) else {"unreadable_arguments": text}


def register(registry: Any) -> None:
    """Enter the agent into tau2's registry, as a class or, in newer versions, as a factory. Again changes nothing."""
    if NAME in registry.get_agents():
        return
    if hasattr(registry, "register_agent_factory"):
        registry.register_agent_factory(_make, NAME)
    else:
        registry.register_agent(RoutedAgent, NAME)


def _make(tools: list[Any], domain_policy: str, **settings: Any) -> RoutedAgent:
    return RoutedAgent(tools, domain_policy, settings.get("llm"), settings.get("llm_args"))


def build(registry: Any, environment: Any, seat: Seat, settings: dict[str, Any]) -> Any:
    """The registered agent for one task."""
    get = registry.get_agent_factory if hasattr(registry, "get_agent_factory") else registry.get_agent_constructor
    return get(NAME)(
        tools=environment.get_tools(),
        domain_policy=environment.get_policy(),
        llm=NAME,
        llm_args={**settings, "seat": seat},
    )
