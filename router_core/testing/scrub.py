"""Make an exchange fit to be committed: no keys, cookies, dates, request ids or organisations, and no noise."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, quote_plus, unquote_plus, urlsplit, urlunsplit

from steproute.redact import REDACTED, SECRET_QUERY, distinctive, environment_secrets, redact
from steproute.testing.exchange import Exchange, Headers

# What is not named here is dropped: a list of what to keep cannot miss a new secret header.
_KEPT_REQUEST_HEADERS = ("content-type", "anthropic-version")
_KEPT_RESPONSE_HEADERS = ("content-type", "location", "retry-after", "retry-after-ms", "x-should-retry")

_CREDENTIAL_HEADER = re.compile(r"(?i)auth|cookie|key|token|secret|organization|project|session")
_QUERY_NAME = re.compile(rf"(?i)^{SECRET_QUERY}$")
_BODY_NAME = re.compile(
    r"(?i)^(?:[\w-]*[_-])?(?:api[_-]?key|(?:access|refresh|auth|id|session|bearer)[_-]?token|client[_-]?secret"
    r"|secret(?:[_-]?(?:access[_-]?)?key)?|password|passwd|authorization|credentials?|private[_-]?key|cookies?)$"
)
_NOISE_NAME = re.compile(r"(?i)^(?:organi[sz]ation(?:[_-]?id)?|(?:x[_-])?request[_-]?id)$")
_ARGUMENTS = ("arguments", "input", "parameters", "input_schema")
_TIMES = ("created", "created_at", "completed_at", "expires_at")
_EPOCH = "1970-01-01T00:00:00Z"


def scrub(exchange: Exchange, secrets: Sequence[str] = ()) -> Exchange:
    """The exchange without secrets, on both sides, and without what changes at every recording.

    Args:
        exchange: as seen on the wire.
        secrets: further strings that must not survive.

    Returns:
        The exchange with decompressed bodies. The credentials it was sent with are removed wherever they appear,
        also where a server repeats them.
    """
    known = {*secrets, *environment_secrets(), *_credentials(exchange)}
    known |= {quote_plus(secret) for secret in known}
    response_body, packed = _unpacked(exchange)
    response_headers = _kept(exchange.response_headers, _KEPT_RESPONSE_HEADERS, known)
    if packed:
        response_headers["content-encoding"] = [packed]
    return replace(
        exchange,
        uri=scrub_uri(exchange.uri, known),
        request_headers=_kept(exchange.request_headers, _KEPT_REQUEST_HEADERS, known),
        request_body=_scrub_body(exchange.request_body, known, noise=False),
        response_headers=response_headers,
        response_body=_scrub_body(response_body, known, noise=True),
    )


def scrub_request(method: str, uri: str, headers: Headers, body: bytes) -> Exchange:
    """A request alone, scrubbed the same way, to be compared with recorded ones."""
    return scrub(Exchange(method, uri, body, 0, b"", request_headers=headers))


def _credentials(exchange: Exchange) -> set[str]:
    """The secret values this exchange was sent or answered with."""
    found: set[str] = set()
    for headers in (exchange.request_headers, exchange.response_headers):
        for name, values in headers.items():
            if _CREDENTIAL_HEADER.search(name):
                for value in values:
                    found.update(re.split(r"[\s;,=]+", value), [value])
    found.update(value for name, value in parse_qsl(urlsplit(exchange.uri).query) if _QUERY_NAME.match(name))
    return {value for value in found if distinctive(value)}


def scrub_uri(uri: str, secrets: set[str]) -> str:
    """The URI without user, password and secret query values; the other parameters keep their order."""
    parts = urlsplit(uri)
    pairs = []
    for pair in parts.query.split("&") if parts.query else ():
        name, equals, _ = pair.partition("=")
        pairs.append(f"{name}={REDACTED}" if equals and _QUERY_NAME.match(unquote_plus(name)) else pair)
    host = parts.netloc.rpartition("@")[2]
    return redact(urlunsplit((parts.scheme, host, parts.path, "&".join(pairs), parts.fragment)), secrets)


def _kept(headers: Headers, names: tuple[str, ...], secrets: set[str]) -> dict[str, list[str]]:
    kept = {}
    for name, values in headers.items():
        if name.lower() == "location":
            kept[name.lower()] = [scrub_uri(value, secrets) for value in values]
        elif name.lower() in names:
            kept[name.lower()] = [redact(value, secrets) for value in values]
    return dict(sorted(kept.items()))


def _scrub_body(body: bytes, secrets: set[str], *, noise: bool) -> bytes:
    """Scrub a body that is JSON, server-sent events, JSON lines, a form or plain text.

    Args:
        body: the raw body; binary data only loses the known secrets.
        secrets: strings that must not survive.
        noise: whether times, request ids and organisations go too: they do in answers, never in what a program asks
            or a model writes.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        for secret in secrets:
            body = body.replace(secret.encode(), REDACTED.encode())
        return body
    whole = _scrub_json(text, noise)
    if whole is None:
        whole = "".join(_scrub_line(line, noise) for line in text.splitlines(keepends=True))
    return redact(whole, secrets).encode()


def _scrub_json(text: str, noise: bool) -> str | None:
    """Scrubbed JSON text, the very same text when there was nothing to scrub, None when it is no JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        data = json.loads(text)
    except ValueError:
        return None
    clean = _clean(data, noise)
    return text if clean == data else json.dumps(clean, ensure_ascii=False)


_FORM = re.compile(r"^[\w.%+*-]+=[^\s&]*(?:&[\w.%+*-]+=[^\s&]*)*$")


def _scrub_line(line: str, noise: bool) -> str:
    content = line.rstrip("\r\n")
    ending = line[len(content) :]
    prefix = "data: " if content.startswith("data: ") else "data:" if content.startswith("data:") else ""
    scrubbed = _scrub_json(content[len(prefix) :], noise)
    if scrubbed is not None:
        return prefix + scrubbed + ending
    if _FORM.match(content):
        pairs = [pair.partition("=") for pair in content.split("&")]
        shown = [(name, REDACTED if _BODY_NAME.match(unquote_plus(name)) else value) for name, _, value in pairs]
        return "&".join(f"{name}={value}" for name, value in shown) + ending
    return line


def _clean(value: Any, noise: bool) -> Any:
    if isinstance(value, dict):
        return {name: _clean_field(str(name), item, noise) for name, item in value.items()}
    if isinstance(value, list):
        return [_clean(item, noise) for item in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        nested = _scrub_json(value, noise=False)  # tool arguments are JSON inside a string
        return value if nested is None else nested
    return value


def _clean_field(name: str, value: Any, noise: bool) -> Any:
    if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
        if _BODY_NAME.match(name) or (noise and _NOISE_NAME.match(name)):
            return REDACTED
        if noise and name in _TIMES:
            return _EPOCH if isinstance(value, str) else 0
    return _clean(value, noise and name not in _ARGUMENTS)


def _unpacked(exchange: Exchange) -> tuple[bytes, str]:
    """The response body as text, and the encoding that could not be undone (empty when all was).

    Clients that decompress a body themselves (aiohttp) hand it over ready, under its old header.
    """
    body = exchange.response_body
    for encoding in reversed([name.strip() for name in exchange.header("content-encoding").lower().split(",")]):
        if encoding in _UNPACK:
            try:
                body = _UNPACK[encoding](body)
            except ImportError:
                return body, encoding
            except ValueError:
                return body, ""
    return body, ""


def _zlib(body: bytes, bits: int) -> bytes:
    try:
        return zlib.decompress(body, bits)
    except zlib.error as error:
        raise ValueError(str(error)) from error


def _brotli(body: bytes) -> bytes:
    import brotli

    try:
        return bytes(brotli.decompress(body))
    except brotli.error as error:
        raise ValueError(str(error)) from error


def _zstd(body: bytes) -> bytes:
    import zstandard

    try:
        return bytes(zstandard.ZstdDecompressor().decompressobj().decompress(body))
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: _zlib(body, zlib.MAX_WBITS | 16),
    "x-gzip": lambda body: _zlib(body, zlib.MAX_WBITS | 16),
    "deflate": lambda body: _zlib(body, zlib.MAX_WBITS),
    "br": _brotli,
    "zstd": _zstd,
}
