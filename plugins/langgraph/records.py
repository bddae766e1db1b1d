"""The router's part of a graph's state: one plain JSON record per step, under one private key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

KEY = "steproute"
"""Key of the router's records in a graph's state, and of the stamp in a reply's `response_metadata`."""

Record = dict[str, Any]
Records = dict[str, Record]


def merge_records(old: Mapping[str, Record] | None, new: Mapping[str, Record] | None) -> Records:
    """Reducer of the private key. Each step keeps its newest version, so a write that arrives twice changes nothing."""
    merged = dict(old or {})
    for key, record in (new or {}).items():
        known = merged.get(key)
        if known is None or record.get("version", 0) >= known.get("version", 0):
            merged[key] = record
    return merged


def new_record(key: str, **values: Any) -> Record:
    """The record of a step nothing is known about yet."""
    return {
        "key": key,
        "version": 0,
        "kind": "call",
        "status": "decided",
        "role": "",
        "task": "",
        "step": "",
        "attempt": 1,
        "round": 0,
        "decision": "",
        "model": "",
        "reason": "",
        "propensity": 1.0,
        "g": 0.0,
        "scores": {},
        "failed": [],
        "answers": 0,
        "billed": 0,
        "learnt": 0,
        "spent": {},
        "ledger": None,
        "ns": "",
        "root": "",
        "at": 0.0,
        **values,
    }


def records_in(state: Any) -> Records:
    """The records a graph's state holds, whatever the schema.

    Args:
        state: a mapping, a pydantic object or a dataclass.
    """
    found = state.get(KEY) if isinstance(state, Mapping) else getattr(state, KEY, None)
    return dict(found) if isinstance(found, Mapping) else {}


def in_order(records: Mapping[str, Record]) -> Iterator[Record]:
    """Records by time of their decision."""
    return iter(sorted(records.values(), key=lambda record: (record["at"], record["key"])))


def as_mapping(state: Any) -> dict[str, Any]:
    """A state of any schema as a plain dict of its top-level values."""
    if isinstance(state, Mapping):
        return dict(state)
    if is_dataclass(state) and not isinstance(state, type):
        return {name: getattr(state, name) for name in asdict(state)}
    if hasattr(type(state), "model_fields"):
        return {name: getattr(state, name) for name in type(state).model_fields if hasattr(state, name)}
    return dict(getattr(state, "__dict__", {}))
