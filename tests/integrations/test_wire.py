import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute.backend import ChatRequest, Timings, ToolCall, Usage
from steproute.integrations.wire import (
    merged_ollama_stream,
    merged_openai_stream,
    ollama_fields,
    openai_body,
    read_ollama,
    read_openai,
)

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "sub", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
FULL = ChatRequest(
    "m",
    [{"role": "user", "content": "hi"}],
    tools=[TOOL],
    tool_choice="auto",
    response_format=SCHEMA,
    temperature=0.0,
    max_tokens=9,
    stop=["x"],
    seed=0,
    extra={"task": "t", "step": 2, "role": "coder", "top_k": 3},
)


def test_openai_body_carries_everything_but_labels():
    assert openai_body(FULL) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [TOOL],
        "tool_choice": "auto",
        "response_format": SCHEMA,
        "temperature": 0.0,
        "max_tokens": 9,
        "stop": ["x"],
        "seed": 0,
        "top_k": 3,
    }


def test_what_is_not_set_is_not_sent():
    assert openai_body(ChatRequest("m", [], tool_choice="auto")) == {"model": "m", "messages": []}
    assert ollama_fields(ChatRequest("m", [])) == {"messages": [], "options": {}}


def test_ollama_fields():
    assert ollama_fields(FULL) == {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [TOOL],
        "format": {"type": "object"},
        "options": {"temperature": 0.0, "num_predict": 9, "stop": ["x"], "seed": 0, "top_k": 3},
    }
    extra = ChatRequest(
        "m", [], response_format={"type": "json_object"}, extra={"keep_alive": "5m", "options": {"num_ctx": 8}}
    )
    assert ollama_fields(extra) == {"messages": [], "format": "json", "options": {"num_ctx": 8}, "keep_alive": "5m"}


@pytest.mark.parametrize(
    ("choice", "names"),
    [("auto", ["add", "sub"]), ("none", None), ({"type": "function", "function": {"name": "sub"}}, ["sub"])],
)
def test_ollama_has_no_tool_choice_so_the_tools_are_narrowed(choice, names):
    fields = ollama_fields(ChatRequest("m", [], tools=[TOOL, OTHER], tool_choice=choice))
    tools = fields.get("tools")
    assert (tools and [tool["function"]["name"] for tool in tools]) == names


def test_ollama_messages_take_arguments_as_objects_and_images_apart():
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    request = ChatRequest(
        "m",
        [
            {"role": "user", "content": [{"type": "text", "text": "see"}, image]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "name": "add", "content": "2"},
        ],
    )
    assert ollama_fields(request)["messages"] == [
        {"role": "user", "content": "see", "images": ["AAAA"]},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {"x": 1}}}]},
        {"role": "tool", "content": "2", "tool_name": "add"},
    ]


def test_read_openai_with_tools_cache_and_timings():
    data = {
        "id": "c1",
        "model": "m-2026",
        "choices": [
            {
                "message": {
                    "content": None,
                    "tool_calls": [{"id": "1", "function": {"name": "add", "arguments": "{}"}}],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 6}},
        "timings": {"prompt_ms": 500, "predicted_ms": 1500},
    }
    answer = read_openai(data)
    assert answer.tool_calls == (ToolCall("1", "add", "{}"),)
    assert answer.usage == Usage(10, 4, 6)
    assert (answer.timings, answer.seconds) == (Timings(0.0, 0.5, 1.5), 2.0)
    assert (answer.content, answer.finish_reason, answer.model_reported, answer.id) == (
        "",
        "tool_calls",
        "m-2026",
        "c1",
    )


def test_missing_usage_is_estimated_and_says_so():
    data = {"choices": [{"message": {"content": "12345"}}]}
    request = ChatRequest("m", [{"role": "user", "content": "12345678"}])
    assert read_openai(data, request).usage == Usage(2, 2, estimated=True)
    assert read_ollama({"message": {"content": "12345"}, "eval_count": 3}, request).usage == Usage(2, 2, estimated=True)


@pytest.mark.parametrize("data", [{}, {"choices": []}, {"choices": [{}]}, {"choices": None}])
def test_an_answer_without_a_message_is_a_value_error(data):
    with pytest.raises(ValueError, match="no choices"):
        read_openai(data)


def test_read_ollama_durations_are_nanoseconds():
    data = {
        "model": "m",
        "message": {"content": "hi", "tool_calls": [{"function": {"name": "add", "arguments": {"x": 1}}}]},
        "done_reason": "stop",
        "total_duration": 4_000_000_000,
        "load_duration": 2_000_000_000,
        "prompt_eval_count": 5,
        "prompt_eval_duration": 500_000_000,
        "eval_count": 7,
        "eval_duration": 1_500_000_000,
    }
    answer = read_ollama(data)
    assert (answer.timings, answer.seconds, answer.usage) == (Timings(2.0, 0.5, 1.5), 4.0, Usage(5, 7))
    assert (answer.tool_calls[0].name, answer.tool_calls[0].arguments) == ("add", '{"x": 1}')
    assert answer.tool_calls[0].id.startswith("call_")
    assert answer.finish_reason == "tool_calls"
    with pytest.raises(ValueError, match="neither message nor response"):
        read_ollama({"error": "x"})


pieces = st.lists(st.text(max_size=6), max_size=6)


@given(pieces)
def test_an_openai_stream_adds_up(words):
    import json

    chunks = [
        {"id": "c", "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]} for word in words
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}})
    text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    answer = read_openai(merged_openai_stream(text))
    assert (answer.content, answer.finish_reason, answer.usage) == ("".join(words), "stop", Usage(1, 2))


def test_tool_calls_of_an_openai_stream_add_up():
    import json

    def part(index, **function):
        return {"choices": [{"delta": {"tool_calls": [{"index": index, **function}]}}]}

    chunks = [
        part(0, id="a", function={"name": "add", "arguments": ""}),
        part(0, function={"arguments": '{"x":'}),
        part(1, id="b", function={"name": "sub", "arguments": "{}"}),
        part(0, function={"arguments": "1}"}),
    ]
    whole = merged_openai_stream("".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks))
    assert read_openai(whole).tool_calls == (ToolCall("a", "add", '{"x":1}'), ToolCall("b", "sub", "{}"))


@given(pieces)
def test_an_ollama_stream_adds_up(words):
    import json

    lines = [{"message": {"content": word}, "done": False} for word in words]
    lines.append({"message": {"content": ""}, "done": True, "prompt_eval_count": 1, "eval_count": 2})
    answer = read_ollama(merged_ollama_stream("\n".join(json.dumps(line) for line in lines)))
    assert (answer.content, answer.usage) == ("".join(words), Usage(1, 2))
