"""Cassettes of the main job from raw recordings: `python -m steproute.benchmarks.humaneval.cassettes RAWDIR OUTDIR`.

A raw file holds one problem: a JSON line `{"request": body, "response": body}` per call of a llama.cpp server.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from steproute.errors import ConfigError
from steproute.testing.canonical import canonical_chat, canonical_json
from steproute.testing.exchange import Exchange, save_cassette

_URI = "http://127.0.0.1/v1/chat/completions"
_HEADERS = {"content-type": ["application/json"]}
_TIMINGS = ("cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms")
"""What the server measured; its rates follow from these."""

Interaction = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Bodies of one request and of its response."""


def write_cassette(path: str | Path, interactions: Iterable[Interaction]) -> int:
    """Write the calls of one problem as a vcrpy cassette.

    Calls are ordered by their messages and model, and each is kept once, so that the same recording always gives the
    same file. The response's model is the name asked for (llama.cpp reports a path of the recording machine); ids,
    dates and fingerprints are dropped; usage and the server's timings (milliseconds, to 0.1) are kept.

    Args:
        path: file to write.
        interactions: request and response bodies of `POST /v1/chat/completions`.

    Returns:
        How many calls were written.
    """
    by_key: dict[str, Interaction] = {}
    for request, response in interactions:
        by_key.setdefault(canonical_chat(request).chat_key, (request, response))
    ordered = sorted(by_key.items(), key=lambda item: _order(item[1][0]))
    save_cassette(path, [_exchange(key, *interaction) for key, interaction in ordered])
    return len(ordered)


def _order(request: Mapping[str, Any]) -> tuple[int, str, str]:
    return len(request["messages"]), canonical_json(request["messages"]), str(request["model"])


def _exchange(key: str, request: Mapping[str, Any], response: Mapping[str, Any]) -> Exchange:
    choices = [
        {"index": choice.get("index", 0), "message": choice["message"], "finish_reason": choice.get("finish_reason")}
        for choice in response["choices"]
    ]
    kept: dict[str, Any] = {
        # Clients expect an id and a date: these say nothing and never change.
        "id": f"chatcmpl-{key[:12]}",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": choices,
        "usage": response["usage"],
    }
    timings = response.get("timings")
    if timings:
        kept["timings"] = {name: round(timings[name], 1) for name in _TIMINGS if name in timings}
    return Exchange(
        method="POST",
        uri=_URI,
        request_headers=_HEADERS,
        request_body=json.dumps(request, ensure_ascii=False).encode(),
        status=200,
        reason="OK",
        response_headers=_HEADERS,
        response_body=json.dumps(kept, ensure_ascii=False).encode(),
    )


def read_raw(path: Path) -> list[Interaction]:
    """Calls of one raw file; a last line that was cut off is left out."""
    lines = path.read_text(encoding="utf-8").splitlines()
    interactions = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            interactions.append((record["request"], record["response"]))
        except (ValueError, KeyError, TypeError) as error:
            if number < len(lines):
                raise ConfigError(f"{path.name}, line {number}: not a recorded call: {error}") from error
    return interactions


def convert(raw: Path, out: Path, *, unfinished: bool = False) -> list[tuple[str, int]]:
    """Convert the raw files of a folder.

    Args:
        raw: folder of `HumanEval_N.jsonl`.
        out: folder for `HumanEval_N.yaml`.
        unfinished: take the newest file too. A recorder works on one problem at a time, so the newest may be partial.

    Returns:
        Name and number of calls of each cassette written.
    """
    files = sorted(raw.glob("*.jsonl"), key=lambda file: (len(file.stem), file.stem))
    if not files:
        raise ConfigError(f"{raw}: no *.jsonl there")
    newest = max(files, key=lambda file: file.stat().st_mtime_ns)
    chosen = [file for file in files if unfinished or file != newest]
    return [(file.stem, write_cassette(out / f"{file.stem}.yaml", read_raw(file))) for file in chosen]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="steproute.benchmarks.humaneval.cassettes", description="Raw recordings to cassettes."
    )
    parser.add_argument("raw", type=Path, help="folder of HumanEval_N.jsonl")
    parser.add_argument("out", type=Path, help="folder for HumanEval_N.yaml")
    parser.add_argument("--all", action="store_true", help="convert the newest file too: the recorder is done")
    options = parser.parse_args(argv)
    try:
        written = convert(options.raw, options.out, unfinished=options.all)
    except ConfigError as error:
        parser.error(str(error))
    for name, calls in written:
        sys.stdout.write(f"{name}: {calls} calls\n")
    sys.stdout.write(f"{len(written)} cassettes, {sum(calls for _, calls in written)} calls\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
