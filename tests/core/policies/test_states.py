"""What policies learnt, as JSON and back: the copy decides as the original goes on to."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_worlds import TEXTS, learner, play

from steproute import ConfigError
from steproute.blocks import Blocks, pack, unpack
from steproute.lasting import Standing
from steproute.memory import ExactMemory, Experience
from steproute.policies import make_policy
from steproute.policies.acrouter import ACRouter
from steproute.policies.knn import KNN
from steproute.policies.llm import LLMRouter
from steproute.policies.logreg import LogReg
from steproute.policies.policy_model import SoftmaxPolicyModel
from steproute.policies.static import Example
from steproute.store import Store


def naming(prompt: str) -> str:
    """A routing model that goes by what it is shown."""
    return '{"model": "abc"}' if len(prompt) % 3 else '{"model": "b"}'


MADE = {
    "knn": lambda: KNN(),
    "knn, small": lambda: KNN(KNN.Config(capacity=30)),
    "acrouter": lambda: ACRouter(),
    "acrouter, small": lambda: ACRouter(ACRouter.Config(capacity=30)),
    "logreg, collecting": lambda: make_policy("logreg"),
    "logreg": lambda: make_policy({"name": "logreg", "warmup": 50}),
    "decision-tree, collecting": lambda: make_policy("decision-tree"),
    "decision-tree": lambda: make_policy({"name": "decision-tree", "warmup": 50}),
    "llm": lambda: LLMRouter(LLMRouter.Config(model="x", statistics=True), ask=naming),
    "linucb": lambda: make_policy("linucb"),
}


@pytest.mark.parametrize("name", MADE)
def test_the_copy_decides_as_the_original(name):
    one, two = MADE[name](), MADE[name]()
    play(learner(one), 120, text=True)
    play(learner(two), 20, seed=9, text=True)  # what it knew is gone, whatever it was
    two.load(json.loads(json.dumps(one.state(), allow_nan=False)))
    assert two.state() == one.state()
    assert play(learner(one, seed=5), 150, seed=7, text=True) == play(learner(two, seed=5), 150, seed=7, text=True)
    assert two.state() == one.state()


@pytest.mark.parametrize("name", MADE)
def test_a_state_that_is_none_is_refused_and_changes_nothing(name):
    policy = MADE[name]()
    play(learner(policy), 60, text=True)
    before = policy.state()
    for key in before:
        for wrong in (None, "x", [["x"]]):
            if before[key] == wrong:
                continue
            with pytest.raises((ConfigError, KeyError, TypeError, ValueError, AttributeError)):
                policy.load({**before, key: wrong})
            assert policy.state() == before
    with pytest.raises((ConfigError, KeyError)):
        policy.load({})
    assert policy.state() == before


def test_memories_of_another_dimension_or_kind_are_refused():
    policy = KNN()
    play(learner(policy), 30, text=True)
    with pytest.raises(ConfigError, match=r"version and dim: seen \(1, 256\); allowed: \(1, 64\)"):
        KNN(KNN.Config(embedder="hash:64")).load(policy.state())
    with pytest.raises(ConfigError, match="not of a Lasting; the settings of the memory have changed"):
        KNN(memory=Lasting()).load(policy.state())
    with pytest.raises(ConfigError, match="the settings of the memory have changed"):
        policy.load(KNN(memory=Lasting()).state())
    with pytest.raises(ConfigError, match="features: seen 289; allowed: 97"):
        ACRouter(ACRouter.Config(embedder="hash:64"), memory=Lasting(64)).load(ACRouter(memory=Lasting()).state())


def test_a_policy_that_a_caller_trained_keeps_that():
    rows = [Example(np.ones(42), "a", 0.9)] * 6
    old, new = LogReg(), LogReg()
    old.fit([Example(np.ones(42), "a", 0.1)] * 6)
    new.fit(rows)
    before = new.state()
    new.load(old.state())
    assert new.state() == before
    fresh = LogReg()
    fresh.load(old.state())
    assert fresh.state() == old.state()


# --- memories ------------------------------------------------------------------------------------------------


def filled(n: int, capacity: int = 700) -> ExactMemory:
    memory, rng = ExactMemory(4, capacity), np.random.default_rng(n)
    for i in range(n):
        memory.add(Experience(rng.standard_normal(4).astype(np.float32), f"m{i % 3}", 0.5, {"usd": i / 7}, {"task": i}))
    return memory


@pytest.mark.parametrize("n", [0, 1, 256, 257, 700, 701, 1500])
def test_a_memory_comes_back_bit_by_bit(n):
    memory, copy = filled(n), filled(3)
    copy.load(json.loads(json.dumps(memory.state())))
    assert copy.state() == memory.state()
    for one, two in zip(memory, copy, strict=True):
        assert one.embedding.tobytes() == two.embedding.tobytes()
        assert (one.model, one.score, one.cost, one.trace) == (two.model, two.score, two.cost, two.trace)
    for query in np.eye(4, dtype=np.float32):
        assert [(item.experience.trace, item.similarity) for item in memory.nearest(query)] == [
            (item.experience.trace, item.similarity) for item in copy.nearest(query)
        ]
    for both in (memory, copy):
        for i in range(300):
            both.add(Experience(np.full(4, i, dtype=np.float32), "later", 1.0))
    assert [item.model for item in copy] == [item.model for item in memory]
    assert copy.state() == memory.state()


def test_a_smaller_memory_takes_the_latest():
    memory, copy = filled(900), ExactMemory(4, 100)
    copy.load(memory.state())
    assert [item.trace["task"] for item in copy] == list(range(800, 900))


@pytest.mark.parametrize("harm", ["block", "text", "count", "embeddings"])
def test_a_damaged_memory_is_refused_and_changes_nothing(harm):
    memory = filled(600)
    before = memory.state()
    broken = {**before, "blocks": list(before["blocks"])}
    if harm == "block":
        del broken["blocks"][1]
    elif harm == "text":
        broken["blocks"][1] = broken["blocks"][1][:-9]
    elif harm == "count":
        broken["added"] = 601
    else:
        block = json.loads(broken["blocks"][0])
        block["embeddings"] = block["embeddings"][:-4]
        broken["blocks"][0] = json.dumps(block)
    with pytest.raises(ConfigError, match="memory state: "):
        memory.load(broken)
    assert memory.state() == before


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 9), capacity=st.integers(1, 40), steps=st.lists(st.integers(0, 25), max_size=12))
def test_blocks_hold_every_item_once_and_full_ones_stay(size, capacity, steps):
    made: list[tuple[int, int]] = []

    def encode(first: int, end: int) -> str:
        made.append((first, end))
        return f"{first}:{end}"

    blocks, end, before = Blocks(encode, size), 0, set()
    for step in steps:
        end += step
        first = max(end - capacity, 0)
        texts = blocks.texts(first, end)
        spans = [tuple(map(int, text.split(":"))) for text in texts]
        covered = [n for a, b in spans for n in range(a, b)]
        assert [n for n in covered if n >= first] == list(range(first, end))
        assert len(covered) == len(set(covered))
        full = {text for text, (_, b) in zip(texts, spans, strict=True) if b % size == 0}
        assert all(text in full for text in before if int(text.split(":")[1]) > first)
        before = full
    full = [span for span in made if span[1] % size == 0]
    assert len(full) == len(set(full))


def test_arrays_as_text():
    values = np.array([[1.5, -2.0], [0.25, 3.0]])
    assert unpack(pack(values, "<f8"), "<f8", 2, 2).tolist() == values.tolist()
    with pytest.raises(ValueError, match="reshape"):
        unpack(pack(values, "<f4"), "<f4", 3, 2)


def test_the_policy_model_goes_on_from_its_state_when_its_ring_is_full():
    one, two = (SoftmaxPolicyModel(3, keep=300) for _ in range(2))
    rng = np.random.default_rng(0)

    def teach(models: list[SoftmaxPolicyModel], n: int) -> None:
        for i in range(n):
            vector, reward = rng.standard_normal(3).astype(np.float32), float(rng.random())
            for model in models:
                model.learn(f"d{i % 2}", vector, "ab"[i % 2], reward, 0.5)

    teach([one], 450)
    kept, blocks = one.state()
    two.load(json.loads(json.dumps(kept)), blocks)
    teach([one, two], 200)
    assert one.probabilities("d0", None, ["a", "b"]).tolist() == two.probabilities("d0", None, ["a", "b"]).tolist()
    assert one.state() == two.state()


# --- memories that outlive the process -----------------------------------------------------------------------


class Lasting:
    """A memory in a database of its own."""

    def __init__(self, dim: int = 256):
        self.dim, self.capacity, self.kept = dim, 1000, []

    def __len__(self):
        return len(self.kept)

    def __iter__(self):
        return iter(list(self.kept))

    def add(self, experience):
        self.kept.append(experience)

    def nearest(self, embedding, k=10):
        memory = ExactMemory(self.dim)
        for experience in self.kept:
            memory.add(experience)
        return memory.nearest(embedding, k)


@pytest.mark.parametrize("kind", [KNN, ACRouter])
@pytest.mark.parametrize("harm", ["none", "no snapshots", "damaged"])
def test_a_lasting_memory_holds_and_counts_every_step_once_after_its_log_is_played_again(tmp_path, kind, harm):
    memory, path = Lasting(), tmp_path / "a.db"

    def start() -> Any:
        return learner(kind(memory=memory), store=Store(path, snapshot_every=0 if harm == "no snapshots" else 60))

    router = start()
    play(router, 70, text=True)
    router.close()
    if harm == "damaged":
        with sqlite3.connect(path) as connection:
            assert connection.execute("UPDATE snapshots SET state = 'x'").rowcount
    router, kept = start(), list(memory.kept)
    counted = router.policy._means if kind is KNN else router.policy.means
    assert len(memory) == 70
    if kind is KNN:
        assert sum(counted.cell((), name).n for name in "abc") == 70
    else:
        assert sum(counted.counted(dimension, name)[0] for name in "abc" for dimension in TEXTS) == 70
    play(router, 20, seed=1, text=True, start=100)
    assert memory.kept[:70] == kept
    assert len(memory) == 90
    router.close()


def test_a_memory_of_the_process_has_nothing_standing():
    assert not Standing(filled(5)).take(next(iter(filled(5))))
