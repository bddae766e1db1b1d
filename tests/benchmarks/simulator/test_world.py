from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from steproute import Regime
from steproute.benchmarks.simulator.play import play
from steproute.benchmarks.simulator.summary import summarise_job
from steproute.benchmarks.simulator.variants import Variant
from steproute.benchmarks.simulator.view import PartsView
from steproute.benchmarks.simulator.world import ARMS, COORDINATOR_J, MAX_CALLS, PROFILES, Part, World
from steproute.ledger import Evidence, Ledger, Outcome, Step, Subtask
from steproute.progress import ProgressTracker


def test_the_same_seed_gives_the_same_world():
    one, two = World(7), World(7)
    assert one.ability == two.ability
    assert one.ability != World(8).ability
    first, second = one.job(3), two.job(3)
    assert first == second
    assert one.call(first, 3, "alpha-3b") == two.call(second, 3, "alpha-3b")
    assert first == second


def test_a_call_costs_prefill_decode_and_the_coordinator():
    world = World(0)
    job = world.job(0)
    effect = world.call(job, 0, "alpha-14b")
    profile = PROFILES["alpha-14b"]
    assert effect.prompt_tokens == 500
    expected = 500 * profile.prefill_j_per_token + effect.completion_tokens * 2.8 + COORDINATOR_J + 0.06 * 500
    assert effect.energy_j == pytest.approx(expected)
    assert world.prompt_tokens(job) == 820


def test_the_chance_of_a_call_by_hand():
    world = World(0)
    part = Part("numeric", 0.2, 3)
    edge = world.ability["beta-27b"]["numeric"] - 0.2
    assert world.chance(part, "beta-27b") == pytest.approx(1 / (1 + math.exp(-2.2 * edge)))
    part.failures, part.cause = ["alpha-0.5b", "alpha-32b"], "logic"
    assert world.chance(part, "beta-27b") == pytest.approx(1 / (1 + math.exp(-2.2 * (edge - 0.3))))
    part.cause = "format"
    assert world.chance(part, "beta-27b") == pytest.approx(1 / (1 + math.exp(-2.2 * (edge - 0.3 + 1.6))))


def test_tasks_end_and_success_needs_every_part_right():
    world = World(1)
    ends = Counter()
    for index in range(60):
        job = world.job(index)
        while not job.over:
            world.call(job, index, "beta-4b")
        assert job.calls <= MAX_CALLS
        assert not job.success or (job.integrated and all(part.done and not part.wrong for part in job.parts))
        ends[job.success] += 1
    assert min(ends.values()) > 5


def test_the_summary_names_what_the_numbers_do_not():
    world = World(2)
    job = world.job(0)
    before = summarise_job(world, job, 0)
    assert before == summarise_job(world, job, 0)
    assert before.startswith(f"0 of {len(job.parts)} parts are done after 0 calls. Part 1: ")
    job.parts[0].cause, job.parts[0].failures = "environment", ["beta-4b"]
    assert "The last attempt by beta-4b failed: " in summarise_job(world, job, 0)
    for part in job.parts:
        part.done = True
    assert "put them together" in summarise_job(world, job, 0)


def test_fixed_models_span_weak_and_cheap_to_strong_and_dear_per_call_but_not_per_task():
    weak, strong = (play(Variant(policy=f"fixed:{ARMS[i].name}").router(0), World(0), 60) for i in (0, -1))
    assert np.mean(weak.success) < 0.6 < np.mean(strong.success)
    assert np.mean(weak.calls) > 1.5 * np.mean(strong.calls)
    assert sum(weak.energy_j) / sum(weak.calls) < 0.3 * sum(strong.energy_j) / sum(strong.calls)
    assert np.mean(weak.energy_j) > 0.35 * np.mean(strong.energy_j)


@pytest.mark.parametrize(
    ("parses", "statuses", "regime", "r"),
    [
        (0.0, ("done", "todo"), Regime.INVALID, 0.5),
        (1.0, ("done", "failed"), Regime.RECOVERABLE, 0.5),
        (1.0, ("done", "todo"), Regime.PARTIAL, 0.5),
        (1.0, ("done", "done"), Regime.COMPLETE, 1.0),
    ],
)
def test_milestones_of_the_domain(parses, statuses, regime, r):
    ledger = Ledger(
        subtasks=[Subtask(id=str(i), status=status) for i, status in enumerate(statuses)],
        steps=[Step(output="x", outcome=Outcome(evidence=[Evidence(source="syntax", score=parses)]))],
    )
    progress = ProgressTracker(PartsView()).update(ledger)
    assert (progress.regime, progress.r) == (regime, r)
