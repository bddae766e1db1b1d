"""A user's state schema with the router's key added: what a node must ask for to read and write it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel
from typing_extensions import TypedDict, get_type_hints

from steproute.errors import ConfigError
from steproute.ledger import Subtask
from steproute.plugins.langgraph.records import KEY, Record, as_mapping, merge_records

RouterRecords = Annotated[dict[str, Record], merge_records]
"""Type of the key. The reducer is last: LangGraph takes nothing else for one."""

_STATUS = {
    "todo": "todo",
    "pending": "todo",
    "open": "todo",
    "doing": "doing",
    "in_progress": "doing",
    "active": "doing",
    "done": "done",
    "completed": "done",
    "complete": "done",
    "failed": "failed",
    "error": "failed",
    "cancelled": "failed",
    "blocked": "failed",
}
_TEXT_KEYS = ("text", "content", "title", "task", "description", "name")
_SUBTASK_KEYS = ("subtasks", "todos")


def with_records(schema: type[Any]) -> type[Any]:
    """A TypedDict with the fields of a state schema and the router's key.

    Args:
        schema: a TypedDict, a pydantic model or a dataclass.

    Raises:
        ConfigError: it is none of these, or it has the key with another reducer.
    """
    if not isinstance(schema, type):
        raise ConfigError(f"State: seen {schema!r}; allowed: a TypedDict, a pydantic model or a dataclass")
    hints = get_type_hints(schema, include_extras=True)
    if issubclass(schema, BaseModel):
        hints = {name: hints[name] for name in schema.model_fields}
    elif dataclasses.is_dataclass(schema):
        hints = {item.name: hints[item.name] for item in dataclasses.fields(schema)}
    if not hints:
        raise ConfigError(
            f"State: {schema.__name__} has no fields; allowed: a TypedDict, a pydantic model or a dataclass"
        )
    if KEY in hints and getattr(hints[KEY], "__metadata__", (None,))[-1] is not merge_records:
        raise ConfigError(
            f"State: {schema.__name__}.{KEY} must be annotated with RouterRecords from steproute.plugins.langgraph.schema"
        )
    make: Any = TypedDict  # made from values, so a type checker cannot follow
    merged: type[Any] = make(f"Routed{schema.__name__}", {**hints, KEY: RouterRecords}, total=False)
    return merged


def as_schema(values: Mapping[str, Any], schema: type[Any]) -> Any:
    """A state's values as an object of the user's own schema, for the user's callables."""
    own = {key: value for key, value in values.items() if key != KEY}
    if issubclass(schema, BaseModel):
        return schema.model_construct(**own)
    if dataclasses.is_dataclass(schema):
        names = {item.name for item in dataclasses.fields(schema)}
        return schema(**{key: value for key, value in own.items() if key in names})
    return own


def subtasks_in(state: Any, key: str | None = None) -> list[Subtask] | None:
    """The subtasks a state holds; None when it has no such key.

    Args:
        state: of any schema.
        key: where they are; None = `subtasks`, or `todos` as LangChain's to-do middleware has them. Items are texts,
            `Subtask` objects or mappings with a status.
    """
    values = state if isinstance(state, Mapping) else as_mapping(state)
    found = next((values[name] for name in ((key,) if key else _SUBTASK_KEYS) if values.get(name) is not None), None)
    if not isinstance(found, Sequence) or isinstance(found, str):
        return None
    return [_subtask(item, number) for number, item in enumerate(found)]


def _subtask(item: Any, number: int) -> Subtask:
    if isinstance(item, Subtask):
        return item
    if isinstance(item, str):
        return Subtask(id=str(number), text=item)
    values = as_mapping(item)
    text = next((str(values[key]) for key in _TEXT_KEYS if values.get(key)), "")
    status: Any = _STATUS.get(str(values.get("status", "todo")).lower().replace("-", "_").replace(" ", "_"), "todo")
    if values.get("done") is True or values.get("completed") is True:
        status = "done"
    return Subtask(id=str(values.get("id", number)), text=text, status=status)
