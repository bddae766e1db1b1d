"""RoutedChatModel alone: it goes wherever a chat model goes, and each call is seen, counted and billed once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("langchain_openai")

from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langgraph_doubles import CALL, LARGE, SMALL, Turns
from pydantic import BaseModel
from servers import Hang, OllamaServer, OpenAIServer, Reply

from steproute import Budget, BudgetExceeded, ConfigError, Limit, Model, NoEligibleModel, Price, Router, Task
from steproute.ledger import Evidence, Outcome, Step, ToolCall
from steproute.plugins.langgraph import RoutedChatModel


class Heard(BaseCallbackHandler):
    """Counts what a host's callbacks are told."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended = 0
        self.failed = 0
        self.tokens = 0

    def on_chat_model_start(self, serialized: Any, messages: Any, *, metadata: Any = None, **_: Any) -> None:
        self.started.append(metadata["ls_model_name"])

    def on_llm_end(self, response: Any, **_: Any) -> None:
        self.ended += 1
        self.tokens += response.generations[0][0].message.usage_metadata["output_tokens"]

    def on_llm_error(self, error: Any, **_: Any) -> None:
        self.failed += 1


def task_of(message: AIMessage) -> str:
    return str(message.response_metadata["steproute"]["task"])


async def use(model: Any, way: str, config: Any) -> int:
    """Call a model in one of the ways LangChain has; returns the number of calls."""
    if way == "invoke":
        model.invoke("hello", config)
    elif way == "ainvoke":
        await model.ainvoke("hello", config)
    elif way == "stream":
        assert "".join(piece.content for piece in model.stream("hello", config)) == "small speaking"
    elif way == "astream":
        assert "".join([piece.content async for piece in model.astream("hello", config)]) == "small speaking"
    elif way == "batch":
        assert [item.content for item in model.batch(["one", "two", "three"], config)] == ["small speaking"] * 3
        return 3
    elif way == "abatch":
        await model.abatch(["one", "two"], config)
        return 2
    elif way == "generate":
        assert len(model.generate([[HumanMessage("hello")]], callbacks=config["callbacks"]).generations) == 1
    elif way == "astream_events":
        events = [event async for event in model.astream_events("hello", config, version="v2")]
        assert [event["event"] for event in events if "stream" not in event["event"]] == [
            "on_chat_model_start",
            "on_chat_model_end",
        ]
        assert {event["metadata"]["ls_model_name"] for event in events} == {"small"}
    return 1


WAYS = ("invoke", "ainvoke", "stream", "astream", "batch", "abatch", "generate", "astream_events")


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_of_calling_is_seen_and_counted_once(
    way: str, make_router: Callable[..., Router], chat: Callable[..., Any], server: OpenAIServer
) -> None:
    """The trap: delegating from `_generate` counts 34 completion tokens where the provider says 17."""
    router = make_router()
    model = RoutedChatModel(router, {"small": chat("small", stream_usage=True), "large": chat("large")}, task="t")
    heard, usage = Heard(), UsageMetadataCallbackHandler()
    calls = await use(model, way, {"callbacks": [heard, usage]})
    assert heard.started == ["small"] * calls
    assert (heard.ended, heard.failed, heard.tokens) == (calls, 0, 17 * calls)
    assert usage.usage_metadata["small"]["output_tokens"] == 17 * calls
    assert usage.usage_metadata["small"]["total_tokens"] == 28 * calls
    assert len(server.calls) == calls
    assert router.spent("t")["usd"] == pytest.approx(CALL["small"] * calls)
    assert router.spent("t")["tokens"] == 28 * calls
    assert not any(step.outcome.tokens_estimated for step in router.ledger("t").steps)  # type: ignore[union-attr]


async def test_events_of_version_3_are_those_of_the_model_chosen(
    make_router: Callable[..., Router], clients: dict[str, Any]
) -> None:
    router = make_router("fixed:large")
    model = RoutedChatModel(router, clients, task="t")
    if not hasattr(model, "_chat_model_stream_v3"):
        pytest.skip("this langchain-core has no version 3")
    assert str(model.stream_events("hello", version="v3").text) == "large speaking"
    stream = await model.astream_events("hello", version="v3")
    assert await stream.text == "large speaking"
    for _ in range(20):  # the call ends in a task of its own, just after its last event
        await asyncio.sleep(0)
    assert [step.model for step in router.ledger("t").steps] == ["large", "large"]  # type: ignore[union-attr]


def test_in_a_chain(make_router: Callable[..., Router], clients: dict[str, Any]) -> None:
    chain = (
        ChatPromptTemplate.from_messages([("system", "be brief"), ("user", "{question}")])
        | RoutedChatModel(make_router("fixed:large"), clients)
        | StrOutputParser()
    )
    assert chain.invoke({"question": "why?"}) == "large speaking"
    assert "".join(chain.stream({"question": "why?"})) == "large speaking"


# --- tools and schemas ------------------------------------------------------------------------------------------


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def subtract(a: int, b: int) -> int:
    """Subtract two numbers."""
    return a - b


def divide(a: int, b: int) -> float:
    """Divide two numbers."""
    return a / b


class Answer(BaseModel):
    """The answer."""

    value: int
    unit: str


def test_the_model_chosen_gets_the_three_tools(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    """Demand 10: whatever model is chosen, its call carries what was bound."""
    policy = Turns(("small", "large"))
    bound = RoutedChatModel(make_router(policy), clients).bind_tools([add, subtract, divide], tool_choice="any")
    bound.invoke("1 + 1?")
    bound.invoke("1 + 1?")
    assert [call.body["model"] for call in server.calls] == ["small", "large"]
    for call in server.calls:
        assert [tool["function"]["name"] for tool in call.body["tools"]] == ["add", "subtract", "divide"]
        assert call.body["tool_choice"] == "required"


def test_the_model_chosen_gets_tools_and_schema_together(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    bound = (
        RoutedChatModel(make_router("fixed:large"), clients)
        .bind_tools([add, subtract, divide], strict=True)
        .bind(response_format=schema)
    )
    bound.invoke("1 + 1?")
    body = server.calls[0].body
    assert (len(body["tools"]), body["response_format"]) == (3, schema)


def test_only_models_with_tool_calls_get_tools(make_router: Callable[..., Router], clients: dict[str, Any]) -> None:
    mute = SMALL.model_copy(update={"tools": False})
    model = RoutedChatModel(make_router("cheapest", models=(mute, LARGE)), clients, task="t")
    assert model.invoke("hello").content == "small speaking"
    assert model.bind_tools([add]).invoke("hello").content == "large speaking"


def test_tools_bound_in_a_providers_own_form_are_passed_on(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    tool = {"type": "function", "function": {"name": "own", "parameters": {"type": "object", "properties": {}}}}
    RoutedChatModel(make_router(), clients).bind(tools=[tool]).invoke("hello")
    assert server.calls[0].body["tools"] == [tool]


def test_binding_again_and_again_converts_the_tools_once_per_model(
    make_router: Callable[..., Router], clients: dict[str, Any]
) -> None:
    bound: list[str] = []

    class Counting:
        def __init__(self, client: Any, name: str):
            self.client, self.name, self.invoke = client, name, client.invoke

        def bind_tools(self, tools: Any, **options: Any) -> Any:
            bound.append(self.name)
            return self.client.bind_tools(tools, **options)

    counting = {name: Counting(client, name) for name, client in clients.items()}
    model = RoutedChatModel(make_router(Turns(("small", "large"))), counting)
    tools = [add, subtract]
    for _ in range(6):
        model.bind_tools(tools).invoke("hello")
    assert bound == ["small", "large"]


def test_structured_output_is_the_chosen_models_own(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    server.queue(Reply(content='{"value": 2, "unit": "m"}'), Reply(content='{"value": 3, "unit": "s"}'))
    router = make_router("fixed:large")
    model = RoutedChatModel(router, clients, task="t")
    assert model.with_structured_output(Answer).invoke("how far?") == Answer(value=2, unit="m")
    raw = model.with_structured_output(Answer, include_raw=True).invoke("how long?")
    assert raw["parsed"] == Answer(value=3, unit="s")
    assert server.calls[0].body["response_format"]["json_schema"]["name"] == "Answer"
    assert router.spent("t")["tokens"] == 56
    assert [step.output for step in router.ledger("t").steps] == [
        '{"value": 2, "unit": "m"}',
        '{"value": 3, "unit": "s"}',
    ]  # type: ignore[union-attr]


async def test_structured_output_awaited_and_streamed(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    server.queue(*[Reply(content='{"value": 2, "unit": "m"}')] * 3)
    router = make_router("fixed:large")
    wanted = RoutedChatModel(router, clients, task="t").with_structured_output(Answer)
    assert await wanted.ainvoke("how far?") == Answer(value=2, unit="m")
    assert list(wanted.stream("how far?"))[-1] == Answer(value=2, unit="m")
    assert [item async for item in wanted.astream("how far?")][-1] == Answer(value=2, unit="m")
    assert len(router.ledger("t").steps) == 3  # type: ignore[union-attr]


def test_a_reply_that_breaks_the_schema_is_paid_and_the_next_model_asked(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    server.queue(Reply(content="two metres"), Reply(content='{"value": 2, "unit": "m"}'))
    router = make_router("fixed:small")
    assert RoutedChatModel(router, clients, task="t").with_structured_output(Answer, method="json_mode").invoke(
        "how far?"
    ) == Answer(value=2, unit="m")
    assert [call.body["model"] for call in server.calls] == ["small", "large"]
    assert router.spent("t")["usd"] == pytest.approx(CALL["small"] + CALL["large"])


def test_only_models_with_structured_output_get_a_schema(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    server.queue(*[Reply(content='{"value": 2, "unit": "m"}')] * 2)
    loose = SMALL.model_copy(update={"structured": False})
    RoutedChatModel(make_router("cheapest", models=(loose, LARGE)), clients).with_structured_output(Answer).invoke(
        "how far?"
    )
    assert server.calls[0].body["model"] == "large"
    bound = RoutedChatModel(make_router("cheapest", models=(loose, LARGE)), clients).bind_tools(
        [], response_format=Answer, strict=True
    )  # as agents bind a schema
    assert bound.invoke("how far?").response_metadata["model_name"] == "large"


# --- capabilities -----------------------------------------------------------------------------------------------


IMAGES = {
    "openai": {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    "standard": {"type": "image", "base64": "AAAA", "mime_type": "image/png"},
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    "responses": {"type": "input_image", "image_url": "https://example.test/a.png"},
    "google": {"type": "media", "mime_type": "image/jpeg", "data": "AAAA"},
}


@pytest.mark.parametrize("form", IMAGES)
def test_a_picture_only_goes_to_models_that_see(
    form: str, make_router: Callable[..., Router], clients: dict[str, Any]
) -> None:
    """Demand 11."""
    from steproute.plugins.langgraph.prompt import read_prompt

    message = HumanMessage([{"type": "text", "text": "what is this?"}, IMAGES[form]])
    prompt = read_prompt([message])
    assert prompt.needs.vision
    assert prompt.text == "what is this?"
    seeing = LARGE.model_copy(update={"vision": True})
    router = make_router("cheapest", models=(SMALL, seeing))
    model = RoutedChatModel(router, clients, task="t")
    if form in ("openai", "standard"):
        assert model.invoke([message]).content == "large speaking"
        assert model.invoke([message, AIMessage("a cat"), HumanMessage("sure?")]).content == "large speaking"


def test_no_model_that_sees_is_an_error_that_names_the_lack(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    with pytest.raises(NoEligibleModel, match="small: no vision; large: no vision"):
        RoutedChatModel(make_router(), clients).invoke([HumanMessage([IMAGES["openai"]])])
    assert server.calls == []


def test_a_picture_is_not_counted_by_the_length_of_its_encoding() -> None:
    from steproute.plugins.langgraph.prompt import TOKENS_PER_IMAGE, read_prompt

    huge = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    assert TOKENS_PER_IMAGE < read_prompt([HumanMessage([huge])]).tokens < TOKENS_PER_IMAGE + 100


def test_only_what_may_hold_reasoning_is_looked_through_for_it() -> None:
    from steproute.plugins.langgraph.prompt import read_prompt

    plain = AIMessage("yes", additional_kwargs={"refusal": None})
    assert not read_prompt([HumanMessage("hi"), plain]).may_reason
    assert read_prompt([plain, AIMessage("no", additional_kwargs={"reasoning_content": "hm"})]).may_reason
    assert read_prompt([AIMessage([{"type": "thinking", "thinking": "hm", "signature": "x"}])]).may_reason


def test_a_message_that_changed_under_its_id_is_another_prompt() -> None:
    from steproute.plugins.langgraph.prompt import read_prompt

    message = HumanMessage("short", id="one")
    before = read_prompt([message])
    message.content = "a much longer question than before"
    after = read_prompt([message])
    assert before.digest != after.digest
    assert (before.text, after.text) == ("short", "a much longer question than before")
    assert after.tokens > before.tokens


def test_a_step_is_written_down_as_pydantic_would() -> None:
    from steproute.plugins.langgraph.ledgers import dumped

    outcome = Outcome(prompt_tokens=4, usd=0.5, seconds=2.0, amounts={"credits": 3.0}, error="late")
    outcome.evidence.append(Evidence(source="tests", score=0.5, count=2))
    calls = [ToolCall(name="run", ok=False, error="no such file")]
    whole = Step(id="s", role="coder", model="small", output="done", outcome=outcome, tool_calls=calls, g=0.25)
    for step in (whole, Step(id="t", outcome=Outcome(completion_tokens=1))):
        record = json.loads(json.dumps(dumped(step)))
        assert Step.model_validate(record) == step
        assert record.keys() - {"id", "role", "model", "output", "outcome"} == set(
            step.model_dump(exclude_defaults=True).keys() - {"id", "role", "model", "output", "outcome"}
        )
        assert record["outcome"] == step.outcome.model_dump(mode="json", exclude_defaults=True)
    record = dumped(whole)
    whole.outcome.amounts["credits"] = 9.0
    assert record["outcome"]["amounts"] == {"credits": 3.0}


def test_a_long_context_only_goes_where_it_fits(make_router: Callable[..., Router], clients: dict[str, Any]) -> None:
    narrow = SMALL.model_copy(update={"context_window": 500})
    model = RoutedChatModel(make_router("cheapest", models=(narrow, LARGE)), clients)
    assert model.invoke("word " * 100).content == "small speaking"
    assert model.invoke("word " * 600).content == "large speaking"
    assert model.invoke("word " * 100, max_tokens=450).content == "large speaking"  # no room for the answer


# --- failures ---------------------------------------------------------------------------------------------------


def test_the_one_that_answered_is_paid_and_the_one_that_failed_blamed(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    """Demand 15."""
    server.queue(Reply(status=500, error="boom"))
    router = make_router("fixed:small")
    heard = Heard()
    reply = RoutedChatModel(router, clients, task="t", role="coder").invoke("hello", {"callbacks": [heard]})
    assert reply.content == "large speaking"
    assert reply.response_metadata["steproute"]["model"] == "large"
    first, second = router.decisions("t")
    assert (first.step, first.attempt, first.model.name) == (second.step, 1, "small")
    assert (second.attempt, second.model.name) == (2, "large")
    assert "failed at this step" in second.score_of("small").cause
    assert router.spent("t")["usd"] == pytest.approx(CALL["large"])
    assert [step.model for step in router.ledger("t").steps] == ["large"]  # type: ignore[union-attr]
    assert (heard.started, heard.ended, heard.failed) == (["small", "large"], 1, 1)


def test_a_fallback_within_a_client_is_paid_where_it_answered(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    server.queue(Reply(status=500))
    router = make_router("fixed:small")
    both = {"small": clients["small"].with_fallbacks([clients["large"]]), "large": clients["large"]}
    reply = RoutedChatModel(router, both, task="t").invoke("hello")
    assert reply.content == "large speaking"
    assert reply.response_metadata["steproute"]["model"] == "large"
    assert router.spent("t")["usd"] == pytest.approx(CALL["large"])
    assert [step.model for step in router.ledger("t").steps] == ["large"]  # type: ignore[union-attr]


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
async def test_when_all_failed_the_providers_own_error_is_raised(
    way: str, make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    import openai

    server.queue(Reply(status=500, error="first"), Reply(status=503, error="second"))
    with pytest.raises(openai.APIStatusError, match="second"):
        await use(RoutedChatModel(make_router(), clients, task="t"), way, None)
    assert len(server.calls) == 2


def test_a_retry_after_all_failed_begins_anew(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    server.queue(Reply(status=500), Reply(status=500))
    router = make_router("fixed:small")
    model = RoutedChatModel(router, clients, task="t").with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
    assert model.invoke("hello").content == "small speaking"
    assert router.spent("t")["usd"] == pytest.approx(CALL["small"])


def test_without_fallbacks_the_first_failure_is_the_hosts(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    server.queue(Reply(status=500, error="boom"))
    model = RoutedChatModel(make_router(), clients, fallbacks=False)
    with pytest.raises(Exception, match="boom"):
        model.invoke("hello")
    assert len(server.calls) == 1


def test_a_stream_that_breaks_off_is_not_begun_again(make_router: Callable[..., Router]) -> None:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel

    class Breaking(GenericFakeChatModel):
        def _stream(self, *args: Any, **kwargs: Any) -> Any:
            yield from list(super()._stream(*args, **kwargs))[:2]
            raise ConnectionError("cut")

    breaking = Breaking(messages=iter([AIMessage("one two three")]))
    router = make_router("fixed:small")
    model = RoutedChatModel(router, {"small": breaking, "large": breaking}, task="t")
    got: list[Any] = []
    with pytest.raises(ConnectionError, match="cut"):
        got.extend(piece.content for piece in model.stream("hello"))
    assert [decision.model.name for decision in router.decisions("t")] == ["small"]


def test_a_stream_given_up_is_billed_by_what_was_heard(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    """The provider reports usage at the very end: an abandoned stream has none."""
    server.queue(Reply(content="one two three four five six"))
    router = make_router()
    stream = RoutedChatModel(router, clients, task="t").stream("hello")
    heard = next(stream).content + next(stream).content + next(stream).content
    stream.close()
    (step,) = router.ledger("t").steps  # type: ignore[union-attr]
    assert step.output == heard == "one two "
    assert step.outcome.tokens_estimated
    assert step.outcome.completion_tokens == len("one two ") // 4
    assert router.spent("t")["usd"] > 0


async def test_a_cancelled_call_frees_its_reservation(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    server.queue(Hang())
    router = make_router(budget=Budget(usd=0.001))
    model = RoutedChatModel(router, clients, task="t")
    running = asyncio.create_task(model.ainvoke("hello"))
    await asyncio.to_thread(server.hung.wait, 10)
    assert router.accounts.spending("t").reserved["usd"] > 0
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert router.accounts.spending("t").reserved["usd"] == 0
    assert (await model.ainvoke("hello")).content == "small speaking"  # nobody was blamed


def test_a_hard_limit_is_the_hosts_to_hear_of(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    model = RoutedChatModel(make_router(budget=Budget(usd=0.0004)), clients, task="t")

    def use_up() -> None:
        for _ in range(20):
            model.invoke("hello")

    with pytest.raises(BudgetExceeded, match=r"usd=0\.0004"):
        use_up()
    spent = len(server.calls) * CALL["small"]
    assert spent <= 0.0004 < spent + SMALL.price.usd(5, 100)  # type: ignore[union-attr]


def test_a_fault_of_the_router_never_reaches_the_host(
    make_router: Callable[..., Router], clients: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from steproute.plugins.langgraph import calls, deciding

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a bug")

    router = make_router(on_error="fallback")
    model = RoutedChatModel(router, clients, task="t")
    monkeypatch.setattr(calls, "outcome_of", broken)
    monkeypatch.setattr(deciding, "fit_for", broken)
    monkeypatch.setattr(calls.Call, "_record", broken)
    monkeypatch.setattr(deciding.Journal, "place", broken)
    assert model.invoke("hello").content == "small speaking"
    assert router.errors >= 3


# --- settings ---------------------------------------------------------------------------------------------------


def test_wrong_names_are_found_when_it_is_built(make_router: Callable[..., Router], clients: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="models: unknown name 'smal'; did you mean 'small'"):
        RoutedChatModel(make_router(), {"smal": clients["small"]})
    with pytest.raises(ConfigError, match="models: none given"):
        RoutedChatModel(make_router(), {})
    with pytest.raises(ConfigError, match="router: seen str"):
        RoutedChatModel("router", clients)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"models\['small'\]: seen 'gpt-4o'; allowed: a LangChain chat model"):
        RoutedChatModel(make_router(), {"small": "gpt-4o"})
    for setting in ("rol", "rate_limiter"):  # the second is one of chat models, but nothing here would obey it
        with pytest.raises(ConfigError, match=f"RoutedChatModel: unknown name '{setting}'"):
            RoutedChatModel(make_router(), clients, **{setting: None})


def test_a_model_that_joins_the_pool_later_is_not_chosen_without_a_client(
    make_router: Callable[..., Router], clients: dict[str, Any]
) -> None:
    router = make_router("strongest")
    model = RoutedChatModel(router, clients)
    router.pool.add(Model("huge", price=Price(input=100, output=200), quality=1.0))
    assert model.invoke("hello").content == "large speaking"
    assert router.errors == 0


def test_callbacks_and_tags_of_its_own_are_used_beside_the_hosts(
    make_router: Callable[..., Router], clients: dict[str, Any]
) -> None:
    own, hosts = Heard(), Heard()
    model = RoutedChatModel(make_router(), clients, callbacks=[own], tags=["mine"], metadata={"team": "red"})
    model.invoke("hello", {"callbacks": [hosts]})
    assert (own.started, hosts.started) == (["small"], ["small"])
    assert (own.tokens, hosts.tokens) == (17, 17)


def test_tokens_of_a_text_are_counted_without_a_tokenizer(
    make_router: Callable[..., Router], clients: dict[str, Any]
) -> None:
    assert RoutedChatModel(make_router(), clients).get_num_tokens("x" * 400) == 100
    counting = RoutedChatModel(make_router(), clients, count_tokens=lambda messages: 7 * len(messages))
    assert counting.get_num_tokens("x" * 400) == 7


def test_a_pool_model_without_a_client_is_never_chosen(
    make_router: Callable[..., Router], clients: dict[str, Any]
) -> None:
    assert (
        RoutedChatModel(make_router("fixed:large"), {"small": clients["small"]}).invoke("hello").content
        == "small speaking"
    )


def test_a_conversation_is_one_task_and_another_is_another(
    make_router: Callable[..., Router], clients: dict[str, Any]
) -> None:
    model = RoutedChatModel(make_router(), clients)
    system = SystemMessage("be brief")
    first = model.invoke([system, HumanMessage("one")])
    again = model.invoke([system, HumanMessage("one"), first, HumanMessage("more")])
    other = model.invoke([system, HumanMessage("two")])
    assert task_of(first) == task_of(again) != task_of(other)


def test_the_task_may_be_told(make_router: Callable[..., Router], clients: dict[str, Any]) -> None:
    router = make_router()
    told = Task(id="mine", domain="code", goal="write it")
    assert task_of(RoutedChatModel(router, clients, task=told).invoke("hello")) == "mine"
    assert router.ledger("mine").task == told  # type: ignore[union-attr]
    by_call = RoutedChatModel(router, clients, task=lambda config: config["configurable"]["customer"])
    assert task_of(by_call.invoke("hello", {"configurable": {"customer": "c7"}})) == "c7"
    overridden = RoutedChatModel(router, clients, task="set").invoke(
        "hello", {"configurable": {"steproute_task": "said"}}
    )
    assert task_of(overridden) == "said"


def test_a_finished_task_begins_anew(make_router: Callable[..., Router], clients: dict[str, Any]) -> None:
    router = make_router()
    model = RoutedChatModel(router, clients, task="t")
    model.invoke("hello")
    assert router.finish("t", success=True)["tokens"] == 28
    model.invoke("hello")
    assert router.spent("t")["tokens"] == 28
    assert [decision.step for decision in router.decisions("t")] == ["0"]


def test_limits_of_the_clients_bound_the_worst_case(
    make_router: Callable[..., Router], chat: Callable[..., Any]
) -> None:
    limited = {name: chat(name, max_tokens=50) for name in ("small", "large")}
    router = make_router(budget=Budget(usd=Limit(limit=SMALL.price.usd(30, 50), hard=True)))  # type: ignore[union-attr]
    assert RoutedChatModel(router, limited).invoke("hello").content == "small speaking"  # 100 tokens would not fit


# --- other clients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
async def test_with_ollama(streamed: bool, make_router: Callable[..., Router]) -> None:
    ollama = pytest.importorskip("langchain_ollama")
    with OllamaServer() as server:
        router = make_router("fixed:large")
        models = {name: ollama.ChatOllama(model=name, base_url=server.url) for name in ("small", "large")}
        bound = RoutedChatModel(router, models, task="t").bind_tools([add])
        server.queue(Reply(content="", tool_calls=[{"name": "add", "arguments": {"a": 1, "b": 2}}]))
        if streamed:
            pieces = [piece async for piece in bound.astream("1 + 2?")]
            reply: Any = pieces[0]
            for piece in pieces[1:]:
                reply += piece
        else:
            reply = await bound.ainvoke("1 + 2?")
        assert reply.tool_calls[0]["args"] == {"a": 1, "b": 2}
        assert server.calls[0].body["tools"][0]["function"]["name"] == "add"
        assert router.spent("t")["tokens"] == 28
        (step,) = router.ledger("t").steps  # type: ignore[union-attr]
        assert (step.outcome.prompt_tokens, step.outcome.completion_tokens, step.outcome.tokens_estimated) == (
            11,
            17,
            False,
        )
        assert [call.name for call in step.tool_calls] == ["add"]


async def test_with_litellm(make_router: Callable[..., Router], server: OpenAIServer) -> None:
    litellm = pytest.importorskip("langchain_litellm")
    router = make_router("fixed:large")
    models = {
        name: litellm.ChatLiteLLM(model=f"openai/{name}", api_base=server.base_url, api_key="none", max_retries=0)
        for name in ("small", "large")
    }
    model = RoutedChatModel(router, models, task="t")
    server.queue(Reply(tool_calls=[{"name": "add", "arguments": {"a": 1, "b": 2}}], content=""))
    assert model.bind_tools([add]).invoke("1 + 2?").tool_calls[0]["args"] == {"a": 1, "b": 2}
    assert (await model.ainvoke("hello")).content == "large speaking"
    assert "".join(piece.content for piece in model.stream("hello")) == "large speaking"
    assert router.spent("t")["tokens"] >= 56
    assert [step.outcome.prompt_tokens for step in router.ledger("t").steps[:2]] == [11, 11]  # type: ignore[union-attr]


def test_models_of_different_providers_side_by_side(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    ollama = pytest.importorskip("langchain_ollama")
    with OllamaServer() as local:
        router = make_router(Turns(("small", "large")))
        models = {"small": ollama.ChatOllama(model="small", base_url=local.url), "large": clients["large"]}
        bound = RoutedChatModel(router, models, task="t").bind_tools([add])
        history: list[Any] = [HumanMessage("1 + 2?")]
        local.queue(Reply(content="", tool_calls=[{"name": "add", "arguments": {"a": 1, "b": 2}}]))
        history.append(bound.invoke(history))
        history.append(ToolMessage("3", tool_call_id=history[-1].tool_calls[0]["id"]))
        assert bound.invoke(history).content == "large speaking"
        assert [item["role"] for item in server.calls[0].body["messages"]] == ["user", "assistant", "tool"]


def test_replies_of_langchains_own_cache_cost_nothing(
    make_router: Callable[..., Router], chat: Callable[..., Any], server: OpenAIServer
) -> None:
    from langchain_core.caches import InMemoryCache

    cache = InMemoryCache()
    router = make_router()
    model = RoutedChatModel(
        router, {"small": chat("small", cache=cache), "large": chat("large", cache=cache)}, task="t"
    )
    assert model.invoke("hello").content == model.invoke("hello").content == "small speaking"
    assert len(server.calls) == 1
    assert router.spent("t")["usd"] == pytest.approx(CALL["small"])
    assert router.spent("t")["tokens"] == 28


def test_cached_prompt_tokens_are_billed_as_such(
    make_router: Callable[..., Router], clients: dict[str, Any], server: OpenAIServer
) -> None:
    server.queue(Reply(prompt_tokens=1000, completion_tokens=10, cached_tokens=900))
    cheap = Model("small", price=Price(input=1, output=2, cached_input=0.1))
    router = make_router(models=(cheap, LARGE))
    RoutedChatModel(router, clients, task="t").invoke("hello")
    assert router.spent("t")["usd"] == pytest.approx((100 * 1 + 900 * 0.1 + 10 * 2) / 1e6)


def test_pieces_carry_one_stamp(make_router: Callable[..., Router], clients: dict[str, Any]) -> None:
    pieces = list(RoutedChatModel(make_router(), clients, task="t").stream("hello"))
    assert all(isinstance(piece, AIMessageChunk) for piece in pieces)
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert whole.response_metadata["steproute"]["model"] == "small"
