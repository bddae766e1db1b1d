"""Where a benchmark's models are: in recordings, behind Ollama or LiteLLM, or in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from steproute.approval import approval_file, approve, needs_approval
from steproute.backend import Backend
from steproute.benchmarks.options import RunOptions
from steproute.errors import ConfigError, unknown_name
from steproute.models import Model

NAMES = ("cassette", "litellm", "local", "ollama")


@contextlib.contextmanager
def open_backend(options: RunOptions, pool: Sequence[Model], benchmark: str) -> Iterator[Backend]:
    """The backend of a run, closed at the end.

    Raises:
        ConfigError: unknown name, or no recordings where they should be.
        ApprovalError: the calls would be paid, and no approval file covers them.
        ImportError: the backend's extra is missing; names it.
    """
    backend: Any
    if options.backend == "cassette":
        from steproute.integrations.cassette import CassetteBackend

        backend = CassetteBackend(cassette_folder(options.cassettes, benchmark))
    elif options.backend == "ollama":
        from steproute.integrations.ollama import OllamaBackend

        backend = OllamaBackend(options.base_url)
    elif options.backend == "litellm":
        from steproute.integrations.litellm import LiteLLMBackend

        server = {"api_base": options.base_url} if options.base_url else {}
        backend = LiteLLMBackend({model.provider_name: {"model": model.provider_name, **server} for model in pool})
    elif options.backend == "local":
        from steproute.integrations.local import LocalBackend

        backend = LocalBackend({model.provider_name: model.provider_name for model in pool})
    else:
        raise ConfigError(unknown_name("backend", options.backend, NAMES))
    if needs_approval(options.backend, options.base_url, pool):
        backend = approve(backend, approval_file(), pool, benchmark)
    try:
        yield backend
    finally:
        if hasattr(backend, "close"):
            backend.close()


def cassette_folder(folder: Path | None, benchmark: str) -> Path:
    """The recordings: the folder given, `cassettes/NAME` here, or the one of the checkout this file lies in.

    Raises:
        ConfigError: there are none.
    """
    usual = Path("cassettes") / benchmark
    places = [folder] if folder is not None else [usual, Path(__file__).resolve().parents[1] / usual]
    for place in places:
        if place.is_dir() and any(place.glob("*.yaml")):
            return place
    raise ConfigError(
        f"cassettes: no recordings in {places[0]}; clone the repository for its recordings, or make some: "
        f"steproute record {benchmark} --help"
    )
