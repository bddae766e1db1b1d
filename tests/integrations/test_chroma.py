from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from steproute import Evidence, Model, Outcome, Router
from steproute.errors import ConfigError
from steproute.integrations.chroma import ChromaMemory
from steproute.memory import ExactMemory, Experience, ExperienceMemory
from steproute.store import Store

pytest.importorskip("chromadb", reason="needs the extra chroma")
pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A Chroma server of its own on loopback; yields the port."""
    program = Path(sys.executable).with_name("chroma")
    if not program.exists():
        pytest.skip("the chroma program is not beside the interpreter")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("chroma")
    process = subprocess.Popen(
        [str(program), "run", "--path", str(folder), "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)  # a server that starts has nothing to wait on but its port
        else:
            pytest.fail("the server did not open its port in 30 s")
        yield port
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(params=["folder", "server"])
def memory_of(request, tmp_path):
    """Makes a Chroma memory in a folder or on the server."""
    if request.param == "folder":
        return lambda dim, **more: ChromaMemory(dim, path=str(tmp_path / "db"), collection="test-memory", **more)
    port = request.getfixturevalue("server")
    name = f"test-{request.node.name.replace('[', '-').replace(']', '')}"[:60]
    return lambda dim, **more: ChromaMemory(dim, host="127.0.0.1", port=port, collection=name, **more)


def fill(memory, rows, start=0):
    for i, row in enumerate(rows, start):
        memory.add(Experience(row, f"m{i % 3}", (i % 5) / 4, {"usd": i / 1000}, {"task": f"t{i}", "step": i}))


def view(found):
    return [(n.experience.model, n.experience.score, n.experience.cost, n.experience.trace) for n in found]


def test_same_results_as_the_exact_index(memory_of):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((300, 32)).astype(np.float32)
    rows[100:104] = rows[99]  # ties
    exact, chroma = ExactMemory(32), memory_of(32)
    fill(exact, rows)
    fill(chroma, rows)
    assert isinstance(chroma, ExperienceMemory)
    assert len(chroma) == 300
    queries = [rows[99], rows[7], *rng.standard_normal((20, 32)).astype(np.float32), np.zeros(32, np.float32) + rows[5]]
    for query in queries:
        one, two = exact.nearest(query, 10), chroma.nearest(query, 10)
        assert view(one) == view(two)
        assert [n.similarity for n in one] == pytest.approx([n.similarity for n in two], abs=2e-6)


def test_first_in_first_out_and_order(memory_of):
    rows = np.eye(8, dtype=np.float32)
    chroma = memory_of(8, capacity=5)
    fill(chroma, rows)
    assert len(chroma) == 5
    assert [item.trace["step"] for item in chroma] == [3, 4, 5, 6, 7]


def test_opened_again_it_goes_on(memory_of):
    rows = np.random.default_rng(2).standard_normal((12, 8)).astype(np.float32)
    fill(memory_of(8, embedder="hash-8"), rows[:6])
    again = memory_of(8, embedder="hash-8")
    fill(again, rows[6:], start=6)
    assert [item.trace["step"] for item in again] == list(range(12))
    assert again.nearest(rows[2], 1)[0].experience.trace == {"task": "t2", "step": 2}


def test_another_dimension_or_embedder_is_refused(memory_of):
    memory = memory_of(8, embedder="hash-8")
    with pytest.raises(ConfigError, match=r"dimension 8.*'hash-16' has dimension 16"):
        memory_of(16, embedder="hash-16")
    with pytest.raises(ConfigError, match="'hash-8'; seen 'other-8'"):
        memory_of(8, embedder="other-8")
    with pytest.raises(ConfigError, match=r"dimension 8.*dimension 3"):
        memory.nearest(np.ones(3, np.float32))
    with pytest.raises(ConfigError, match=r"dimension 8.*dimension 3"):
        memory.add(Experience(np.ones(3, np.float32), "m", 0.5))
    assert len(memory) == 0
    assert memory.nearest(np.ones(8, np.float32)) == []


def test_two_clients_share_a_server(server):
    one = ChromaMemory(4, host="127.0.0.1", port=server, collection="shared-memory", capacity=3)
    two = ChromaMemory(4, host="127.0.0.1", port=server, collection="shared-memory", capacity=3)
    rows = np.eye(4, dtype=np.float32)
    fill(one, rows[:2])
    fill(two, rows[2:], start=2)
    assert len(one) == 3
    assert {n.experience.trace["step"] for n in one.nearest(rows[3], 10)} == {1, 2, 3}


def test_settings_that_contradict_are_refused():
    with pytest.raises(ConfigError, match="one of them"):
        ChromaMemory(4, path="x", host="y")
    with pytest.raises(ConfigError, match="capacity"):
        ChromaMemory(4, capacity=0)


@pytest.mark.parametrize("policy", ["knn", "acrouter"])
@pytest.mark.parametrize("every", [0, 20])
def test_a_restart_from_a_store_adds_no_step_twice(tmp_path, policy, every):
    """Chroma holds what the log is played again from: with a snapshot the end of it, without one all of it."""

    def start() -> Router:
        made = {"name": policy, "memory": f"chroma:{tmp_path / 'chroma'}"}
        store = Store(tmp_path / "a.db", snapshot_every=every)
        return Router([Model(name, price="free") for name in "abc"], policy=made, store=store, seed=3, on_error="raise")

    def play(router: Router, numbers: range) -> None:
        for number in numbers:
            decision = router.decide(f"t{number}", "w", text=f"fix the {number % 7}th bug", prompt_tokens=10)
            evidence = [Evidence(source="tests", score=number % 10 / 9, count=3)]
            router.observe(decision, Outcome(prompt_tokens=10, seconds=number / 7), evidence=evidence)
            router.finish(decision.task, success=True)

    router = start()
    play(router, range(25))
    assert len(router.policy.memory) == 25
    router.close()
    router = start()
    assert len(router.policy.memory) == 25
    play(router, range(25, 30))
    assert len(router.policy.memory) == 30
    router.close()
