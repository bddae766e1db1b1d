"""Two scripted models for a team that solves one small problem."""

from __future__ import annotations

from steproute.backend import ChatRequest, ChatResponse, Usage
from steproute.integrations.scripted import ScriptedBackend

GOOD = "```python\ndef inc(x):\n    return x + 1\n```"
LUCKY = "```python\ndef inc(x):\n    return 2\n```"  # passes the example, fails the hidden test
BAD = "```python\ndef inc(x):\n    return x\n```"


def answer(reply: str, seconds: float) -> ChatResponse:
    return ChatResponse(reply, usage=Usage(10, 5), seconds=seconds)


def team_backend(weak: str, weak_fixing: str) -> ScriptedBackend:
    """`strong` is always right and takes 10 s; `weak` takes 1 s and says one thing at first, another when it corrects."""

    def say(request: ChatRequest) -> ChatResponse:
        if request.model == "strong":
            return answer(GOOD, 10)
        return answer(weak if len(request.messages) == 2 else weak_fixing, 1)

    return ScriptedBackend(say)
