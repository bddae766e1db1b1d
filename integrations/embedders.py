"""Embedders with a vocabulary of their own: WordLlama (extra `embed`), sentence-transformers (extra `embed-torch`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steproute.embed import Vectors


class WordLlamaEmbedder:
    """WordLlama's token embeddings, averaged: numpy only, about .05 ms a text, the weights come with its package."""

    def __init__(self, dim: str | int = 256):
        """Load the weights.

        Args:
            dim: length of the vectors: 64, 128 or 256 are in the package's weights.

        Raises:
            ImportError: WordLlama is not installed.
        """
        try:
            import wordllama
        except ImportError as error:
            raise ImportError("the WordLlama embedder needs the extra: pip install 'steproute[embed]'") from error
        # A plain load() asks a server for the tokenizer although the package ships it.
        self._model: Any = wordllama.WordLlama.load(
            trunc_dim=int(dim), cache_dir=Path(wordllama.__file__).parent, disable_download=True
        )
        self.dim = int(dim)
        self.name = f"wordllama-{self.dim}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`."""
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        rows = np.nan_to_num(np.asarray(self._model.embed(list(texts)), dtype=np.float32))
        return _unit_rows(rows)


class SentenceTransformerEmbedder:
    """A sentence-transformers model by name or path, on the CPU unless told otherwise."""

    def __init__(self, model: str = "all-MiniLM-L6-v2", device: str = "cpu", **options: Any):
        """Load the model.

        Args:
            model: a folder with the model, or its name (then it may be downloaded).
            device: where it runs.
            options: passed to `SentenceTransformer`.

        Raises:
            ImportError: sentence-transformers is not installed.
        """
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise ImportError(
                "the sentence-transformers embedder needs the extra: pip install 'steproute[embed-torch]'"
            ) from error
        if Path(model).is_dir():
            options.setdefault("local_files_only", True)
        self._model: Any = SentenceTransformer(model, device=device, **options)
        self.dim = int(self._model.get_sentence_embedding_dimension())
        self.name = f"sentence-transformers-{Path(model).name}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`."""
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        rows = self._model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False)
        return _unit_rows(np.asarray(rows, dtype=np.float32))


def _unit_rows(rows: Vectors) -> Vectors:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Vectors = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return scaled
