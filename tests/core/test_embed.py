from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steproute.embed import Embedder, HashEmbedder, RecentTexts, make_embedder
from steproute.errors import ConfigError


def likeness(one: str, two: str) -> float:
    rows = HashEmbedder().embed([one, two])
    return float(rows[0] @ rows[1])


def test_shape_type_and_length():
    rows = HashEmbedder(dim=128).embed(["sort a list", "", "???"])
    assert rows.shape == (3, 128)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows[0]) == pytest.approx(1.0, abs=1e-6)
    assert not rows[1].any()
    assert not rows[2].any()


def test_like_texts_are_nearer_than_others():
    assert likeness("Merge overlapping intervals", "merge the OVERLAPPING intervals!") > 0.5
    assert likeness("Merge overlapping intervals", "Compute the digest of a file") < 0.25


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=300))
def test_any_text_gives_a_finite_vector_of_length_one_or_zero(text: str):
    row = HashEmbedder().embed([text])[0]
    assert np.isfinite(row).all()
    norm = float(np.linalg.norm(row))
    assert norm == pytest.approx(1.0, abs=1e-5) or norm == 0.0


def test_a_batch_gives_the_rows_of_its_texts():
    embedder = HashEmbedder()
    both = embedder.embed(["first text", "second text"])
    assert np.array_equal(both[1], embedder.embed(["second text"])[0])


def test_another_process_gives_the_same_vector():
    code = "from steproute.embed import HashEmbedder; print(HashEmbedder(dim=16).embed(['fix the index error'])[0].tolist())"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(seen.stdout) == HashEmbedder(dim=16).embed(["fix the index error"])[0].tolist()


def test_a_long_text_is_read_at_both_ends():
    embedder = HashEmbedder(max_chars=100)
    text = "alpha " * 40 + "MIDDLE" + " omega" * 40
    assert np.array_equal(embedder.embed([text])[0], embedder.embed([text.replace("MIDDLE", "OTHER!")])[0])
    assert not np.array_equal(embedder.embed([text])[0], embedder.embed([text + " end"])[0])


def test_make_embedder():
    assert make_embedder("hash").dim == 256
    assert make_embedder("hash:64").name == "hash-64"
    own = HashEmbedder(32)
    assert make_embedder(own) is own
    assert isinstance(own, Embedder)


@pytest.mark.parametrize(
    ("spec", "said"),
    [("hsh", "did you mean 'hash'"), ("hash:x", "seen 'x'"), ("hash:4", "allowed: 16 or more")],
)
def test_make_embedder_says_what_is_wrong(spec: str, said: str):
    with pytest.raises(ConfigError, match=said):
        make_embedder(spec)


class Liar:
    name, dim = "liar", 8
    calls = 0

    def embed(self, texts):
        self.calls += 1
        return np.ones((len(texts), 4), dtype=np.float32)


def test_recent_texts_embed_once_and_check_the_answer():
    class Counting(HashEmbedder):
        calls = 0

        def embed(self, texts):
            self.calls += 1
            return super().embed(texts)

    embedder = Counting(16)
    recent = RecentTexts(embedder, keep=2)
    first = recent("a text")
    assert np.array_equal(recent("a text"), first)
    assert embedder.calls == 1
    recent("b"), recent("c"), recent("a text")
    assert embedder.calls == 4
    with pytest.raises(ConfigError, match=r"'liar'.*\(1, 4\).*\(1, 8\)"):
        RecentTexts(Liar())("text")
