"""Steps of a store to a file: JSON lines, or Parquet for data frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from steproute.errors import ConfigError
from steproute.store.rows import plain_json

KINDS = (".jsonl", ".parquet")
GROUP = 20_000
"""Rows per row group of a Parquet file."""


def write_jsonl(steps: Iterable[Mapping[str, Any]], file: IO[str]) -> int:
    """One JSON object per line; gives how many."""
    n = 0
    for step in steps:
        file.write(plain_json(step) + "\n")
        n += 1
    return n


def export(steps: Iterable[Mapping[str, Any]], path: Path) -> int:
    """Write steps to a file, whose ending says how. An existing file is replaced once everything is written.

    Returns:
        How many.

    Raises:
        ConfigError: an ending that is not known.
        ImportError: the extra `parquet` is missing.
        OSError: the file cannot be written.
    """
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise ConfigError(f"export: seen {path.name!r}; allowed: a file that ends in {' or '.join(KINDS)}")
    fresh = path.with_name(path.name + ".new")
    if kind == ".jsonl":
        with fresh.open("w", encoding="utf-8") as file:
            n = write_jsonl(steps, file)
    else:
        n = _parquet(steps, fresh)
    fresh.replace(path)
    return n


def _parquet(steps: Iterable[Mapping[str, Any]], path: Path) -> int:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError("Parquet needs pyarrow: pip install 'steproute[parquet]'") from None
    kinds = {"str": pa.string(), "float": pa.float64(), "int": pa.int64(), "bool": pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    n, group = 0, []
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for step in steps:
            group.append(_flat(step))
            n += 1
            if len(group) == GROUP:
                writer.write_table(pa.Table.from_pylist(group, schema=schema))
                group = []
        writer.write_table(pa.Table.from_pylist(group, schema=schema))
    return n


def _flat(step: Mapping[str, Any]) -> dict[str, Any]:
    flat = {name: step.get(name) for name in COLUMNS}
    for name, kind in COLUMNS.items():
        value = flat[name]
        if isinstance(value, (dict, list)):
            flat[name] = plain_json(value)
        elif kind == "bool" and value is not None:
            flat[name] = bool(value)
    return flat


COLUMNS = {
    **dict.fromkeys(
        ("n", "attempt", "regime", "regime_after", "expected_prompt_tokens", "prompt_tokens", "completion_tokens"),
        "int",
    ),
    **dict.fromkeys(("created", "propensity", "g", "r", "d", "e", "usd", "seconds", "energy_j", "g_after"), "float"),
    **dict.fromkeys(("gain", "reliability", "reward"), "float"),
    **dict.fromkeys(("cached_tokens", "written_tokens"), "int"),
    **dict.fromkeys(("explored", "fallback", "pinned", "stop", "tokens_estimated"), "bool"),
    **dict.fromkeys(
        ("task", "step", "role", "model", "policy", "reason", "answered_by", "call_id", "energy_source"), "str"
    ),
    **dict.fromkeys(("error", "domain", "dimension", "candidates", "budget", "evidence", "prompt", "output"), "str"),
}
"""Columns of a Parquet file; candidates and budget are JSON text there."""
