import json
import socket

import pytest
from servers import OpenAIServer, Reply
from servers.programs import KEY, PROGRAMS, QUESTION

from steproute.errors import ConfigError
from steproute.testing import CassetteMismatch, explain_mismatch, routed_cassette
from steproute.testing.exchange import CassetteError, load_cassette
from steproute.testing.offline import NetworkBlocked

ELSEWHERE = "http://model.invalid:9"


def post(model, text="hello", base=ELSEWHERE, **fields):
    import httpx

    body = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
    return httpx.post(f"{base}/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]


def numbered(server_models=None):
    """A script that answers 1, 2, 3 …: two answers are never the same."""
    count = iter(range(1, 100))
    headers = {"x-request-id": "req_0123456789abcdef", "set-cookie": "__cf=cookie-88", "openai-organization": "acme-9"}
    return lambda body: Reply(content=f"{body['model']} {next(count)}", headers=headers)


@pytest.mark.parametrize("client", sorted(PROGRAMS))
def test_a_program_replays_what_it_recorded_without_a_server_and_without_its_secrets(client, tmp_path):
    program, file = PROGRAMS[client], tmp_path / "deep" / "a.yaml"
    pytest.importorskip(client)
    with OpenAIServer(numbered()) as server, routed_cassette(file, "record"):
        recorded = program(server.url)
    text = file.read_text()
    for secret in (KEY, "sk-test", "cookie-", "org-0A1b", "req_0123", "acme-9"):
        assert secret not in text
    with routed_cassette(file) as cassette:
        assert program(ELSEWHERE) == recorded
        assert cassette.played == len(load_cassette(file))


def test_a_recording_is_readable_text_that_vcrpy_loads(tmp_path):
    import vcr

    file = tmp_path / "a.yaml"
    with OpenAIServer(numbered()) as server:
        with routed_cassette(file, "record"):
            post("small", "line one\nline two", server.url)
        with vcr.VCR(record_mode="none").use_cassette(str(file)) as cassette:
            assert post("small", "line one\nline two", server.url) == "small 1"
            assert cassette.play_count == 1
    assert '"content": "small 1"' in file.read_text()
    assert "!!" not in file.read_text()


def test_a_recording_by_vcrpy_replays(tmp_path):
    import vcr

    file = tmp_path / "foreign.yaml"
    with OpenAIServer(numbered()) as server, vcr.use_cassette(str(file), record_mode="all"):
        post("small", base=server.url)
    with routed_cassette(file):
        assert post("small") == "small 1"


def test_several_cassettes_are_merged(tmp_path):
    for name in ("a", "b"):
        with OpenAIServer(numbered()) as server, routed_cassette(tmp_path / f"{name}.yaml", "record"):
            post(name, base=server.url)
    with routed_cassette([tmp_path / "a.yaml", tmp_path / "b.yaml"]):
        assert [post("b"), post("a")] == ["b 1", "a 1"]


def test_the_same_request_replays_in_recorded_order_and_then_the_last_again(tmp_path):
    file = tmp_path / "a.yaml"
    with OpenAIServer(numbered()) as server, routed_cassette(file, "record"):
        assert [post("m", base=server.url), post("m", base=server.url)] == ["m 1", "m 2"]
    with routed_cassette(file):
        assert [post("m") for _ in range(3)] == ["m 1", "m 2", "m 2"]
    with routed_cassette(file, repeats=False, strict=False):
        assert [post("m"), post("m")] == ["m 1", "m 2"]
        with pytest.raises(CassetteMismatch, match="used up"):
            post("m")


def test_sampling_and_metadata_do_not_break_a_replay(tmp_path):
    file = tmp_path / "a.yaml"
    with OpenAIServer(numbered()) as server, routed_cassette(file, "record"):
        post("m", base=server.url, temperature=0)
    with routed_cassette(file):
        assert post("m", temperature=1, metadata={"run": 7}, user="me") == "m 1"


def test_an_unrecorded_request_shows_the_nearest_one(tmp_path):
    file = tmp_path / "a.yaml"
    with OpenAIServer(numbered()) as server, routed_cassette(file, "record"):
        post("large", "unrelated text", server.url)
        post("small", "first line\nsecond line\nthird line", server.url)
    with pytest.raises(CassetteMismatch) as caught, routed_cassette(file):
        post("small", "first line\nsecond lime\nthird line")
    message = str(caught.value)
    assert "a.yaml, 2 exchanges" in message
    assert "[a.yaml #2]" in message
    assert "message 1 (user) differs" in message
    assert "-second line\n  +second lime" in message
    assert "--steproute-record" in message


def test_another_model_says_for_which_it_is_recorded(tmp_path):
    file = tmp_path / "a.yaml"
    with OpenAIServer(numbered()) as server, routed_cassette(file, "record"):
        post("small", base=server.url)
        post("large", base=server.url)
    with (
        pytest.raises(CassetteMismatch, match=r"the same messages are recorded for: large, small"),
        routed_cassette(file),
    ):
        post("medium")


def test_a_swallowed_mismatch_is_raised_at_the_end(tmp_path):
    def swallow():
        with routed_cassette(tmp_path / "none.yaml"):
            with pytest.raises(CassetteMismatch):
                post("m")
            with pytest.raises(CassetteMismatch):
                post("other")

    with pytest.raises(CassetteMismatch, match=r"none\.yaml \(missing\)"):
        swallow()


def test_a_retried_mismatch_is_reported_once(tmp_path):
    with routed_cassette(tmp_path / "none.yaml", strict=False) as cassette:
        for _ in range(3):
            with pytest.raises(CassetteMismatch):
                post("m")
        assert len(cassette.mismatches) == 1


@pytest.mark.parametrize("client", ["openai", "litellm"])
def test_a_wrapped_mismatch_is_explained(client, tmp_path):
    module = pytest.importorskip(client)
    with routed_cassette(tmp_path / "none.yaml", strict=False):
        try:
            if client == "openai":
                module.OpenAI(base_url=f"{ELSEWHERE}/v1", api_key="k", max_retries=0).chat.completions.create(
                    model="small", messages=QUESTION
                )
            else:
                module.completion(
                    "openai/small", messages=QUESTION, api_base=f"{ELSEWHERE}/v1", api_key="k", num_retries=0
                )
        except Exception as error:  # noqa: BLE001 - whichever class the library wraps it in
            explanation = explain_mismatch(error)
        else:
            explanation = None
    assert explanation is not None
    assert "model 'small', 1 message (user)" in explanation


def test_explain_mismatch_walks_groups_and_contexts_and_gives_up_on_others():
    mismatch = CassetteMismatch.__new__(CassetteMismatch)
    Exception.__init__(mismatch, "drift")
    try:
        try:
            raise mismatch
        except CassetteMismatch:
            raise ValueError("wrapped")  # noqa: B904 - the context alone must do
    except ValueError as error:
        wrapped = error
    holder = RuntimeError("outer", wrapped)
    assert explain_mismatch(holder) == "drift"
    assert explain_mismatch(ValueError("other")) is None
    assert explain_mismatch(None) is None


def test_new_replays_what_is_known_and_records_the_rest_into_the_first_file(tmp_path):
    first, second = tmp_path / "a.yaml", tmp_path / "x" / "a.yaml"
    for file, model in ((first, "one"), (second, "two")):
        with OpenAIServer(numbered()) as server, routed_cassette(file, "record"):
            post(model, base=server.url)
    with OpenAIServer(numbered()) as server:
        with routed_cassette([first, second], "new") as cassette:
            post("one", base=server.url), post("two", base=server.url), post("three", base=server.url)
        assert [received.body["model"] for received in server.calls] == ["three"]
        assert (cassette.played, cassette.recorded) == (2, 1)
    assert [exchange.asked.model for exchange in load_cassette(first)] == ["one", "three"]
    assert [exchange.asked.model for exchange in load_cassette(second)] == ["two"]


def test_once_records_when_the_file_is_missing(tmp_path):
    file = tmp_path / "a.yaml"
    with OpenAIServer(numbered()) as server:
        with routed_cassette(file, "once"):
            post("m", base=server.url)
        with routed_cassette(file, "once"):
            assert post("m", base=server.url) == "m 1"
        assert len(server.calls) == 1


def test_recording_again_replaces_the_file_and_recording_nothing_keeps_it(tmp_path):
    file = tmp_path / "a.yaml"
    with OpenAIServer(numbered()) as server:
        for model in ("old", "new"):
            with routed_cassette(file, "record"):
                post(model, base=server.url)
        with routed_cassette(file, "record"):
            pass
    assert [exchange.asked.model for exchange in load_cassette(file)] == ["new"]


def test_what_was_recorded_before_a_crash_is_kept(tmp_path):
    file = tmp_path / "a.yaml"

    def crash(base):
        with routed_cassette(file, "record"):
            post("m", base=base)
            _ = 1 / 0

    with OpenAIServer(numbered()) as server, pytest.raises(ZeroDivisionError):
        crash(server.url)
    assert len(load_cassette(file)) == 1


def test_save_each_writes_the_file_while_the_program_runs(tmp_path):
    file = tmp_path / "a.yaml"
    with OpenAIServer(numbered()) as server, routed_cassette(file, "new", save_each=True):
        post("m", base=server.url)
        assert len(load_cassette(file)) == 1
        post("n", base=server.url)
        assert len(load_cassette(file)) == 2


def test_ollama_show_is_dropped_and_answers_404_in_a_replay(tmp_path, ollama_server):
    import ollama

    file = tmp_path / "a.yaml"

    def program(host):
        client = ollama.Client(host)
        try:
            shown = client.show("small").capabilities
        except ollama.ResponseError as error:
            shown = error.status_code
        chunks = list(client.chat("small", QUESTION, stream=True))
        return shown, "".join(chunk.message.content or "" for chunk in chunks), chunks[-1].eval_duration

    with routed_cassette(file, "record"):
        assert program(ollama_server.url) == (["completion", "tools"], "ok", 500_000_000)
    assert "/api/show" not in file.read_text()
    with routed_cassette(file):
        assert program(ELSEWHERE) == (404, "ok", 500_000_000)


def test_hosts_that_are_not_model_servers_are_left_out(tmp_path):
    import httpx

    with routed_cassette(tmp_path / "none.yaml", ignore_hosts=["telemetry.invalid"]) as cassette:
        assert httpx.get("https://telemetry.invalid/ping").status_code == 404
        assert cassette.mismatches == []


@pytest.mark.parametrize(
    "reach",
    [
        lambda: socket.create_connection(("203.0.113.5", 80), timeout=1),
        lambda: socket.create_connection(("model.invalid", 80), timeout=1),
        lambda: socket.socket().connect_ex(("203.0.113.5", 80)),
        lambda: socket.getaddrinfo("model.invalid", 80),
    ],
)
def test_a_client_that_vcrpy_does_not_know_is_stopped_at_the_socket(reach, tmp_path):
    with routed_cassette(tmp_path / "none.yaml"), pytest.raises(NetworkBlocked, match="blocked during a replay"):
        reach()


def test_loopback_stays_open_for_other_sockets(tmp_path, openai_server):
    host, port = openai_server.url.removeprefix("http://").split(":")
    with routed_cassette(tmp_path / "none.yaml"):
        socket.create_connection((host, int(port)), timeout=5).close()


def test_the_innermost_cassette_counts(tmp_path):
    for name in ("outer", "inner"):
        server = OpenAIServer(lambda body, name=name: Reply(content=name))
        with server, routed_cassette(tmp_path / name, "record"):
            post("m", base=server.url)
    with routed_cassette(tmp_path / "outer"):
        with routed_cassette(tmp_path / "inner"):
            assert post("m") == "inner"
        assert post("m") == "outer"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: [", "not YAML text"),
        ("- 1", "a list under 'interactions'"),
        ("interactions:\n- request: {}\n  response: {}", "an interaction lacks a part: KeyError 'method'"),
    ],
)
def test_a_broken_file_is_named(content, said, tmp_path):
    file = tmp_path / "broken.yaml"
    file.write_text(content)
    with pytest.raises(CassetteError, match=said) as caught, routed_cassette(file):
        pass
    assert "broken.yaml" in str(caught.value)


def test_unknown_mode_and_no_path_are_config_errors(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'record'"), routed_cassette(tmp_path / "a", "recrd"):
        pass
    with pytest.raises(ConfigError, match="at least one cassette file"), routed_cassette([]):
        pass


def test_awkward_characters_survive(tmp_path):
    file, text = tmp_path / "a.yaml", "é → 🙂 \u2028 \x85 \ufeff tab\t trailing \n\nend\r\n"
    with OpenAIServer(lambda body: Reply(content=text)) as server, routed_cassette(file, "record"):
        assert post("m", text, server.url) == text
    with routed_cassette(file):
        assert post("m", text) == text


def test_bodies_are_stored_compactly(tmp_path):
    file = tmp_path / "a.yaml"
    with OpenAIServer() as server, routed_cassette(file, "record"):
        post("m", base=server.url)
    (exchange,) = load_cassette(file)
    assert json.loads(exchange.request_body) == {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    assert len(file.read_text()) < 1500
