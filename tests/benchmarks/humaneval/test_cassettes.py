import json
from pathlib import Path

import pytest

from steproute.backend import ChatRequest, Timings
from steproute.benchmarks.humaneval.cassettes import convert, main, read_raw, write_cassette
from steproute.errors import ConfigError
from steproute.integrations.cassette import CassetteBackend
from steproute.testing import routed_cassette
from steproute.testing.exchange import load_cassette

DATA = Path(__file__).parents[2] / "data"
RAW = DATA / "raw" / "HumanEval_13.jsonl"
SAMPLE = DATA / "cassettes" / "HumanEval_13.yaml"
CALLS = read_raw(RAW)


def test_the_committed_sample_is_what_the_raw_file_gives(tmp_path):
    assert main([str(RAW.parent), str(tmp_path), "--all"]) == 0
    assert (tmp_path / SAMPLE.name).read_text() == SAMPLE.read_text()


def test_the_order_of_the_recording_does_not_show(tmp_path):
    assert write_cassette(tmp_path / "a.yaml", [*reversed(CALLS), *CALLS]) == len(CALLS)
    assert (tmp_path / "a.yaml").read_text() == SAMPLE.read_text()


def test_what_is_kept_and_what_is_dropped():
    text = SAMPLE.read_text()
    for (request, response), exchange in zip(
        sorted(CALLS, key=lambda call: (len(call[0]["messages"]), json.dumps(call[0]["messages"]), call[0]["model"])),
        load_cassette(SAMPLE),
        strict=True,
    ):
        kept = json.loads(exchange.response_body)
        assert json.loads(exchange.request_body) == request
        assert kept["model"] == request["model"]
        assert kept["usage"] == response["usage"]
        assert kept["choices"][0]["message"] == response["choices"][0]["message"]
        assert kept["timings"]["predicted_ms"] == pytest.approx(response["timings"]["predicted_ms"], abs=0.05)
        assert (kept["created"], kept["id"] != response["id"]) == (0, True)
    for word in (".gguf", "fingerprint", "per_second", "!!"):
        assert word not in text


def test_the_cassette_backend_serves_every_call_with_the_servers_own_timings():
    backend = CassetteBackend(SAMPLE)
    assert backend.models == ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "smollm2-135m")
    for request, response in CALLS:
        answer = backend.complete(ChatRequest(request["model"], request["messages"], temperature=0.9))
        timings = response["timings"]
        assert answer.content == response["choices"][0]["message"]["content"]
        assert answer.usage.prompt_tokens == response["usage"]["prompt_tokens"]
        assert answer.timings == Timings(
            0.0, round(timings["prompt_ms"], 1) / 1000, round(timings["predicted_ms"], 1) / 1000
        )
        assert answer.seconds == answer.timings.total_s


def test_vcrpy_itself_and_routed_cassette_serve_it():
    import httpx
    import vcr

    request, response = CALLS[0]

    def content(url):
        return httpx.post(url, json=request).json()["choices"][0]["message"]["content"]

    wanted = response["choices"][0]["message"]["content"]
    match_on = ["method", "path", "body"]
    with vcr.VCR(record_mode="none", match_on=match_on).use_cassette(str(SAMPLE)) as cassette:
        assert content("http://127.0.0.1/v1/chat/completions") == wanted
        assert cassette.play_count == 1
    with routed_cassette(SAMPLE):
        assert content("http://model.invalid:9/v1/chat/completions") == wanted


def test_a_cut_off_last_line_is_left_out_and_any_other_is_an_error(tmp_path):
    lines = RAW.read_text().splitlines()
    file = tmp_path / "HumanEval_1.jsonl"
    file.write_text("\n".join([*lines, lines[0][:100]]))
    assert len(read_raw(file)) == len(lines)
    file.write_text("\n".join([lines[0][:100], *lines]))
    with pytest.raises(ConfigError, match=r"HumanEval_1\.jsonl, line 1: not a recorded call"):
        read_raw(file)


def test_the_newest_file_is_left_to_its_recorder(tmp_path):
    import os

    for number, name in enumerate(("HumanEval_9", "HumanEval_10", "HumanEval_2")):
        file = tmp_path / f"{name}.jsonl"
        file.write_text(RAW.read_text())
        os.utime(file, (1000 + number, 1000 + number))
    assert [name for name, _ in convert(tmp_path, tmp_path / "out")] == ["HumanEval_9", "HumanEval_10"]
    assert len(convert(tmp_path, tmp_path / "out", unfinished=True)) == 3


def test_an_empty_folder_is_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main([str(tmp_path), str(tmp_path)])
    assert caught.value.code == 2
    assert "no *.jsonl there" in capsys.readouterr().err
