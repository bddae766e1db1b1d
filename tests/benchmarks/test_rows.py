"""Rows of data sets: files of every kind, and the hub by name."""

from __future__ import annotations

import gzip
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from steproute.benchmarks.rows import need, read_rows, texts
from steproute.errors import ConfigError

ROWS = [{"a": "1"}, {"a": "é"}]


def test_every_kind_of_file(tmp_path: Path) -> None:
    lines = "".join(json.dumps(row) + "\n\n" for row in ROWS)
    (tmp_path / "x.jsonl").write_text(lines)
    with gzip.open(tmp_path / "x.jsonl.gz", "wt") as file:
        file.write(lines)
    (tmp_path / "x.json").write_text(json.dumps(ROWS))
    (tmp_path / "x.csv").write_text("\ufeffa\n1\né\n", encoding="utf-8")
    for name in ("x.jsonl", "x.jsonl.gz", "x.json", "x.csv"):
        assert [row for _, row in read_rows(tmp_path / name)] == ROWS
    assert [where for where, _ in read_rows(tmp_path / "x.jsonl")] == ["x.jsonl line 1", "x.jsonl line 3"]
    (tmp_path / "byid.json").write_text(json.dumps({"k": {"a": 1}}))
    assert list(read_rows(tmp_path / "byid.json")) == [("byid.json row 1", {"id": "k", "a": 1})]


def test_the_hub_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    module = types.ModuleType("datasets")

    def load_dataset(name: str, split: str) -> list[dict[str, str]]:
        asked.append((name, split))
        return ROWS

    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    assert list(read_rows("owner/set", "train"))[1] == ("owner/set row 2", {"a": "é"})
    assert asked == [("owner/set", "train")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", b"{", r"data: x\.json: no JSON"),
        ("x.json", b"3", r"x\.json: seen int; allowed: a list of objects"),
        ("x.jsonl", b"{}\n{", r"x\.jsonl line 2: no JSON"),
        ("x.jsonl", b"\xff\xfe", r"data: cannot read .*x\.jsonl"),
        ("x.jsonl.gz", b"no gzip", r"data: cannot read .*x\.jsonl\.gz"),
        ("x.txt", b"", r"data: seen .*x\.txt; allowed: a \.jsonl, \.json or \.csv file"),
    ],
)
def test_bad_files_are_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        list(read_rows(tmp_path / name))


def test_fields() -> None:
    row = {"t": "x", "n": 1, "b": True, "l": ["x"]}
    assert need(row, "r", "t", str) == "x"
    assert need(row, "r", "n", float) == 1.0
    assert texts(row, "r", "l") == ["x"]
    assert texts(row, "r", "missing") == []
    for name, kind, said in (("b", int, "a whole number"), ("t", list, "a list"), ("b", float, "a number")):
        with pytest.raises(ConfigError, match=f"r: field '{name}': seen .*; allowed: {said}"):
            need(row, "r", name, kind)
