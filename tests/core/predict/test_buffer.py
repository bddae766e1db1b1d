from __future__ import annotations

import json

import numpy as np
import pytest
from predict_doubles import samples

from steproute import ConfigError
from steproute.predict.buffer import JsonlBuffer, MemoryBuffer, Sample, sample_from_json, sample_to_json

ROWS = samples(12, lambda state, model, embedding: 0.25)


def same(one: Sample, two: Sample) -> bool:
    return (
        (one.task, one.model, one.gain, one.weight) == (two.task, two.model, two.gain, two.weight)
        and np.array_equal(one.state.numbers, two.state.numbers, equal_nan=True)
        and np.array_equal(one.numbers, two.numbers, equal_nan=True)
        and np.array_equal(one.embedding, two.embedding)
        and one.embedding.dtype == two.embedding.dtype == np.float16
        and (one.state.role, one.state.calls, one.state.roles) == (two.state.role, two.state.calls, two.state.roles)
    )


def test_a_sample_survives_json_bit_for_bit():
    assert all(same(row, sample_from_json(json.loads(json.dumps(sample_to_json(row))))) for row in ROWS)


def test_memory_is_first_in_first_out():
    buffer = MemoryBuffer(capacity=5)
    for row in ROWS:
        buffer.append(row)
    assert len(buffer) == 5
    assert list(buffer.rows()) == ROWS[-5:]
    with pytest.raises(ConfigError, match="capacity"):
        MemoryBuffer(0)


def test_a_file_outlives_the_process(tmp_path):
    first = JsonlBuffer(tmp_path / "gains.jsonl")
    for row in ROWS[:7]:
        first.append(row)
    first.close()
    second = JsonlBuffer(tmp_path / "gains.jsonl")
    for row in ROWS[7:]:
        second.append(row)
    second.close()
    third = JsonlBuffer(tmp_path / "gains.jsonl")
    assert third.skipped == 0
    assert len(third) == 12
    assert all(same(one, two) for one, two in zip(ROWS, third.rows(), strict=True))


def test_lines_that_cannot_be_read_are_left_out_and_counted(tmp_path, caplog):
    path = tmp_path / "gains.jsonl"
    good = json.dumps(sample_to_json(ROWS[0]))
    newer = json.dumps({**sample_to_json(ROWS[1]), "version": 99})
    nan = json.dumps({**sample_to_json(ROWS[2]), "gain": float("nan")})
    short = json.dumps({**sample_to_json(ROWS[2]), "numbers": ""})
    torn = good[: len(good) // 2]
    path.write_text("\n".join([good, newer, nan, short, "null", torn]), encoding="utf-8")
    buffer = JsonlBuffer(path)
    assert (len(buffer), buffer.skipped) == (1, 5)
    assert "line 2 left out: features of version 99" in caplog.text
    buffer.append(ROWS[3])  # after a torn line the next one starts on a line of its own
    buffer.close()
    again = JsonlBuffer(path)
    assert [row.gain for row in again.rows()] == [ROWS[0].gain, ROWS[3].gain]


def test_the_file_is_rewritten_before_it_grows_without_end(tmp_path):
    path = tmp_path / "gains.jsonl"
    buffer = JsonlBuffer(path, capacity=4)
    for row in ROWS:
        buffer.append(row)
    buffer.close()
    assert len(path.read_text(encoding="utf-8").splitlines()) < 8
    assert all(same(one, two) for one, two in zip(ROWS[-4:], JsonlBuffer(path, capacity=4).rows(), strict=True))
