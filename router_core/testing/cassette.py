"""`routed_cassette`: record a program's HTTP to model servers once, replay it with the network off."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from steproute.errors import ConfigError, unknown_name
from steproute.testing.exchange import Exchange, body_bytes, load_cassette, save_cassette
from steproute.testing.mismatch import CassetteMismatch
from steproute.testing.offline import network_blocked
from steproute.testing.scrub import scrub, scrub_request

Mode = Literal["replay", "record", "new", "once"]
"""`replay`: the network is off. `record`: ask the servers, replace the file. `new`: replay what is known, record the
rest. `once`: replay when the file exists, else record."""

IGNORED_HOSTS = (
    "raw.githubusercontent.com",  # LiteLLM's price list
    "api.smith.langchain.com",
    "us.i.posthog.com",
    "app.posthog.com",
    "openaipublic.blob.core.windows.net",  # tokenizer files
)
_IGNORED_PATHS = ("/api/show",)
"""Ollama's description of a model: long, and asked for by clients at moments of their own."""

_COST_MAP = "LITELLM_LOCAL_MODEL_COST_MAP"
"""Keeps LiteLLM from fetching its price list at import."""

_UNAVAILABLE = Exchange(
    "",
    "",
    b"",
    404,
    b'{"error": "not recorded"}',
    response_headers={"content-type": ["application/json"]},
    reason="Not Found",
)


class RoutedCassette:
    """The exchanges of one recording or replay, in the shape vcrpy's patches expect of a cassette.

    Attributes:
        exchanges: all exchanges, the loaded ones first.
        mismatches: requests of this replay that were never recorded, without repeats.
        played: how many requests were answered from the recording.
    """

    # Read by vcrpy's patch builder.
    custom_patches: Sequence[Any] = ()
    skip_patchers: Sequence[str] = ()

    def __init__(
        self,
        paths: Sequence[str | Path],
        mode: Mode = "replay",
        *,
        ignore_hosts: Sequence[str] = IGNORED_HOSTS,
        secrets: Sequence[str] = (),
        repeats: bool = True,
        save_each: bool = False,
        sink: Callable[[Exchange], None] | None = None,
    ):
        if not paths:
            raise ConfigError("routed_cassette: paths: at least one cassette file is needed, seen none")
        if mode not in get_args(Mode):
            raise ConfigError(unknown_name("routed_cassette: mode", str(mode), get_args(Mode)))
        self.paths = tuple(Path(path) for path in paths)
        if mode == "once":
            mode = "replay" if all(path.exists() for path in self.paths) else "record"
        self.mode: Literal["replay", "record", "new"] = mode
        self.mismatches: list[CassetteMismatch] = []
        self.played = 0
        self._path = str(self.paths[0])
        self._ignored = frozenset(ignore_hosts)
        self._secrets = tuple(secrets)
        self._repeats = repeats
        self._save_each = save_each
        self._sink = sink
        self._lock = threading.RLock()
        self._by_key: dict[str, list[Exchange]] = {}
        self._served: dict[str, int] = {}
        self.exchanges: list[Exchange] = []
        self._own: list[Exchange] = []  # what belongs in the first file
        self._recorded = 0
        if self.mode != "record":
            for path in self.paths:
                self._load(path)

    def _load(self, path: Path) -> None:
        # A missing file is explained at the first request that needs it: a test may need none.
        if path.exists():
            for exchange in load_cassette(path):
                self._index(exchange, own=path == self.paths[0])

    def _index(self, exchange: Exchange, own: bool) -> None:
        self.exchanges.append(exchange)
        if own:
            self._own.append(exchange)
        self._by_key.setdefault(exchange.asked.key, []).append(exchange)

    @property
    def recorded(self) -> int:
        """How many exchanges were recorded now."""
        return self._recorded

    @property
    def report(self) -> str:
        """All mismatches of this replay, explained; empty when there was none."""
        return "\n\n".join(str(mismatch) for mismatch in self.mismatches)

    def save(self) -> None:
        """Write what was recorded to the first path; a replay, or a recording of nothing, writes nothing."""
        if self._recorded:
            save_cassette(self.paths[0], self._own)

    # --- what vcrpy's patches call -----------------------------------------------------------------------------

    @property
    def write_protected(self) -> bool:
        """Whether nothing may be recorded."""
        return self.mode == "replay"

    def filter_request(self, request: Any) -> Any:
        """The request when it belongs in a recording, else None."""
        return None if self._is_ignored(request) else request

    def can_play_response_for(self, request: Any) -> bool:
        """Whether the request is answered here; false means that the patch asks the server, or gives up."""
        if self.mode == "record":
            return False
        if self._is_ignored(request):
            return self.mode == "replay"
        with self._lock:
            return self._available(self._asked(request).asked.key)

    def play_response(self, request: Any) -> dict[str, Any]:
        """The recorded response, in vcrpy's form: in recorded order, then the last one again."""
        if self._is_ignored(request):
            return _UNAVAILABLE.vcr_response()
        asked = self._asked(request)
        key = asked.asked.key
        with self._lock:
            if not self._available(key):
                raise self._mismatch(asked)
            known = self._by_key[key]
            turn = self._served.get(key, 0)
            self._served[key] = turn + 1
            self.played += 1
            return known[min(turn, len(known) - 1)].vcr_response()

    def append(self, request: Any, response: dict[str, Any]) -> None:
        """Record an exchange that has just happened."""
        if self._is_ignored(request):
            return
        exchange = Exchange(
            method=request.method,
            uri=request.uri,
            request_headers=_header_lists(request.headers),
            request_body=body_bytes(request.body),
            status=response["status"]["code"],
            reason=response["status"]["message"] or "",
            response_headers=_header_lists(response["headers"]),
            response_body=body_bytes((response.get("body") or {}).get("string")),
        )
        clean = scrub(exchange, self._secrets)
        with self._lock:
            self._index(clean, own=True)
            # What has just happened counts as served, so that `new` asks again only for what is really new.
            self._served[clean.asked.key] = self._served.get(clean.asked.key, 0) + 1
            self._recorded += 1
            if self._save_each:
                self.save()
        if self._sink is not None:
            self._sink(clean)

    def find_requests_with_most_matches(self, request: Any) -> list[tuple[Any, ...]]:
        """Called by a patch that follows a redirect, or that is about to raise for an unrecorded request.

        Raises:
            CassetteMismatch: the request is not recorded. This is the one place where it can be raised: the patch
                of urllib3 also asks `can_play_response_for` about requests that are over.
        """
        if self.can_play_response_for(request):
            return [(request, [], [])]
        with self._lock:
            raise self._mismatch(self._asked(request))

    # --- inner parts -------------------------------------------------------------------------------------------

    def _available(self, key: str) -> bool:
        known = self._by_key.get(key, [])
        return bool(known) and (self._repeats or self._served.get(key, 0) < len(known))

    def _asked(self, request: Any) -> Exchange:
        headers = _header_lists(request.headers)
        return scrub_request(request.method, request.uri, headers, body_bytes(request.body))

    def _is_ignored(self, request: Any) -> bool:
        return request.host in self._ignored or (request.path or "").endswith(_IGNORED_PATHS)

    def _mismatch(self, asked: Exchange) -> CassetteMismatch:
        names = ", ".join(f"{path}{'' if path.exists() else ' (missing)'}" for path in self.paths)
        advice = "If the program changed on purpose, record again: mode='record', or pytest --steproute-record."
        mismatch = CassetteMismatch(asked.asked, self.exchanges, names, advice=advice)
        if all(known.asked.key != asked.asked.key for known in self.mismatches):
            self.mismatches.append(mismatch)  # a client that retries asks again; one report is enough
        return mismatch

    def __len__(self) -> int:
        return len(self.exchanges)


def _header_lists(headers: Any) -> dict[str, list[str]]:
    return {
        str(name): [_text(value) for value in values] if isinstance(values, (list, tuple)) else [_text(values)]
        for name, values in headers.items()
    }


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


@contextlib.contextmanager
def routed_cassette(
    paths: str | Path | Sequence[str | Path],
    mode: Mode = "replay",
    *,
    strict: bool = True,
    block_network: bool = True,
    ignore_hosts: Sequence[str] = IGNORED_HOSTS,
    secrets: Sequence[str] = (),
    repeats: bool = True,
    save_each: bool = False,
) -> Iterator[RoutedCassette]:
    """Record or replay what the block sends to model servers over httpx, httpx2, aiohttp, requests or urllib3.

    Args:
        paths: one cassette file or several; a replay merges them, a recording goes to the first.
        mode: see `Mode`.
        strict: raise at the end of the block for a mismatch that the program swallowed.
        block_network: in a replay, also refuse connections of clients that vcrpy does not know.
        ignore_hosts: hosts whose requests are never recorded; in a replay they answer 404.
        secrets: further strings to keep out of the file.
        repeats: serve the last recording of a request again when it is asked more often than recorded.
        save_each: write the file after every exchange, so that even a killed process loses nothing.

    Yields:
        The cassette.

    Raises:
        CassetteMismatch: a request was never recorded.
        ConfigError: no path, or an unknown mode.
        ImportError: vcrpy is missing.
    """
    listed = [paths] if isinstance(paths, (str, Path)) else list(paths)
    cassette = RoutedCassette(
        listed, mode, ignore_hosts=ignore_hosts, secrets=secrets, repeats=repeats, save_each=save_each
    )
    with patched(cassette, block_network=block_network):
        try:
            yield cassette
        finally:
            cassette.save()
    if strict and cassette.mismatches:
        raise cassette.mismatches[0]


@contextlib.contextmanager
def patched(cassette: RoutedCassette, *, block_network: bool = True) -> Iterator[None]:
    """Send the HTTP of this process through the cassette, without saving it.

    Raises:
        ImportError: vcrpy is missing.
    """
    try:
        from vcr.patch import CassettePatcherBuilder
    except ImportError as error:
        raise ImportError('recording and replaying HTTP needs vcrpy: pip install "steproute[testing]"') from error
    with contextlib.ExitStack() as stack:
        if _COST_MAP not in os.environ:
            os.environ[_COST_MAP] = "True"
            stack.callback(os.environ.pop, _COST_MAP, None)
        if block_network and cassette.mode == "replay":
            stack.enter_context(network_blocked())
        for patcher in CassettePatcherBuilder(cassette).build():
            stack.enter_context(patcher)
        yield
