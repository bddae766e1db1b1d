import os
import re
import subprocess
import sys

import pytest
from servers import OpenAIServer, Reply

TESTS = """
import os
import httpx, pytest

def ask(text):
    body = {"model": "small", "messages": [{"role": "user", "content": text}]}
    return httpx.post(os.environ["BASE"] + "/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]

def test_default_file(routed_cassette):
    assert ask("hello") == "HELLO"

@pytest.mark.routed_cassette("shared/one.yaml")
def test_marked(routed_cassette):
    assert ask("marked") == "MARKED"

def test_called(routed_cassette):
    with routed_cassette("shared/two.yaml"):
        assert ask("called") == "CALLED"

@pytest.mark.routed_cassette("shared/one.yaml", "shared/two.yaml", mode="replay")
def test_merged(routed_cassette):
    if os.environ["DRIFT"] != "record":
        assert ask("called") + ask("marked") == "CALLEDMARKED"
        assert routed_cassette.played == 2

async def test_async(routed_cassette):
    async with httpx.AsyncClient() as client:
        body = {"model": "small", "messages": [{"role": "user", "content": "async"}]}
        response = await client.post(os.environ["BASE"] + "/v1/chat/completions", json=body)
    assert response.status_code == 200

def test_swallowing(routed_cassette):
    try:
        ask("same" if os.environ["DRIFT"] != "yes" else "other")
    except Exception:
        pass

def test_failing_by_itself(routed_cassette):
    if os.environ["DRIFT"] == "yes":
        ask("drifted")
"""


def run_pytest(folder, *options, **environment):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", *options]
    result = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=120
    )
    return result.returncode, result.stdout + result.stderr


def test_record_replay_and_drift(tmp_path):
    (tmp_path / "test_mine.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    with OpenAIServer(lambda body: Reply(content=body["messages"][0]["content"].upper())) as server:
        code, out = run_pytest(tmp_path, "--steproute-record", "test_mine.py", BASE=server.url, DRIFT="record")
        assert code == 0, out
        asked = len(server.calls)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.yaml")) == [
        "cassettes/test_mine/test_async.yaml",
        "cassettes/test_mine/test_default_file.yaml",
        "cassettes/test_mine/test_swallowing.yaml",
        "shared/one.yaml",
        "shared/two.yaml",
    ]
    assert asked == 5

    code, out = run_pytest(tmp_path, BASE="http://model.invalid:9", DRIFT="no")
    assert code == 0, out
    assert "7 passed" in out

    code, out = run_pytest(tmp_path, BASE="http://model.invalid:9", DRIFT="yes")
    assert code == 1
    assert "2 failed, 5 passed" in out
    swallowed = out[out.index("test_swallowing") :]
    assert "asked for what its cassette does not hold, and went on" in swallowed
    assert re.search(r"-same\n\s+\+other", swallowed)
    assert "CassetteMismatch" in out
    assert "steproute cassette" in out


def test_loading_the_plugin_imports_nothing_that_only_recording_needs():
    heavy = ["vcr", "httpx", "yaml", "aiohttp", "requests", "litellm", "openai", "steproute.testing.cassette"]
    code = (
        "import sys, steproute; before = set(sys.modules); import pytest, steproute.testing.pytest_plugin;"
        f"print([m for m in {heavy} if m in set(sys.modules) - before])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_the_marker_is_declared(pytestconfig):
    assert any(line.startswith("routed_cassette(") for line in pytestconfig.getini("markers"))


def test_a_test_that_uses_the_fixture_without_a_request_needs_no_file(routed_cassette):
    assert routed_cassette.played == 0
    assert routed_cassette.cassette.mode == "replay" or pytest.skip("recording")


MARKED_ONLY = """
import os
import httpx, pytest

@pytest.mark.routed_cassette("mine.yaml")
def test_marked_only():
    body = {"model": "small", "messages": [{"role": "user", "content": "ping"}]}
    answer = httpx.post(os.environ["BASE"] + "/v1/chat/completions", json=body).json()
    assert answer["choices"][0]["message"]["content"] == "PONG"
"""


def test_the_marker_alone_opens_the_cassette(tmp_path):
    (tmp_path / "test_mine.py").write_text(MARKED_ONLY)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    with OpenAIServer(lambda body: Reply(content="PONG")) as server:
        code, out = run_pytest(tmp_path, "--steproute-record", BASE=server.url)
        assert (code, len(server.calls)) == (0, 1), out
        assert (tmp_path / "mine.yaml").exists()
        code, out = run_pytest(tmp_path, BASE=server.url)
        assert (code, len(server.calls)) == (0, 1), out  # replayed, although the server is there
    (tmp_path / "mine.yaml").unlink()
    code, out = run_pytest(tmp_path, BASE="http://127.0.0.1:9")
    assert code == 1
    assert "mine.yaml" in out
    assert "Connection refused" not in out
