"""A routed program of yours, tested offline: recorded once, replayed with the network off.

pytest examples/pytest_cassette.py                      # replays examples/cassettes/…
pytest examples/pytest_cassette.py --steproute-record   # asks the real server at STEPROUTE_EXAMPLE_URL again
"""

from __future__ import annotations

import os

import httpx
import pytest

from steproute import Budget, Model, Outcome, Router

URL = os.environ.get("STEPROUTE_EXAMPLE_URL", "http://127.0.0.1:8080/v1")


def answer(question: str) -> str:
    """The program under test: one routed call to any OpenAI-compatible server."""
    models = [
        Model("smollm2-135m", price="free", size_b=0.135),
        Model("qwen2.5-coder-0.5b", price="free", size_b=0.5),
    ]
    router = Router(models, Budget(seconds=60), policy="strongest")
    decision = router.decide("question-1", "assistant", text=question, max_tokens=16)
    body = {
        "model": decision.model.provider_name,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 16,
        "temperature": 0,
    }
    reply = httpx.post(f"{URL}/chat/completions", json=body, headers={"Authorization": "Bearer your-key"}, timeout=60)
    reply.raise_for_status()
    data = reply.json()
    usage = data["usage"]
    outcome = Outcome(prompt_tokens=usage["prompt_tokens"], completion_tokens=usage["completion_tokens"])
    text: str = data["choices"][0]["message"]["content"]
    router.observe(decision, outcome, output=text)
    router.finish("question-1", success=True)
    return text


@pytest.mark.routed_cassette("cassettes/pytest_cassette.yaml")
def test_answer(routed_cassette: object) -> None:
    assert "Paris" in answer("What is the capital of France? Answer in one word.")
