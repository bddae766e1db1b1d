from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("prometheus_client")

from opentelemetry.trace import SpanKind, StatusCode

from steproute import Budget, BudgetExceeded, Model, NoEligibleModel, Outcome, Price
from steproute.ledger import Evidence


def step(router, task="t1", **outcome):
    decision = router.decide(task, "coder", text="write it", max_tokens=100, prompt_tokens=50)
    given = {"prompt_tokens": 1000, "completion_tokens": 500, "cached_tokens": 200, "seconds": 3.0, **outcome}
    router.observe(
        decision, Outcome(**given), output="done", evidence=[Evidence(source="examples", score=1.0, count=4)]
    )
    return decision


def test_a_decision_is_one_span_with_the_genai_attributes(world):
    router = world.make()
    decision = step(router)
    (span,) = world.spans()
    assert span.name == "decide large"
    assert span.kind is SpanKind.INTERNAL
    assert span.status.status_code is StatusCode.UNSET
    assert span.instrumentation_scope.name == "steproute"
    assert span.links == ()
    assert span.parent is None
    found = dict(span.attributes)
    assert found.pop("steproute.decide_seconds") > 0
    after = found.pop("steproute.progress.after")
    assert after == router.progress("t1").g
    assert found.pop("steproute.expected.usd") > 0
    assert found.pop("steproute.expected.tokens") > 50
    assert 0 < found.pop("steproute.expected.gain") < 1
    assert found == {
        "gen_ai.operation.name": "decide",
        "gen_ai.conversation.id": "t1",
        "gen_ai.agent.name": "coder",
        "gen_ai.request.model": "vendor/large-1",
        "gen_ai.response.model": "vendor/large-1",
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 500,
        "gen_ai.usage.cache_read.input_tokens": 200,
        "steproute.decision.id": decision.id,
        "steproute.model": "large",
        "steproute.step": "0",
        "steproute.attempt": 1,
        "steproute.policy": "strongest",
        "steproute.kind": "best",
        "steproute.reason": "highest prior quality",
        "steproute.propensity": 1.0,
        "steproute.progress.before": decision.progress.g,
        "steproute.regime": decision.progress.regime.label,
        "steproute.prompt_tokens.expected": 50,
        "steproute.regret.estimate": 0.0,
        "steproute.candidates": ("small", "large"),
        "steproute.scores": (0.2, 0.9),
        "steproute.outcome": "answered",
        "steproute.tokens_estimated": False,
        "steproute.spent.usd": 0.02,  # (1000 · $10 + 500 · $20) per million
        "steproute.spent.seconds": 3.0,
        "steproute.spent.tokens": 1500.0,
    }  # fmt: skip


def test_the_span_is_below_the_current_one_and_linked_to_the_calls(world):
    router = world.make()
    with world.tracer.start_as_current_span("agent") as agent:
        decision = router.decide("t1", "coder")
        with world.tracer.start_as_current_span("chat vendor/large-1") as call:
            router.observe(decision, Outcome(prompt_tokens=1))
    span = next(item for item in world.spans() if item.name == "decide large")
    assert span.parent.span_id == agent.get_span_context().span_id
    assert span.context.trace_id == agent.get_span_context().trace_id
    assert [link.context.span_id for link in span.links] == [
        agent.get_span_context().span_id,
        call.get_span_context().span_id,
    ]


def test_the_same_decision_asked_for_twice_is_one_span(world):
    router = world.make()
    first, again = router.decide("t1", "coder"), router.decide("t1", "coder")
    assert first is again
    outcome = Outcome(prompt_tokens=1)
    router.observe(first, outcome)
    router.observe(first, outcome)
    assert len(world.spans()) == 1
    assert world.value("steproute_decisions_total", model="large", policy="strongest", kind="best") == 1
    assert world.value("steproute_calls_total", model="large", result="ok") == 1


def test_a_failed_call_is_an_error_of_a_few_kinds(world):
    router = world.make()
    decision = router.decide("t1", "coder")
    router.observe(decision, Outcome(error="RateLimitError: 429 for 'my secret prompt'"))
    (span,) = world.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "rate_limit"
    assert span.attributes["error.type"] == "rate_limit"
    assert span.attributes["steproute.outcome"] == "failed"
    assert world.value("steproute_calls_total", model="large", result="rate_limit") == 1
    assert router.decide("t1", "coder").attempt == 2


def test_a_call_nobody_reports_ends_with_its_task(world):
    router = world.make()
    router.decide("t1", "coder")
    router.finish("t1")
    (span,) = world.spans()
    assert span.attributes["steproute.outcome"] == "unreported"
    router.decide("t2", "coder")
    router.close()
    assert len(world.spans()) == 2


def test_metrics_of_a_task(world):
    router = world.make()
    step(router)
    router.finish("t1", success=True)
    value = world.value
    assert value("steproute_decisions_total", model="large", policy="strongest", kind="best") == 1
    assert value("steproute_calls_total", model="large", result="ok") == 1
    assert value("steproute_tokens_total", model="large", kind="prompt") == 1000
    assert value("steproute_tokens_total", model="large", kind="cached") == 200
    assert value("steproute_tokens_total", model="large", kind="completion") == 500
    assert value("steproute_spent_total", model="large", resource="usd") == pytest.approx(0.02)
    assert value("steproute_spent_total", model="large", resource="seconds") == 3
    assert value("steproute_call_seconds_sum", model="large") == 3
    assert value("steproute_call_seconds_bucket", model="large", le="5.0") == 1
    assert value("steproute_call_seconds_bucket", model="large", le="2.5") == 0
    assert value("steproute_decide_seconds_count") == 1
    assert value("steproute_tasks_total", result="success") == 1
    assert value("steproute_queue", resource="usd") == pytest.approx(0.01)  # max(0, 0 + 0.02 − 0.01)
    assert value("steproute_budget_used_ratio_sum", resource="usd") == pytest.approx(0.02)
    assert value("steproute_budget_used_ratio_count", resource="usd") == 1
    assert value("steproute_regret_estimate_total", policy="strongest") == 0


def test_regret_is_estimated_where_another_than_the_best_is_drawn(world):
    router = world.make(explore=0.999, seed=1)
    for number in range(40):
        router.observe(router.decide(f"t{number}", "coder"), Outcome())
    explored = world.value("steproute_decisions_total", model="small", policy="strongest", kind="explored")
    assert explored > 5
    assert world.value("steproute_regret_estimate_total", policy="strongest") == pytest.approx(
        0.7 * explored
    )  # 0.9 − 0.2


def test_refusals_are_spans_metrics_and_lines(world):
    router = world.make(
        models=[Model("a", price=Price(input=1e6, output=1e6), roles=("coder",))], budget=Budget(usd=0.5)
    )
    with pytest.raises(BudgetExceeded):
        router.decide("t1", "coder", prompt_tokens=100)
    with pytest.raises(NoEligibleModel):
        router.decide("t1", "poet")
    assert world.value("steproute_refusals_total", cause="limit:usd") == 1
    assert world.value("steproute_refusals_total", cause="no_eligible_model") == 1
    one, other = world.spans()
    assert one.attributes["error.type"] == "BudgetExceeded"
    assert one.attributes["steproute.limit.resource"] == "usd"
    assert other.attributes["error.type"] == "NoEligibleModel"
    assert [line["error"] for line in world.lines() if line["event"] == "refusal"] == [
        "BudgetExceeded",
        "NoEligibleModel",
    ]


def test_faults_of_the_router_are_counted_by_place(world):
    router = world.make(on_error="fallback")
    decision = router.decide("t1", "coder", max_tokens=float("nan"))
    assert decision.model.name == "large"
    assert router.errors == 1
    assert world.value("steproute_errors_total", where="max_tokens") == 1
    (line,) = [line for line in world.lines() if line["event"] == "error"]
    assert line == {"event": "error", "where": "max_tokens", "error": "ConfigError"}


def test_lines_say_what_spans_say(world):
    router = world.make()
    decision = step(router)
    router.finish("t1", success=True)
    lines = world.lines()
    assert [line["event"] for line in lines] == ["decision", "outcome", "task"]
    first, second, third = lines
    assert first.pop("decide_seconds") > 0
    assert first == {
        "event": "decision", "decision": decision.id, "task": "t1", "step": "0", "attempt": 1, "role": "coder",
        "model": "large", "policy": "strongest", "kind": "best", "reason": "highest prior quality", "propensity": 1.0,
        "g": decision.progress.g, "regime": decision.progress.regime.label, "scores": {"small": 0.2, "large": 0.9},
        "left_out": [], "regret_estimate": 0.0,
    }  # fmt: skip
    assert second["spent"] == {"usd": 0.02, "seconds": 3.0, "tokens": 1500.0}
    assert (second["model"], second["error"], second["answers"]) == ("large", None, True)
    assert third["reward"] == 1.0
    assert third["queues"] == {"usd": pytest.approx(0.01)}


def test_a_channel_that_fails_neither_stops_the_step_nor_hides_it_from_the_others(world):
    router = world.make(on_error="fallback")

    def broken(*_: object) -> None:
        raise RuntimeError("inside")

    router._log.channels[0].decided = broken
    decision = step(router)
    assert decision.model.name == "large"
    assert router.errors == 1
    assert world.value("steproute_decisions_total", model="large", policy="strongest", kind="best") == 1
