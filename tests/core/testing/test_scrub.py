import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute.redact import environment_secrets, redact
from steproute.testing.exchange import Exchange, save_cassette
from steproute.testing.scrub import scrub

URI = "https://api.example.com/v1/chat/completions"


def exchange(**changes):
    given = {
        "method": "POST",
        "uri": URI,
        "request_body": b'{"model": "m", "messages": []}',
        "status": 200,
        "response_body": b"{}",
        "request_headers": {"Content-Type": ["application/json"]},
        "response_headers": {"content-type": ["application/json"]},
    }
    return Exchange(**(given | changes))


def everything(clean):
    return repr((clean.uri, clean.request_headers, clean.request_body, clean.response_headers, clean.response_body))


@pytest.mark.parametrize(
    "header",
    [
        "Authorization",
        "x-api-key",
        "api-key",
        "Cookie",
        "OpenAI-Organization",
        "OpenAI-Project",
        "X-Goog-Api-Key",
        "x-new-secret",
    ],
)
def test_request_credentials_are_gone_even_where_the_server_repeats_them(header):
    clean = scrub(
        exchange(
            request_headers={"content-type": ["application/json"], header: ["Bearer tricky.value-1"]},
            response_body=b'{"error": {"message": "Incorrect API key provided: tricky.value-1"}}',
        )
    )
    assert "tricky" not in everything(clean)
    assert clean.request_headers == {"content-type": ["application/json"]}


def test_response_headers_that_identify_are_gone():
    headers = {
        "Set-Cookie": ["__cf=cookie-77; path=/"],
        "Date": ["Mon, 30 Nov 2026 10:00:00 GMT"],
        "x-request-id": ["req_0a1b2c3d4e5f6a7b"],
        "openai-organization": ["acme-42"],
        "cf-ray": ["1234"],
        "Content-Type": ["application/json"],
        "Retry-After": ["2"],
    }
    clean = scrub(exchange(response_headers=headers))
    assert clean.response_headers == {"content-type": ["application/json"], "retry-after": ["2"]}


def test_query_and_user_of_the_uri():
    clean = scrub(exchange(uri="https://bob:pw12@api.example.com/v1/x?key=abc-123&q=word&Access_Token=zzz"))
    assert clean.uri == "https://api.example.com/v1/x?key=REDACTED&q=word&Access_Token=REDACTED"


def test_body_fields_named_like_keys_at_any_depth_and_inside_strings():
    body = {
        "model": "m",
        "api_key": "k-1",
        "extra": {"OPENAI_API_KEY": "k-2", "nested": [{"client-secret": "k-3"}]},
        "messages": [
            {
                "role": "assistant",
                "tool_calls": [{"function": {"name": "f", "arguments": '{"password": "k-4", "n": 1}'}}],
            }
        ],
        "max_tokens": 5,
    }
    clean = json.loads(scrub(exchange(request_body=json.dumps(body).encode())).request_body)
    assert "k-" not in json.dumps(clean)
    assert clean["max_tokens"] == 5
    assert json.loads(clean["messages"][0]["tool_calls"][0]["function"]["arguments"]) == {
        "password": "REDACTED",
        "n": 1,
    }


def test_a_tool_that_has_a_password_parameter_keeps_its_schema():
    schema = {"type": "object", "properties": {"password": {"type": "string"}, "organization": {"type": "string"}}}
    body = json.dumps({"tools": [{"function": {"name": "login", "parameters": schema}}]}).encode()
    assert scrub(exchange(request_body=body)).request_body == body


def test_what_a_model_writes_keeps_its_organizations_and_dates():
    said = {
        "choices": [
            {"message": {"tool_calls": [{"function": {"arguments": '{"organization": "ACME", "created": 7}'}}]}}
        ]
    }
    ollama = {"message": {"tool_calls": [{"function": {"arguments": {"organization": "ACME", "created": 7}}}]}}
    for body in (said, ollama):
        assert json.loads(scrub(exchange(response_body=json.dumps(body).encode())).response_body) == body


def test_times_ids_and_organizations_of_an_answer():
    body = {
        "id": "chatcmpl-1",
        "created": 1790000000,
        "created_at": "2026-11-30T10:00:00Z",
        "request_id": "r9",
        "organization": "acme",
    }
    assert json.loads(scrub(exchange(response_body=json.dumps(body).encode())).response_body) == {
        "id": "chatcmpl-1",
        "created": 0,
        "created_at": "1970-01-01T00:00:00Z",
        "request_id": "REDACTED",
        "organization": "REDACTED",
    }


def test_streams_are_scrubbed_line_by_line_and_keep_their_shape():
    events = b'data: {"created": 5, "api_key": "k-1"}\n\ndata: {"choices": []}\n\ndata: [DONE]\n\n'
    clean = scrub(exchange(response_body=events)).response_body
    assert clean == b'data: {"created": 0, "api_key": "REDACTED"}\n\ndata: {"choices": []}\n\ndata: [DONE]\n\n'
    lines = scrub(exchange(response_body=b'{"created_at": "2026"}\n{"done": true}\n')).response_body
    assert lines == b'{"created_at": "1970-01-01T00:00:00Z"}\n{"done": true}\n'


def test_forms():
    clean = scrub(exchange(request_body=b"grant_type=x&client_secret=abc&scope=a%20b"))
    assert clean.request_body == b"grant_type=x&client_secret=REDACTED&scope=a%20b"


def test_compressed_answers_become_text():
    headers = {"content-type": ["application/json"], "Content-Encoding": ["gzip"], "Content-Length": ["31"]}
    clean = scrub(exchange(response_headers=headers, response_body=gzip.compress(b'{"a": 1}')))
    assert clean.response_body == b'{"a": 1}'
    assert clean.response_headers == {"content-type": ["application/json"]}
    already = scrub(exchange(response_headers=headers, response_body=b'{"a": 1}'))
    assert already.response_body == b'{"a": 1}'


def test_binary_bodies_lose_known_secrets_only():
    clean = scrub(exchange(response_body=b"\xff\x00token-123\xff"), secrets=["token-123"])
    assert clean.response_body == b"\xff\x00REDACTED\xff"


def test_keys_of_the_environment_are_removed_wherever_they_appear(monkeypatch):
    monkeypatch.setenv("MY_SERVICE_API_KEY", "odd-looking-99")
    body = b'{"messages": [{"role": "user", "content": "my key is odd-looking-99"}]}'
    assert b"odd-looking" not in scrub(exchange(request_body=body)).request_body


def test_environment_secrets_leave_ordinary_words_alone():
    seen = environment_secrets(
        {"A_TOKEN": "anything", "B_API_KEY": "x9", "C_SECRET": "abcdef-1", "HOME": "/home/abc-1"}
    )
    assert seen == ["abcdef-1"]


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-Ab12Cd34Ef56Gh78",
        "sk-ant-api03-Ab12Cd34Ef56Gh78",
        "ghp_0123456789abcdefghij0123",
        "hf_abcdefghijklmnopqrstuvwx",
        "AKIA0123456789ABCDEF",
        "AIzaSyA-0123456789abcdefghijklmnopqrst",
        "Bearer 0123456789abcdef",
        "org-0A1b2C3d4E5f",
        "https://user:pass1@host/x",
        "https://host/x?api_key=abc",
    ],
)
def test_redact_knows_the_usual_forms(secret):
    told = redact(f"it said {secret} twice: {secret}")
    assert secret not in told
    assert "REDACTED" in told


@pytest.mark.parametrize(
    "text",
    [
        "the task-based approach, risk-averse and sk-learn style",
        "a bearer certificates market",
        "basic arithmetic-operations",
        "def f(key=1, token=2): return org_chart",
        "max_tokens=20 & prompt_tokens: 3",
        "req-uire and proj-ect",
    ],
)
def test_redact_leaves_ordinary_text_alone(text):
    assert redact(text) == text


keys = st.from_regex(r"[A-Za-z0-9_.~-]{5,30}[0-9]", fullmatch=True)


@given(keys, st.sampled_from(["Authorization", "x-api-key", "Cookie", "OpenAI-Organization"]))
def test_no_key_survives_in_the_file(tmp_path_factory, key, header):
    told = {"error": {"message": f"wrong key {key}!", "api_key": key}, "arguments": json.dumps({"password": key})}
    clean = scrub(
        exchange(
            uri=f"{URI}?api_key={key}&n=1",
            request_headers={header: [f"Bearer {key}"]},
            request_body=json.dumps({"messages": [{"role": "user", "content": f"use {key}"}], "apiKey": key}).encode(),
            response_headers={"Set-Cookie": [f"id={key}"], "x-request-id": [key]},
            response_body=json.dumps(told).encode(),
        )
    )
    file = tmp_path_factory.mktemp("keys") / "a.yaml"
    save_cassette(file, [clean])
    assert key not in file.read_text().replace("chat", "").replace("completions", "")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "api_key", "created", "password", "arguments"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values)
def test_scrubbing_twice_is_scrubbing_once(value):
    once = scrub(exchange(request_body=json.dumps(value).encode(), response_body=json.dumps(value).encode()))
    assert scrub(once) == once
