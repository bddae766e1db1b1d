import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute.testing.canonical import canonical, canonical_chat

CHAT = "http://127.0.0.1:8000/v1/chat/completions"
HELLO = {"model": "small", "messages": [{"role": "user", "content": "hello"}]}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


def key(body, uri=CHAT, method="POST"):
    return canonical(method, uri, json.dumps(body)).key


@pytest.mark.parametrize(
    "noise",
    [
        {"temperature": 0.7, "top_p": 1, "seed": 3, "max_tokens": 10},
        {"metadata": {"run": "abc"}, "user": "u1"},
        {"response_format": {"type": "json_object"}},
        {"stream_options": {"include_usage": True}},
        {"tools": []},
    ],
)
def test_other_fields_do_not_count(noise):
    assert key(HELLO | noise) == key(HELLO)


def test_host_port_and_scheme_do_not_count():
    assert key(HELLO, "https://api.example.com/v1/chat/completions") == key(HELLO)


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "large"},
        {"messages": [{"role": "system", "content": "hello"}]},
        {"messages": [{"role": "user", "content": "hello "}]},
        {"messages": [*HELLO["messages"], {"role": "user", "content": "more"}]},
        {"tools": [TOOL]},
        {"stream": True},
    ],
)
def test_model_roles_contents_tools_and_streaming_count(changed):
    assert key(HELLO | changed) != key(HELLO)


def test_the_path_counts_for_http_and_not_for_the_chat_key():
    other = canonical("POST", "http://h/api/chat", json.dumps(HELLO | {"stream": False}))
    assert other.key != canonical("POST", CHAT, json.dumps(HELLO)).key
    assert other.chat_key == canonical("POST", CHAT, json.dumps(HELLO)).chat_key


def test_tools_compare_as_json_in_any_order():
    other = {"type": "function", "function": {"name": "sub", "parameters": {}}}
    turned = json.loads(json.dumps(TOOL, sort_keys=True))
    assert key(HELLO | {"tools": [TOOL, other]}) == key(HELLO | {"tools": [other, turned]})


def test_parts_of_text_are_the_same_as_text():
    parts = [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]
    assert key({"model": "small", "messages": [{"role": "user", "content": parts}]}) == key(HELLO)


def test_tool_calls_compare_without_their_ids_and_with_their_arguments():
    def conversation(call_id, arguments):
        call = {"id": call_id, "type": "function", "function": {"name": "add", "arguments": arguments}}
        answer = {"role": "tool", "tool_call_id": call_id, "content": "3"}
        return {"model": "m", "messages": [{"role": "assistant", "content": None, "tool_calls": [call]}, answer]}

    assert key(conversation("a", '{"x": 1, "y": 2}')) == key(conversation("b", '{"y":2,"x":1}'))
    assert key(conversation("a", '{"x": 1}')) != key(conversation("a", '{"x": 2}'))


def test_images_count():
    def seen(data):
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        return key({"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, image]}]})

    assert seen("A" * 5000) != seen("B" * 5000)
    assert seen("A" * 5000) == seen("A" * 5000)


@pytest.mark.parametrize(
    ("path", "body", "roles"),
    [
        ("/v1/responses", {"model": "m", "instructions": "be brief", "input": "hi"}, ["system", "user"]),
        (
            "/v1/responses",
            {
                "model": "m",
                "input": [
                    {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                    {"type": "function_call", "name": "add", "arguments": "{}", "call_id": "1"},
                    {"type": "function_call_output", "call_id": "1", "output": "3"},
                ],
            },
            ["user", "function_call", "function_call_output"],
        ),
        (
            "/v1/messages",
            {"model": "m", "system": [{"type": "text", "text": "s"}], "messages": [{"role": "user", "content": "hi"}]},
            ["system", "user"],
        ),
        ("/api/generate", {"model": "m", "system": "s", "prompt": "hi"}, ["system", "user"]),
        ("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}, ["user"]),
    ],
)
def test_every_known_api_is_read(path, body, roles):
    asked = canonical("POST", f"http://h:1{path}", json.dumps(body))
    assert asked.is_chat
    assert [turn.role for turn in asked.turns] == roles
    assert any("hi" in turn.content for turn in asked.turns)


def test_ollama_streams_unless_told_otherwise():
    body = {"model": "m", "messages": []}
    assert canonical("POST", "http://h/api/chat", json.dumps(body)).stream
    assert not canonical("POST", "http://h/api/chat", json.dumps(body | {"stream": False})).stream


def test_other_requests_compare_method_path_query_and_body():
    def other(method="POST", query="a=1&b=2", body=b'{"input": "x", "n": 1}'):
        return canonical(method, f"http://h/v1/embeddings?{query}", body).key

    assert other() == other(query="b=2&a=1") == other(body=b'{"n":1,"input":"x"}')
    assert (
        len({other(), other("PUT"), other(query="a=1"), other(body=b'{"input": "y", "n": 1}'), other(body=b"\xff")})
        == 5
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {
            "model": json_values,
            "messages": json_values,
            "tools": st.lists(json_values, max_size=2),
            "stream": json_values,
        }
    )
)
def test_any_body_has_a_stable_key(body):
    again = json.loads(json.dumps(body))
    assert canonical_chat(body).key == canonical_chat(again).key


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=10)), max_size=4))
def test_different_conversations_have_different_keys(turns):
    messages = [{"role": role, "content": content} for role, content in turns]
    key = canonical_chat({"model": "m", "messages": messages}).key
    assert key != canonical_chat({"model": "m", "messages": [*messages, {"role": "user", "content": "x"}]}).key
