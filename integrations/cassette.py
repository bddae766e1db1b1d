"""Answers from recorded HTTP, without a server: any policy can be replayed on the same calls, exactly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from steproute.backend import BackendError, ChatRequest, ChatResponse
from steproute.errors import ConfigError
from steproute.integrations.attempts import status_error
from steproute.integrations.wire import merged_ollama_stream, merged_openai_stream, read_ollama, read_openai
from steproute.testing.canonical import canonical_chat
from steproute.testing.exchange import Exchange, load_cassette
from steproute.testing.mismatch import CassetteMismatch


class CassetteBackend:
    """Serves requests from cassettes, matched on model, roles and contents, and tools.

    The files are read once, at construction. Seconds and timings of a response are the server's own, as recorded.

    Args:
        paths: cassette files, or folders of them.
        tasks: read only the files of these tasks from folders: `HumanEval/51` is `HumanEval_51.yaml`.

    Raises:
        CassetteError: a file is no cassette.
        ConfigError: a path does not exist, or a task has no file.
    """

    def __init__(self, paths: str | Path | Sequence[str | Path], tasks: Iterable[str] | None = None):
        listed = [paths] if isinstance(paths, (str, Path)) else list(paths)
        self.files = _files([Path(path) for path in listed], None if tasks is None else list(tasks))
        self._by_key: dict[str, Exchange] = {}
        self._by_file: dict[str, list[Exchange]] = {}
        for file in self.files:
            exchanges = [exchange for exchange in load_cassette(file) if exchange.asked.is_chat]
            self._by_file[file.stem] = exchanges
            for exchange in exchanges:
                self._by_key.setdefault(exchange.asked.chat_key, exchange)

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the recorded models, sorted."""
        return tuple(sorted({exchange.asked.model for exchange in self._by_key.values()}))

    def complete(self, request: ChatRequest) -> ChatResponse:
        """The recorded response.

        Raises:
            CassetteMismatch: this request was never recorded; names the task and step of `request.extra` and the model.
            BackendError: an error of the server was recorded.
        """
        asked = canonical_chat(_matched(request))
        exchange = self._by_key.get(asked.chat_key)
        if exchange is None:
            task, step = request.extra.get("task"), request.extra.get("step")
            labels = {"task": task, "step": step, "model": request.model}
            label = ", ".join(f"{name} {value!r}" for name, value in labels.items() if value is not None)
            candidates = self._by_file.get(file_stem(str(task))) or list(self._by_key.values())
            where = f"{len(self.files)} cassettes" if len(self.files) != 1 else self.files[0].name
            raise CassetteMismatch(asked, candidates, where, label)
        return _read(exchange, request)

    async def acomplete(self, request: ChatRequest) -> ChatResponse:
        """The same as `complete`."""
        return self.complete(request)


def file_stem(task: str) -> str:
    """Name of a task's cassette without its ending."""
    return task.replace("/", "_")


def _matched(request: ChatRequest) -> dict[str, Any]:
    return {"model": request.model, "messages": list(request.messages), "tools": list(request.tools)}


def _files(paths: Sequence[Path], tasks: Sequence[str] | None) -> list[Path]:
    found: list[Path] = []
    folders = [path for path in paths if path.is_dir()]
    for path in paths:
        if path.is_dir():
            if tasks is None:
                found += sorted([*path.glob("*.yaml"), *path.glob("*.yml")])
        elif path.is_file():
            found.append(path)
        else:
            raise ConfigError(f"CassetteBackend: paths: no file or folder {path}")
    for task in (tasks or ()) if folders else ():
        named = [folder / f"{file_stem(task)}.yaml" for folder in folders]
        existing = [path for path in named if path.is_file()]
        if not existing:
            raise ConfigError(f"CassetteBackend: tasks: {task!r} has no recording; looked for {named[0]}")
        found += existing
    return list(dict.fromkeys(found))


def _read(exchange: Exchange, request: ChatRequest) -> ChatResponse:
    text = exchange.response_body.decode("utf-8", "replace")
    if exchange.status >= 400:
        raise status_error(request.model, exchange.status, text[:300], {"retry-after": exchange.header("retry-after")})
    try:
        if text.lstrip().startswith("data:"):
            return read_openai(merged_openai_stream(text), request)
        data = _json(text)
        return read_openai(data, request) if "choices" in data else read_ollama(data, request)
    except ValueError as error:
        raise BackendError(
            request.model, "response", f"{exchange.source}: not an answer this backend reads: {error}"
        ) from error


def _json(text: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text)
    except ValueError:
        data = merged_ollama_stream(text)  # one JSON object a line
    if not isinstance(data, Mapping):
        raise ValueError("not a JSON object")
    return data
