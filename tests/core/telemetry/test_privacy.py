"""No prompt, key, cookie or authorization header leaves by a span, a metric or a log line, unless it is asked for."""

from __future__ import annotations

import json
import logging

import pytest

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("prometheus_client")

from prometheus_client import generate_latest

from steproute import Outcome
from steproute.errors import BudgetExceeded, NoEligibleModel
from steproute.ledger import Evidence, Ledger, Step, Task, ToolCall
from steproute.telemetry.events import JsonLines

KEY = "sk-proj-abcdEFGH1234567890abcd"
COOKIE = "session=s3cr3tc00kievalue42"
BEARER = "Bearer abcdef1234567890.ABCDEF"
PROMPT = "the patient's name is Rosalind"
OUTPUT = "her diagnosis is confidential"
TEXTS = (PROMPT, OUTPUT, "Rosalind", "diagnosis", COOKIE, "s3cr3tc00kievalue42")
SECRETS = (KEY, "abcdef1234567890")


def everything_said(world) -> str:
    spans = "\n".join(span.to_json() for span in world.spans())
    metrics = generate_latest(world.registry).decode()
    lines = "\n".join(JsonLines().format(record) for record in world.caplog.records)
    assert spans
    assert "steproute_decisions_total{" in metrics
    assert '"event": "decision"' in lines
    return "\n".join((spans, metrics, lines))


def live(router) -> None:
    headers = {"authorization": BEARER, "cookie": COOKIE, "x-api-key": KEY}
    ledger = Ledger(
        task=Task(id=f"task {KEY}", goal=PROMPT),
        notes={"headers": headers, "prompt": PROMPT},
        steps=[Step(role="coder", output=OUTPUT, tool_calls=[ToolCall(name="look", ok=False, error=PROMPT)])],
    )
    decision = router.decide(
        ledger, f"coder {BEARER}", step=f"one {KEY}", text=PROMPT, extra={"headers": headers, "prompt": PROMPT}
    )
    router.observe(
        decision, Outcome(error=f"401 Unauthorized: {headers} for {PROMPT!r}", energy_source=KEY), output=OUTPUT
    )
    decision = router.decide(ledger, f"coder {BEARER}", step=f"one {KEY}", text=PROMPT)
    evidence = Evidence(source="judge", score=0.5, detail=f"{OUTPUT} {COOKIE}")
    router.observe(decision, Outcome(prompt_tokens=5), output=f"{OUTPUT} {KEY}", evidence=[evidence])
    router.decide(ledger, "coder", text=PROMPT, max_tokens=PROMPT)  # a fault
    router.decide(ledger, "coder", step="z", needs=[PROMPT])  # another
    with pytest.raises((NoEligibleModel, BudgetExceeded)):
        router.decide(ledger, "coder", step="y", exclude=["small", "large"], text=PROMPT)
    router.finish(ledger.task.id, success=True)


def test_nothing_of_the_users_text_is_said(world):
    router = world.make(on_error="fallback")
    live(router)
    said = everything_said(world)
    assert router.errors >= 2
    for text in (*TEXTS, *SECRETS):
        assert text not in said, text
    assert "auth" in said  # the failure's kind


def test_prompts_are_said_where_they_are_asked_for_and_keys_never(world):
    router = world.make(prompts=True, on_error="fallback")
    live(router)
    said = everything_said(world)
    assert PROMPT in said
    assert OUTPUT in said
    for text in SECRETS:
        assert text not in said, text
    inputs = [span.attributes.get("gen_ai.input.messages") for span in world.spans()]
    assert json.loads(inputs[0]) == [{"role": "user", "parts": [{"type": "text", "content": PROMPT}]}]
    outputs = [span.attributes.get("gen_ai.output.messages") for span in world.spans()]
    (text,) = [json.loads(item)[0]["parts"][0]["content"] for item in outputs if item and "REDACTED" in item]
    assert text == f"{OUTPUT} REDACTED"
    metrics = generate_latest(world.registry).decode()
    assert not [text for text in TEXTS if text in metrics]


def test_json_lines_of_any_logger_are_redacted():
    record = logging.LogRecord("steproute", logging.WARNING, "f.py", 1, "call with %s failed", (KEY,), None)
    line = json.loads(JsonLines().format(record))
    assert line["message"] == "call with REDACTED failed"
    assert (line["level"], line["logger"]) == ("WARNING", "steproute")
    assert line["time"].endswith("Z")
