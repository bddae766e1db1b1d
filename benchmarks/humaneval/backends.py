"""Where the team's models are: in recordings, behind Ollama or LiteLLM, or in this process."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steproute.backend import Backend
from steproute.errors import ConfigError, unknown_name
from steproute.models import Model

if TYPE_CHECKING:
    from steproute.benchmarks.humaneval.run import Options

NAMES = ("cassette", "litellm", "local", "ollama")
CASSETTES = Path("cassettes/humaneval")
VERDICTS = "examples.jsonl"
"""File beside the cassettes: what the visible examples said when the recording was made."""


@contextlib.contextmanager
def open_backend(options: Options, pool: Sequence[Model]) -> Iterator[Backend]:
    """The backend of a run, closed at the end.

    Raises:
        ConfigError: unknown name, or no recordings where they should be.
        ImportError: the backend's extra is missing; names it.
    """
    backend: Any
    if options.backend == "cassette":
        from steproute.integrations.cassette import CassetteBackend

        backend = CassetteBackend(cassette_folder(options.cassettes))
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
    try:
        yield backend
    finally:
        if hasattr(backend, "close"):
            backend.close()


def cassette_folder(folder: Path | None) -> Path:
    """The recordings: the folder given, `cassettes/humaneval` here, or the one of the checkout this file lies in.

    Raises:
        ConfigError: there are none.
    """
    places = [folder] if folder is not None else [CASSETTES, Path(__file__).resolve().parents[2] / CASSETTES]
    for place in places:
        if place.is_dir() and any(place.glob("*.yaml")):
            return place
    raise ConfigError(
        f"cassettes: no recordings in {places[0]}; clone the repository for its recordings, or make some: "
        "steproute record humaneval --help"
    )


def recorded_python(verdicts: Path) -> str:
    """Python version (`3.11`) the recorded verdicts were made with."""
    with verdicts.open(encoding="utf-8") as lines:
        return str(json.loads(next(lines))["python"])


def recorded_tasks(folder: Path) -> set[str]:
    """Ids of the problems a folder holds: `HumanEval_51.yaml` is `HumanEval/51`."""
    return {path.stem.replace("_", "/", 1) for path in folder.glob("*.yaml")}
