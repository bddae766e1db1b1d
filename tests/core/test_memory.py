from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steproute.embed import HashEmbedder
from steproute.errors import ConfigError
from steproute.memory import ExactMemory, Experience, ExperienceMemory, check_embedder


def vector(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def experience(values: np.ndarray, model: str = "m", score: float = 0.5) -> Experience:
    return Experience(values, model, score, {"usd": 0.01}, {"task": "t"})


def test_nearest_by_cosine_whatever_the_length():
    memory = ExactMemory(2)
    for values, model in ((vector(1, 0), "east"), (vector(0, 5), "north"), (vector(3, 3), "between")):
        memory.add(experience(values, model))
    found = memory.nearest(vector(10, 1), k=2)
    assert [item.experience.model for item in found] == ["east", "between"]
    assert found[0].similarity == pytest.approx(10 / 101**0.5, abs=1e-5)
    assert found[1].similarity == pytest.approx(11 / (2 * 101) ** 0.5, abs=1e-5)
    assert isinstance(memory, ExperienceMemory)


def test_first_in_first_out():
    memory = ExactMemory(2, capacity=3)
    for i in range(5):
        memory.add(experience(vector(1, i), f"m{i}"))
    assert len(memory) == 3
    assert [item.model for item in memory] == ["m2", "m3", "m4"]
    assert {item.experience.model for item in memory.nearest(vector(1, 0), k=10)} == {"m2", "m3", "m4"}


def test_the_newer_of_equals_comes_first_before_and_after_the_ring_is_full():
    memory = ExactMemory(2, capacity=4)
    for i in range(3):
        memory.add(experience(vector(1, 1), f"m{i}"))
    assert [item.experience.model for item in memory.nearest(vector(2, 2), k=2)] == ["m2", "m1"]
    for i in range(3, 6):
        memory.add(experience(vector(1, 1), f"m{i}"))
    assert [item.experience.model for item in memory.nearest(vector(2, 2), k=4)] == ["m5", "m4", "m3", "m2"]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 700), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_agrees_with_brute_force(n: int, k: int, seed: int):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, 8)).astype(np.float32)
    memory = ExactMemory(8)
    for i, row in enumerate(rows):
        memory.add(experience(row, str(i)))
    query = rng.standard_normal(8).astype(np.float32)
    cosines = rows @ query / (np.linalg.norm(rows, axis=1) * np.linalg.norm(query))
    found = memory.nearest(query, k)
    assert len(found) == min(k, n)
    assert np.allclose([item.similarity for item in found], np.sort(cosines)[::-1][:k], atol=1e-5)


def test_empty_memory_and_zero_vectors():
    memory = ExactMemory(2)
    assert memory.nearest(vector(1, 0)) == []
    memory.add(experience(vector(0, 0)))
    assert memory.nearest(vector(1, 0))[0].similarity == 0.0
    assert memory.nearest(vector(0, 0))[0].similarity == 0.0


def test_another_dimension_is_refused_and_nothing_is_lost():
    memory = ExactMemory(2)
    memory.add(experience(vector(1, 0)))
    with pytest.raises(ConfigError, match=r"dimension 2.*dimension 3"):
        memory.add(experience(vector(1, 0, 0)))
    with pytest.raises(ConfigError, match=r"dimension 2.*dimension 3"):
        memory.nearest(vector(1, 0, 0))
    with pytest.raises(ConfigError, match=r"ExactMemory holds.*2.*'hash-256' has dimension 256"):
        check_embedder(memory, HashEmbedder())
    assert len(memory) == 1


@pytest.mark.parametrize("score", [float("nan"), -0.1, 1.5, float("inf")])
def test_scores_out_of_range_are_refused(score: float):
    with pytest.raises(ConfigError, match="score: seen"):
        experience(vector(1, 0), score=score)


def test_bad_vectors_and_settings_are_refused():
    with pytest.raises(ConfigError, match="finite"):
        experience(vector(float("nan"), 0))
    with pytest.raises(ConfigError, match="capacity"):
        ExactMemory(2, capacity=0)
    with pytest.raises(ConfigError, match="model"):
        experience(vector(1, 0), model="")
