"""One recorded HTTP exchange, and the vcrpy YAML files that hold them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from steproute.errors import SteprouteError
from steproute.testing.canonical import Asked, canonical

Headers = Mapping[str, list[str]]


class CassetteError(SteprouteError, ValueError):
    """A cassette file cannot be read: the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Exchange:
    """One request with its response. Bodies are what went over the wire, decompressed."""

    method: str
    uri: str
    request_body: bytes
    status: int
    response_body: bytes
    request_headers: Headers = field(default_factory=dict)
    response_headers: Headers = field(default_factory=dict)
    reason: str = ""
    source: str = ""
    """Where it was read from, for messages: `file.yaml #3`."""

    @cached_property
    def asked(self) -> Asked:
        """The request in canonical form."""
        return canonical(self.method, self.uri, self.request_body)

    def header(self, name: str) -> str:
        """First value of a response header, empty when missing."""
        for key, values in self.response_headers.items():
            if key.lower() == name.lower() and values:
                return values[0]
        return ""

    def vcr_response(self) -> dict[str, Any]:
        """A fresh copy of the response in vcrpy's form; its readers change it."""
        return {
            "status": {"code": self.status, "message": self.reason},
            "headers": {name: list(values) for name, values in self.response_headers.items()},
            "body": {"string": self.response_body},
        }


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Strings, numbers, lists and dicts only; vcrpy's harmless tags are read as what they hold."""


_Loader.add_constructor("tag:yaml.org,2002:python/str", lambda loader, node: loader.construct_scalar(node))
_Loader.add_constructor("tag:yaml.org,2002:python/unicode", lambda loader, node: loader.construct_scalar(node))
_Loader.add_constructor("tag:yaml.org,2002:python/tuple", lambda loader, node: loader.construct_sequence(node))


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes strings of several lines as blocks, so that a recording can be read and reviewed."""


def _represent_text(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def load_cassette(path: str | Path) -> list[Exchange]:
    """Read a cassette written by this package or by vcrpy.

    Raises:
        CassetteError: the file is missing, is not YAML or has not the shape of a cassette.
    """
    file = Path(path)
    try:
        data = yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise CassetteError(f"cassette {file}: cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CassetteError(f"cassette {file}: not YAML text: {str(error).splitlines()[0]}") from error
    if data is None:
        return []
    interactions = data.get("interactions") if isinstance(data, Mapping) else None
    if not isinstance(interactions, list):
        raise CassetteError(f"cassette {file}: expected a mapping with a list under 'interactions'")
    try:
        return [_read(item, f"{file.name} #{number}") for number, item in enumerate(interactions, 1)]
    except (KeyError, TypeError, AttributeError) as error:
        raise CassetteError(f"cassette {file}: an interaction lacks a part: {type(error).__name__} {error}") from error


def _read(item: Mapping[str, Any], source: str) -> Exchange:
    request, response = item["request"], item["response"]
    return Exchange(
        method=str(request["method"]),
        uri=str(request["uri"]),
        request_body=body_bytes(request.get("body")),
        request_headers=_headers(request.get("headers")),
        status=int(response["status"]["code"]),
        reason=str(response["status"].get("message") or ""),
        response_headers=_headers(response.get("headers")),
        response_body=body_bytes((response.get("body") or {}).get("string")),
        source=source,
    )


def _headers(headers: Mapping[str, Any] | None) -> dict[str, list[str]]:
    return {
        str(name): [str(value) for value in values] if isinstance(values, (list, tuple)) else [str(values)]
        for name, values in (headers or {}).items()
    }


def save_cassette(path: str | Path, exchanges: Iterable[Exchange]) -> None:
    """Write exchanges as a vcrpy cassette: YAML text, JSON bodies indented, in the given order."""
    interactions = [
        {
            "request": {
                "method": exchange.method,
                "uri": exchange.uri,
                "headers": {name: list(values) for name, values in exchange.request_headers.items()},
                "body": readable(exchange.request_body) or None,
            },
            "response": {
                "status": {"code": exchange.status, "message": exchange.reason},
                "headers": {name: list(values) for name, values in exchange.response_headers.items()},
                "body": {"string": readable(exchange.response_body)},
            },
        }
        for exchange in exchanges
    ]
    text = yaml.dump(
        {"version": 1, "interactions": interactions},
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=10**6,
    )
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(file)


# Characters that YAML would only take in an escaped, unreadable form; JSON can escape them itself.
_AWKWARD = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def readable(body: bytes) -> str | bytes:
    """A body as it is written to a cassette: indented JSON, else text, else bytes."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body
    if text[:1] not in ("{", "["):
        return text
    try:
        pretty = _pretty(json.loads(text), "\n")
    except ValueError:
        return text
    return _AWKWARD.sub(lambda match: f"\\u{ord(match.group()):04x}", pretty)


def _pretty(value: Any, indent: str) -> str:
    """JSON with one line per part that is short enough to read as one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) <= 100 or not isinstance(value, (dict, list)):
        return line
    inner = indent + " "
    if isinstance(value, list):
        return f"[{inner}{(',' + inner).join(_pretty(item, inner) for item in value)}{indent}]"
    fields = (f"{json.dumps(name, ensure_ascii=False)}: {_pretty(item, inner)}" for name, item in value.items())
    return f"{{{inner}{(',' + inner).join(fields)}{indent}}}"


def body_bytes(body: Any) -> bytes:
    """A body of any form that vcrpy stubs hand over, as bytes: text, bytes, JSON data, a file or chunks."""
    if body is None:
        return b""
    if isinstance(body, (bytes, bytearray)):
        return bytes(body)
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    if hasattr(body, "read"):
        return body_bytes(body.read())
    if isinstance(body, (Mapping, list, tuple)):
        return json.dumps(body, default=str).encode()
    return b"".join(body_bytes(chunk) for chunk in body)
