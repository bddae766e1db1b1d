import sys
from pathlib import Path

import pytest
from servers import OpenAIServer, Reply

from steproute.errors import ConfigError
from steproute.testing import record_command, record_program, replay_command, replay_program
from steproute.testing.exchange import load_cassette

SCRIPT = """
import os, subprocess, sys, httpx
def ask(text):
    body = {"model": "small", "messages": [{"role": "user", "content": text}]}
    headers = {"authorization": "Bearer sk-live-0123456789abcdef"}
    response = httpx.post(os.environ["BASE"] + "/v1/chat/completions", json=body, headers=headers)
    return response.json()["choices"][0]["message"]["content"]
if __name__ == "__main__":
    try:
        print(ask(sys.argv[1]), flush=True)
    except Exception as error:
        print("swallowed", flush=True)
    if "child" in sys.argv:
        subprocess.run([sys.executable, __file__, "from the child"], check=True)
    sys.exit(3 if "fail" in sys.argv else 0)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    path = tmp_path / "prog.py"
    path.write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    return path


def test_a_script_its_child_and_its_exit_code(program, tmp_path, monkeypatch, capfd):
    file = tmp_path / "out" / "a.yaml"
    with OpenAIServer(lambda body: Reply(content=body["messages"][0]["content"].upper())) as server:
        monkeypatch.setenv("BASE", server.url)
        result = record_program([sys.executable, str(program), "hello", "child", "fail"], file)
    assert (result.exit_code, result.exchanges, result.path) == (3, 2, file)
    assert "HELLO\nFROM THE CHILD" in capfd.readouterr().out
    assert [exchange.asked.turns[0].content for exchange in load_cassette(file)] == ["hello", "from the child"]
    assert "sk-live" not in file.read_text()

    monkeypatch.setenv("BASE", "http://model.invalid:9")
    result = replay_program(["prog.py", "hello", "child"], [file])
    assert (result.exit_code, result.report) == (0, "")
    assert "HELLO\nFROM THE CHILD" in capfd.readouterr().out


def test_a_swallowed_mismatch_of_a_replay_is_an_exit_code_and_a_report(program, tmp_path, monkeypatch, capfd):
    file = tmp_path / "a.yaml"
    with OpenAIServer() as server:
        monkeypatch.setenv("BASE", server.url)
        record_program(["python", "prog.py", "hello"], file)
        # A module, and `add`: what is known is not asked again.
        assert record_program(["-m", "prog", "more"], file, add=True).exchanges == 1
        assert len(server.calls) == 2
        result = replay_program(["prog.py", "hallo"], [file])
        assert len(server.calls) == 2
    assert result.exit_code == 1
    assert "-hello\n  +hallo" in result.report
    assert "swallowed" in capfd.readouterr().out


def test_the_commands_return_exit_codes_and_explain_on_standard_error(program, tmp_path, monkeypatch, capfd):
    file = tmp_path / "a.yaml"
    with OpenAIServer() as server:
        monkeypatch.setenv("BASE", server.url)
        assert record_command(["prog.py", "hello", "fail"], file) == 3
    assert f"steproute: 1 exchange recorded in {file}" in capfd.readouterr().err
    assert replay_command(["prog.py", "hallo"], [file]) == 1
    assert "-hello\n  +hallo" in capfd.readouterr().err


def test_a_program_without_requests_writes_nothing(tmp_path):
    result = record_program([sys.executable, "-c", "print('hi')"], tmp_path / "a.yaml")
    assert (result.exit_code, result.exchanges) == (0, 0)
    assert not (tmp_path / "a.yaml").exists()


def test_a_program_killed_by_a_signal_keeps_what_it_recorded(program, tmp_path, monkeypatch):
    killed = "import prog, os, signal; prog.ask('hello'); os.kill(os.getpid(), signal.SIGKILL)"
    with OpenAIServer() as server:
        monkeypatch.setenv("BASE", server.url)
        result = record_program([sys.executable, "-c", killed], tmp_path / "a.yaml")
    assert (result.exit_code, result.exchanges) == (128 + 9, 1)


def test_a_replay_that_cannot_start_does_not_run_the_program(program, tmp_path, capfd):
    Path(tmp_path, "broken.yaml").write_text("- 1")
    result = replay_program(["prog.py", "hello"], [tmp_path / "broken.yaml"])
    assert result.exit_code == 70
    seen = capfd.readouterr()
    assert "a list under 'interactions'" in seen.err
    assert seen.out == ""


@pytest.mark.parametrize(
    ("argv", "said"), [([], "nothing to run"), (["no-such-program-xyz"], "cannot run 'no-such-program-xyz'")]
)
def test_no_command_and_an_unknown_one(argv, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        record_program(argv, tmp_path / "a.yaml")
