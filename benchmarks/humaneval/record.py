"""`steproute record humaneval`: every model at every shared history of each problem, resumable."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from steproute.approval import approval_file, approve, loopback
from steproute.backend import Backend, ChatRequest, ChatResponse
from steproute.benchmarks.humaneval.backends import CASSETTES, VERDICTS
from steproute.benchmarks.humaneval.problems import load_problems, recording_order
from steproute.benchmarks.humaneval.tester import Tester
from steproute.benchmarks.humaneval.tree import build_tree
from steproute.errors import ConfigError
from steproute.integrations.cassette import file_stem
from steproute.models import Model
from steproute.testing import routed_cassette
from steproute.verify.cache import VerdictCache
from steproute.verify.sandbox import Sandbox

app = typer.Typer()


class Uncached:
    """A backend whose server must compute every prompt anew, so that timings can be compared."""

    def __init__(self, backend: Backend):
        self._backend = backend

    def complete(self, request: ChatRequest) -> ChatResponse:
        """Serve the request with llama.cpp's prompt cache off."""
        return self._backend.complete(replace(request, extra={**request.extra, "cache_prompt": False}))

    async def acomplete(self, request: ChatRequest) -> ChatResponse:
        """The async twin of `complete`."""
        return await self._backend.acomplete(replace(request, extra={**request.extra, "cache_prompt": False}))


@contextlib.contextmanager
def _servers(files: Mapping[str, str], base_url: str | None, threads: int) -> Iterator[Backend]:
    """The models to record: a server that is running, or weights run in this process."""
    if base_url is not None:
        from steproute.integrations.litellm import LiteLLMBackend

        named = {name: {"model": f"openai/{deployment}", "api_base": base_url} for name, deployment in files.items()}
        backend: Backend = LiteLLMBackend(named)
        if not loopback(base_url):
            pool = [Model(name, price="unknown") for name in named]
            backend = approve(backend, approval_file(), pool, "record humaneval")
        yield backend
        return
    from steproute.integrations.local import LocalBackend

    with LocalBackend(files, threads=threads) as backend:
        yield Uncached(backend)


@app.command()
def humaneval(
    models: Annotated[
        str, typer.Option(help="`name=FILE.gguf` or `name=package:NAME`, comma-separated; at least two.")
    ],
    limit: Annotated[int, typer.Option(min=1, help="How many problems, in the documented order.")] = 40,
    out: Annotated[Path, typer.Option(help="Folder of the cassettes; what is there is not asked again.")] = CASSETTES,
    problems: Annotated[Path | None, typer.Option(help="Problem file in HumanEval's format.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads per model.")] = 1,
    base_url: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible server to record instead; then `name=its name there`.")
    ] = None,
) -> None:
    """Record the whole tree of attempts of each problem, one cassette a problem. Stop it any time; it resumes."""
    files = _files(models)
    known = load_problems(problems)
    order = recording_order(known) if problems is None else list(known)
    out.mkdir(parents=True, exist_ok=True)
    tester = Tester(Sandbox(), VerdictCache(out / ".hidden.jsonl"), VerdictCache(out / VERDICTS))
    with _servers(files, base_url, threads) as backend:
        for key in order[:limit]:
            began = time.monotonic()
            with routed_cassette(out / f"{file_stem(key)}.yaml", mode="new", save_each=True) as cassette:
                build_tree(known[key], backend, {name: name for name in files}, tester)
            typer.echo(f"{key}: {len(cassette)} calls, {cassette.recorded} new, {time.monotonic() - began:.0f} s")


def _files(models: str) -> dict[str, str]:
    """Model name → where its weights are."""
    pairs = [item.strip().partition("=") for item in models.split(",")]
    files = {name: place for name, _, place in pairs if name and place}
    if len(files) < max(2, len(pairs)):  # an item without a place, or a name given twice, is not to be lost in silence
        raise ConfigError(
            f"models: seen {models!r}; allowed: at least two of `name=FILE.gguf` or `name=package:NAME`, each name once"
        )
    return files
