"""Rows of a data set: from a JSON Lines, JSON or CSV file, or by name from the Hugging Face hub."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from steproute.errors import ConfigError

_T = TypeVar("_T")
_KINDS: Mapping[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
    bool: "true or false",
}


def read_rows(source: str | Path, split: str = "test", name: str = "data") -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows, each with where it stands (`FILE line N`).

    Args:
        source: a `.jsonl`, `.json`, `.csv` file (`.gz` too), or else the name of a data set on the hub.
        split: of a data set on the hub.
        name: the option that named it, for messages.

    Raises:
        ConfigError: the file cannot be read, or a row is no object; names the line and what was seen.
        ImportError: a data set of the hub is asked for and `datasets` is missing.
    """
    path = Path(source)
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    if kind not in ("jsonl", "json", "csv"):
        if path.exists() or "/" not in str(source):
            raise ConfigError(
                f"{name}: seen {source}; allowed: a .jsonl, .json or .csv file (.gz too), or OWNER/NAME on the hub"
            )
        yield from _hub(str(source), split)
        return
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="" if kind == "csv" else None) as file:
            if kind == "csv":
                reader = csv.DictReader(file)
                for row in reader:
                    yield f"{path.name} line {reader.line_num}", row
            elif kind == "json":
                yield from _listed(json.load(file), path.name)
            else:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        where = f"{path.name} line {number}"
                        yield where, _object(_parsed(line, where), where)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{name}: cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{name}: {path.name}: no JSON ({error})") from None


def _hub(source: str, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ImportError(
            f'data: {source} is no file; data sets of the hub need: pip install "steproute[hub]"'
        ) from error
    for number, row in enumerate(load_dataset(source, split=split), start=1):
        yield f"{source} row {number}", dict(row)


def _listed(found: Any, file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(found, dict):  # {id: row}, as some sets have it
        found = [{"id": key, **_object(row, f"{file} {key!r}")} for key, row in found.items()]
    if not isinstance(found, list):
        raise ConfigError(f"{file}: seen {type(found).__name__}; allowed: a list of objects")
    for number, row in enumerate(found, start=1):
        where = f"{file} row {number}"
        yield where, _object(row, where)


def _parsed(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: no JSON ({error})") from None


def _object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: seen {row!r:.80}; allowed: an object")
    return row


def need(row: Mapping[str, Any], where: str, name: str, kind: type[_T]) -> _T:
    """A field that must be there.

    Raises:
        ConfigError: it is missing or of another kind; names row and field.
    """
    if name not in row:
        raise ConfigError(f"{where}: field {name!r} is missing")
    value = row[name]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{where}: field {name!r}: seen {value!r:.80}; allowed: {_KINDS[kind]}")
    return value


def texts(row: Mapping[str, Any], where: str, name: str) -> list[str]:
    """A field that must be a list of texts; missing = none.

    Raises:
        ConfigError: it is something else.
    """
    if name not in row:
        return []
    found = need(row, where, name, list)
    for item in found:
        if not isinstance(item, str):
            raise ConfigError(f"{where}: field {name!r}: seen {item!r:.80}; allowed: a list of texts")
    return found
