from __future__ import annotations

import pytest
from doubles import router

from steproute import ConfigError, Evidence, Model, Outcome, Price, Task
from steproute.backend import BackendError, ChatRequest, ChatResponse, Usage
from steproute.policies import make_policy
from steproute.policies.llm import LLMRouter, parse_answer

MODELS = [
    Model("small", price=Price(input=0.1, output=0.2), size_b=3),
    Model("large", price=Price(input=2, output=8), size_b=70),
]


@pytest.mark.parametrize("answer", ['{"model": "small"}', ' {"model":"small"}\n', "small", "\nsmall "])
def test_answers_that_count(answer: str):
    assert parse_answer(answer, ["small", "large"]) == "small"


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I would pick small.",
        "Small",
        '{"model": "medium"}',
        '{"model": "small", "why": "cheap"}',
        '["small"]',
        '{"model": ["small"]}',
        '```json\n{"model": "small"}\n```',
        '{"model": "small"} {"model": "large"}',
        "null",
        '{"model":',
    ],
)
def test_anything_else_is_an_abstention(answer: str):
    assert parse_answer(answer, ["small", "large"]) is None


class Asked:
    """Answers as told and keeps the prompts."""

    def __init__(self, *answers: str):
        self.answers, self.prompts = list(answers), []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self.answers[min(len(self.prompts), len(self.answers)) - 1]


def test_the_named_model_serves():
    ask = Asked('{"model": "large"}')
    decision = router(MODELS, policy=LLMRouter(ask=ask)).decide(
        Task(id="t", dimension="sql"), "coder", text="join tables"
    )
    assert decision.model.name == "large"
    (prompt,) = ask.prompts
    for part in ("- small: 3B parameters; $0.1 in, $0.2 out", "- large", "act as: coder", "<<<\njoin tables\n>>>"):
        assert part in prompt
    assert "sql" not in prompt
    assert "mean score" not in prompt


def test_dimension_and_statistics_are_shown_when_asked_for():
    ask = Asked('{"model": "large"}', '{"model": "small"}')
    policy = LLMRouter(LLMRouter.Config(dimension=True, statistics=True), ask=ask)
    steps = router(MODELS, policy=policy)
    for i, score in enumerate((1.0, 0.5)):
        decision = steps.decide(Task(id=f"t{i}", dimension="sql"), text="join")
        steps.observe(decision, Outcome(usd=0.02), output=str(i), evidence=[Evidence(source="tests", score=score)])
    steps.decide(Task(id="2", dimension="sql"), text="join")
    assert "Kind of task: sql" in ask.prompts[0]
    assert "mean score" not in ask.prompts[0]
    assert (
        "- large: 70B parameters; $2 in, $8 out per million tokens; mean score 1.00 over 1 requests of this kind; $0.02000"
        in (ask.prompts[2])
    )
    assert "mean score 0.50 over 1 requests" in ask.prompts[2]


@pytest.mark.parametrize(("fallback", "chosen"), [("strongest", "large"), ("cheapest", "small"), ("record", "large")])
def test_nonsense_is_counted_and_the_fallback_decides(fallback: str, chosen: str):
    policy = LLMRouter(LLMRouter.Config(fallback=fallback), ask=Asked("Certainly! I think..."))
    decision = router(MODELS, policy=policy).decide("t", text="hello")
    assert decision.model.name == chosen
    assert f"abstained; {fallback} decides" in decision.reason
    assert (policy.asked, policy.abstained) == (1, 1)


def test_the_record_decides_after_nonsense_once_there_is_one():
    policy = LLMRouter(ask=Asked('{"model": "small"}', '{"model": "large"}', '{"model": "large"}', "?"))
    steps = router(MODELS, policy=policy)
    for i, score in enumerate((1.0, 0.0, 0.0)):
        decision = steps.decide(Task(id=str(i), dimension="d"), text="x")
        steps.observe(decision, Outcome(), output=str(i), evidence=[Evidence(source="tests", score=score)])
    assert steps.decide(Task(id="3", dimension="d"), text="x").model.name == "small"


class Server:
    """A backend that answers once and then is down."""

    def __init__(self):
        self.requests: list[ChatRequest] = []

    def complete(self, request: ChatRequest) -> ChatResponse:
        self.requests.append(request)
        if len(self.requests) > 1:
            raise BackendError(request.model, "connect", "refused")
        return ChatResponse('{"model": "small"}', usage=Usage(120, 9))

    async def acomplete(self, request: ChatRequest) -> ChatResponse:
        raise NotImplementedError


def test_through_a_backend_and_when_it_is_down():
    server = Server()
    policy = LLMRouter(LLMRouter.Config(model="judge-7b", timeout=5), backend=server)
    steps = router(MODELS, policy=policy)
    assert steps.decide("1", text="hello").model.name == "small"
    assert policy.tokens == 129
    request = server.requests[0]
    assert (request.model, request.temperature, request.timeout) == ("judge-7b", 0.0, 5)
    assert steps.decide("2", text="hello").model.name == "large"
    assert (policy.asked, policy.abstained) == (2, 1)


def test_settings_that_cannot_answer_are_refused():
    with pytest.raises(ConfigError, match=r"policy llm: backend and model: seen '' and ''"):
        make_policy("llm")
    with pytest.raises(ConfigError, match="unknown name 'olama'; did you mean 'ollama'"):
        make_policy({"name": "llm:qwen", "backend": "olama"})
    with pytest.raises(ConfigError, match="did you mean 'statistics'"):
        make_policy({"name": "llm", "statistic": True})
    with pytest.raises(ConfigError, match="backend_settings"):
        make_policy({"name": "llm:m", "backend": "scripted", "backend_settings": {"nonsense": 1}})


def test_a_long_request_is_shown_at_both_ends():
    ask = Asked("small")
    router(MODELS, policy=LLMRouter(ask=ask)).decide("t", text="A" * 5000 + "B" * 5000)
    assert len(ask.prompts[0]) < 7000
    assert "A" * 3000 in ask.prompts[0]
    assert "B" * 3000 in ask.prompts[0]


@pytest.mark.parametrize(
    "answer", [None, 7, ["small"], "[" * 100_000, '{"model": ["small"]}', '{"model": "small", "why": "x"}']
)
def test_answers_of_any_kind_are_abstentions(answer: object) -> None:
    policy = LLMRouter(ask=lambda prompt: answer)  # type: ignore[arg-type, return-value]
    decision = router(MODELS, policy=policy).decide(Task(id="t", goal="add two numbers"))
    assert decision.reason == "the routing model abstained; record decides"
    assert (policy.asked, policy.abstained) == (1, 1)


def test_weights_on_disk_are_served_here(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    class Loaded:
        def __init__(self, **settings: object) -> None:
            seen.update(settings)

    class Point:
        name = "local"

        def load(self) -> type:
            return Loaded

    monkeypatch.setattr("steproute.policies.llm.entry_points", lambda group: [Point()])
    make_policy("llm:/models/router.gguf")
    assert seen == {"models": {"/models/router.gguf": "/models/router.gguf"}}
    with pytest.raises(ConfigError, match="policy llm: backend and model"):
        make_policy("llm:gpt-5")
