"""Delayed credit: shares by hand, what the final result adds to a step, and that a router without evidence learns from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute import ConfigError, Evidence, Model, Outcome, Router, Task
from steproute.credit import ProgressCredit, UniformCredit, credited, make_credit
from steproute.policies.pacer import Pacer

GAINS = np.array([0.3, -0.1, 0.1])


def test_shares_by_hand() -> None:
    sure, blind = np.ones(3), np.zeros(3)
    assert ProgressCredit().shares(GAINS, sure).tolist() == pytest.approx([0.75, 0.0, 0.25])
    assert ProgressCredit().shares(GAINS, blind).tolist() == pytest.approx([1 / 3] * 3)
    # mean forward gain .4/3; weights .3·.5 + .2/3, .2/3, .1·.5 + .2/3 of .4
    half = ProgressCredit().shares(GAINS, np.full(3, 0.5))
    assert half.tolist() == pytest.approx([(0.15 + 0.2 / 3) / 0.4, (0.2 / 3) / 0.4, (0.05 + 0.2 / 3) / 0.4])
    assert ProgressCredit().shares(np.array([-0.2, 0.0]), np.ones(2)).tolist() == [0.5, 0.5]
    assert UniformCredit().shares(GAINS, sure).tolist() == pytest.approx([1 / 3] * 3)


def test_gains_with_the_result_in_them() -> None:
    found = credited(ProgressCredit(), GAINS, np.ones(3), reward=1.0, progress=0.3)
    assert found.tolist() == pytest.approx([0.3 + 0.7 * 0.75, -0.1, 0.1 + 0.7 * 0.25])


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), min_size=1, max_size=12),
    st.sampled_from(["progress", "uniform"]),
    st.floats(0, 1),
)
def test_corrected_gains_sum_to_the_reward(steps: list[tuple[float, float]], name: str, reward: float) -> None:
    rule = make_credit(name)
    assert rule is not None
    gains, trust = np.array(steps).T
    shares = rule.shares(gains, trust)
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1.0)
    assert credited(rule, gains, trust, reward, float(gains.sum())).sum() == pytest.approx(reward)


def test_names() -> None:
    assert make_credit("none") is None
    with pytest.raises(ConfigError, match="credit: unknown name 'progres'; did you mean 'progress'"):
        make_credit("progres")
    with pytest.raises(ConfigError, match="credit"):
        Router([Model("a", price="free")], policy={"name": "pacer", "credit": "much"})
    assert isinstance(make_credit("uniform"), UniformCredit)


def _right(rule: str, tasks: int = 120) -> float:
    """Share of the last 50 tasks given to the model that ends them well; nothing is said of any step."""
    names = ("a", "b")
    router = Router(
        [Model(name, price="free") for name in names],
        policy={"name": "pacer", "credit": rule},
        seed=2,
        on_error="raise",
    )
    rng = np.random.default_rng(4)
    taken = []
    for number in range(tasks):
        task = Task(id=f"t{number}", goal="", dimension="d")
        used = []
        for step in range(2):
            decision = router.decide(task, step=str(step), prompt_tokens=10)
            used.append(decision.model.name)
            router.observe(
                decision, Outcome(call_id=f"{number}-{step}", completion_tokens=5), output=f"{number} {step}"
            )
        router.finish(task.id, success=bool(rng.random() < 0.1 + 0.4 * used.count("b")))
        taken += used
    return taken[-100:].count("b") / 100


def test_a_router_that_sees_no_evidence_learns_from_final_results_only_with_credit() -> None:
    assert _right("progress") > 0.9
    assert _right("uniform") > 0.9
    assert _right("none") < 0.8


def test_what_credit_adds_to_a_step_is_what_its_evidence_left_open() -> None:
    for checks in (0, 500):
        router = Router([Model("a", price="free")], policy="pacer", seed=0, on_error="raise")
        policy = router.policy
        assert isinstance(policy, Pacer)
        decision = router.decide(Task(id="t", dimension="d"), step="0", prompt_tokens=10)
        evidence = [Evidence(source="test", score=0.5, count=checks)] if checks else []
        router.observe(decision, Outcome(call_id="1", completion_tokens=5), evidence=evidence, output="x")
        router.finish("t", success=True)
        node = policy.capability.state()["nodes"][-1]
        assert sum(node["seen"]) == pytest.approx(1.0)  # ρ from the step, 1 - ρ from the result
