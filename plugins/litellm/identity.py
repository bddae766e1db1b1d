"""Whose call it is: task, step and role from metadata, headers, context variables or a session id.

The order in which they are asked is the table in docs/litellm.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from steproute.ledger import Evidence, Ledger, Task
from steproute.plugins.litellm.context import current

METADATA = ("litellm_metadata", "metadata")
"""Where LiteLLM keeps a request's metadata: the first for `/responses` and `/messages`, the second for the others."""
OWN = "steproute"
"""Key of the metadata under which a caller describes a call."""
HEADER = "x-steproute-"
_TEXTS = ("task", "step", "role", "goal", "domain", "dimension", "source", "parent")
_LABELS = (*_TEXTS, "success", "finish")
_FLAT, _HEADERS = ({prefix + name: name for name in _LABELS} for prefix in (f"{OWN}_", HEADER))
_Places = Sequence[tuple[str, Mapping[str, Any]]]
"""Where labels are looked for, in order, each with its name."""
_LONGEST = 256
"""Characters of an id that a client may choose; a longer one is cut."""
_WORDS = {"true": True, "success": True, "1": True, "false": False, "failure": False, "0": False}


class Identity(NamedTuple):
    """What is known of a call before it is made."""

    task: Task
    """Its id is empty when nobody gave one."""
    step: str = ""
    role: str = ""
    evidence: tuple[Evidence, ...] = ()
    """About the step before, such as a test run by the caller."""
    ends: bool = False
    """True = the task ends with this call."""
    success: bool | None = None
    origin: str = ""
    """Where the task's id comes from."""
    ledger: Ledger | None = None
    """The caller's own, where it gave one."""


def identify(
    request: Mapping[str, Any],
    metadata: Mapping[str, Any] | None = None,
    running: Callable[[str], Ledger | None] | None = None,
) -> Identity:
    """Read the labels of a call.

    Args:
        request: LiteLLM's keyword arguments of the call.
        metadata: the request's `metadata_of`; None = to be read.
        running: finds the ledger of a task that is known already: it need not be described again.
    """
    meta = metadata_of(request) if metadata is None else metadata
    headers = headers_of(request, meta)
    own, labels = meta.get(OWN), current()
    places: _Places = [
        (origin, values)
        for origin, values in (
            ("metadata", own if own and isinstance(own, (dict, Mapping)) else None),
            ("metadata", {_FLAT[full]: meta[full] for full in _FLAT.keys() & meta.keys()}),
            ("headers", {_HEADERS[full]: value for full, value in headers.items() if full in _HEADERS}),
            ("context", labels),
        )
        if values
    ]
    if not places:
        task, origin = _session(request, meta, headers)
        ledger = running(task) if running is not None and task else None
        return Identity(Task(id=task) if ledger is None else ledger.task, origin=origin)
    evidence = tuple(_evidence(own)) if own else ()
    said = {name: _first(places, name) for name in _TEXTS}
    task, origin = said["task"]
    given = labels.get("task")
    if not task and isinstance(given, (Task, Ledger)):
        return _of_object(given, said, places, evidence)
    if not task:
        task, origin = _session(request, meta, headers)
    described = {name: said[name][0] for name in ("goal", "domain", "dimension", "source") if said[name][0]}
    ends, success = _end(places)
    return Identity(
        Task(id=task, parent=said["parent"][0] or None, **described),
        said["step"][0],
        said["role"][0],
        evidence,
        ends,
        success,
        origin,
    )


def _of_object(
    given: Task | Ledger, said: Mapping[str, tuple[str, str]], places: _Places, evidence: tuple[Evidence, ...]
) -> Identity:
    task, ledger = (given.task, given) if isinstance(given, Ledger) else (given, None)
    ends, success = _end(places)
    return Identity(task, said["step"][0], said["role"][0], evidence, ends, success, "context", ledger)


def _end(places: _Places) -> tuple[bool, bool | None]:
    finish = _first(places, "finish")[0].lower()
    success = _WORDS.get(_first(places, "success")[0].lower())
    return finish in ("true", "1") or success is not None, success


def metadata_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request's metadata: LiteLLM's own dict, which its callbacks see too. A caller's under the other name is read as well."""
    found = [item for name in METADATA if isinstance(item := request.get(name), dict)]
    if len(found) < 2:
        return found[0] if found else {}
    return {**found[1], **found[0]}


def holder_of(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """The dict of LiteLLM's own that reaches its callbacks, to write in."""
    for name in METADATA:
        meta = request.get(name)
        if isinstance(meta, dict):
            return meta
    return None


def headers_of(request: Mapping[str, Any], metadata: Mapping[str, Any]) -> Mapping[str, str]:
    """The client's own headers (`x-…`) of its request to the proxy, names in lower case."""
    server = request.get("proxy_server_request")
    found = server.get("headers") if isinstance(server, (dict, Mapping)) else None
    if not isinstance(found, (dict, Mapping)):
        found = metadata.get("headers")
    if not isinstance(found, (dict, Mapping)):
        return {}
    return {
        name.lower(): value
        for name, value in found.items()
        if isinstance(name, str) and name[:2] in ("x-", "X-") and isinstance(value, str)
    }


def client_of(metadata: Mapping[str, Any]) -> str:
    """Who calls the proxy, so that conversations of different keys are never taken for one another."""
    return "|".join(str(metadata.get(f"user_api_key_{name}") or "") for name in ("hash", "user_id", "team_id"))


def previous_of(request: Mapping[str, Any]) -> Iterator[str]:
    """The response that a request to `/responses` goes on from, as LiteLLM knows it and as the proxy's client wrote it."""
    server = request.get("proxy_server_request")
    body = server.get("body") if isinstance(server, Mapping) else None
    wrote = body.get("previous_response_id") if isinstance(body, Mapping) else None
    for found in (request.get("previous_response_id"), request.get("_litellm_addressed_response_id"), wrote):
        if isinstance(found, str):
            yield found


def _session(request: Mapping[str, Any], meta: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[str, str]:
    for values, name in (
        (request, "litellm_session_id"),
        (meta, "session_id"),
        (headers, "x-litellm-session-id"),
        (headers, "x-litellm-trace-id"),
    ):
        item = values.get(name)
        if isinstance(item, str) and (text := item.strip()):
            return text[:_LONGEST], "session"
    return "", ""


def _first(places: _Places, name: str) -> tuple[str, str]:
    for origin, values in places:
        value = values.get(name)
        if isinstance(value, (str, int, float)) and str(value).strip():
            return str(value).strip()[:_LONGEST], origin
    return "", ""


def _evidence(own: Any) -> Iterator[Evidence]:
    """Evidence as a caller's JSON says it; what is malformed is left out."""
    items = own.get("evidence") if isinstance(own, Mapping) else None
    for item in items if isinstance(items, Sequence) and not isinstance(items, str) else ():
        if isinstance(item, Mapping) and isinstance(item.get("score"), (int, float)) and 0 <= item["score"] <= 1:
            count = item.get("count", 1)
            yield Evidence(
                source=str(item.get("source") or "caller")[:_LONGEST],
                score=float(item["score"]),
                count=count if isinstance(count, int) and count >= 0 else 1,
            )
