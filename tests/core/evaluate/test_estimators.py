"""Off-policy estimates: by hand on four rows, coverage of their intervals on logs whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from steproute.benchmarks.off_policy.coverage import WORLDS, coverage, refusals
from steproute.errors import ConfigError
from steproute.evaluate import best_chances, doubly_robust, ips, logged_propensities, per_decision_ips, snips
from steproute.evaluate.direct import crossfitted
from steproute.evaluate.estimators import effective, expected_effective, skewed_quantiles, t_quantile
from steproute.evaluate.propensity import floored, sampled

TASKS = np.array([0, 0, 1, 1])
WEIGHTS = np.array([2.0, 0.5, 0.0, 1.0])
REWARDS = np.array([1.0, 0.0, 1.0, 0.5])


def test_four_rows_by_hand() -> None:
    one = ips(TASKS, WEIGHTS, REWARDS)
    assert one.value == pytest.approx((2.0 + 0.0 + 0.0 + 0.5) / 4)
    # per task: 2 - 2 * .625 = .75 and .5 - 1.25 = -.75; variance 2/1 * (.75² + .75²) / 4²
    half = t_quantile(1) * math.sqrt(2 * 2 * 0.75**2) / 4
    assert (one.low, one.high) == (pytest.approx(0.625 - half), pytest.approx(0.625 + half))
    assert one.ess == pytest.approx(3.5**2 / (4 + 0.25 + 1))
    assert one.n == 4

    assert snips(TASKS, WEIGHTS, REWARDS).value == pytest.approx(2.5 / 3.5)

    taken, wanted = np.array([0.8, 0.2, 0.6, 0.5]), np.array([0.7, 0.3, 0.4, 0.5])
    by_hand = (0.7 + 2 * 0.2) + (0.3 - 0.5 * 0.2) + 0.4 + 0.5
    assert doubly_robust(TASKS, WEIGHTS, REWARDS, taken, wanted).value == pytest.approx(by_hand / 4)

    # products along each task: 2, 2·.5 = 1 and 0, 0·1 = 0
    whole = per_decision_ips(TASKS, WEIGHTS, REWARDS)
    assert whole.value == pytest.approx((2 * 1.0 + 1 * 0.0 + 0 * 1.0 + 0 * 0.5) / 2)
    assert (whole.n, whole.ess) == (2, pytest.approx(1.0))


def test_the_value_of_a_task_does_not_hang_on_how_tasks_are_interleaved() -> None:
    order = np.array([0, 2, 1, 3])
    assert per_decision_ips(TASKS[order], WEIGHTS[order], REWARDS[order]) == per_decision_ips(TASKS, WEIGHTS, REWARDS)


def test_a_policy_on_its_own_log_is_worth_what_was_had() -> None:
    ones = np.ones(4)
    for found in (ips(TASKS, ones, REWARDS), snips(TASKS, ones, REWARDS)):
        assert found.value == pytest.approx(REWARDS.mean())
        assert found.ess == pytest.approx(4)
    assert per_decision_ips(TASKS, ones, REWARDS).value == pytest.approx(REWARDS.sum() / 2)


def test_right_predictions_save_wrong_propensities() -> None:
    rng = np.random.default_rng(0)
    tasks = np.arange(4000)
    arms = rng.integers(2, size=4000)
    truth = np.array([0.2, 0.7])
    rewards = truth[arms] + 0.1 * rng.standard_normal(4000)
    wrong = np.where(arms == 1, 5.0, 0.0)  # 2 would be right
    assert ips(tasks, wrong, rewards).value == pytest.approx(1.75, abs=0.1)
    assert doubly_robust(tasks, wrong, rewards, truth[arms], np.full(4000, 0.7)).value == pytest.approx(0.7, abs=0.02)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weights": np.ones(3)}, "one number per decision"),
        ({"weights": np.array([1.0, -1.0, 1.0, 1.0])}, "allowed: 0 or more"),
        ({"rewards": np.array([1.0, np.nan, 1.0, 1.0])}, "not a finite number"),
        ({"tasks": np.zeros(4, dtype=int)}, "at least two"),
        ({"tasks": np.zeros(0, dtype=int), "weights": np.zeros(0), "rewards": np.zeros(0)}, "seen 0 task"),
    ],
)
def test_malformed_logs_are_refused(change: dict[str, np.ndarray], said: str) -> None:
    given = {"tasks": TASKS, "weights": WEIGHTS, "rewards": REWARDS, **change}
    with pytest.raises(ConfigError, match=said):
        ips(**given)
    with pytest.raises(ConfigError, match="all are 0"):
        snips(TASKS, np.zeros(4), REWARDS)


# --- propensities --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("means", "sds"),
    [((0.3, 0.5), (0.2, 0.1)), ((0.0, 0.0), (1.0, 1.0)), ((1.0, 0.0), (0.3, 0.4)), ((0.2, 0.1), (0.3, 0.002))],
)
def test_two_arms_have_a_closed_form(means: tuple[float, float], sds: tuple[float, float]) -> None:
    z = (means[0] - means[1]) / math.hypot(*sds)
    exact = 0.5 * (1 + math.erf(z / math.sqrt(2)))
    assert best_chances(np.array(means), np.array(sds)) == pytest.approx([exact, 1 - exact], abs=1e-5)


def test_many_arms_agree_with_draws_and_equal_ones_share() -> None:
    means, sds = np.array([0.5, 0.45, 0.6, 0.1]), np.array([0.1, 0.3, 0.05, 0.2])
    drawn = means + sds * np.random.default_rng(1).standard_normal((200_000, 4))
    share = np.bincount(drawn.argmax(axis=1), minlength=4) / 200_000
    assert best_chances(means, sds) == pytest.approx(share, abs=0.004)
    assert best_chances(np.full(3, 0.5), np.full(3, 0.1)) == pytest.approx(np.full(3, 1 / 3))


def test_arms_without_spread() -> None:
    assert best_chances(np.array([0.2, 0.7, 0.7]), np.zeros(3)).tolist() == [0.0, 0.5, 0.5]
    assert best_chances(np.array([0.5]), np.array([0.1])).tolist() == [1.0]
    # a certain 0.5 against N(0, 1): Φ(0.5)
    assert best_chances(np.array([0.5, 0.0]), np.array([0.0, 1.0]))[0] == pytest.approx(0.6914625, abs=2e-3)
    with pytest.raises(ConfigError, match="spreads of 0 or more"):
        best_chances(np.array([0.5, 0.0]), np.array([0.1, -1.0]))


def test_what_was_drawn_gets_its_chance_from_mean_and_spread_with_the_floor_in_it() -> None:
    terms = [{"mean": 0.4, "sd": 0.1, "drawn": 0.5}, {"mean": 0.5, "sd": 0.1, "drawn": 0.45}]
    rows = [{"propensity": 0.995, "terms": terms[0]}, {"propensity": 0.005, "terms": terms[1]}]
    chance = 0.5 * (1 + math.erf(-0.1 / math.hypot(0.1, 0.1) / math.sqrt(2)))
    assert logged_propensities(rows, "decision")[0] == pytest.approx(0.99 * chance + 0.005, abs=1e-6)
    plain = [{"propensity": 0.995, "terms": {"mean": 0.4}}, {"propensity": 0.005, "terms": {"mean": 0.5}}]
    assert logged_propensities(plain, "decision").tolist() == [0.995, 0.005]
    assert sampled([]) is None


@pytest.mark.parametrize("given", [[None, None], [0.5, 1.5], [0.0, 0.0], []])
def test_a_log_without_propensities_is_refused(given: list[float | None]) -> None:
    with pytest.raises(ConfigError, match="decision 7: propensities: seen"):
        logged_propensities([{"propensity": value, "terms": {}} for value in given], "decision 7")


# --- predictions ---------------------------------------------------------------------------------------------


def test_predictions_have_not_seen_their_own_task() -> None:
    # ten tasks of one decision between two models of one group; every reward is 0 but for task 0's
    tasks = np.arange(10)
    rewards = np.zeros(10)
    rewards[0] = 100.0
    asked = np.repeat(tasks, 2)
    models = np.tile([0, 1], 10)
    found = crossfitted(tasks, models, models, 2 * tasks, rewards, asked)
    assert found[0] == found[1] == 0.0
    assert found[2] > 0  # task 1's prediction knows of task 0


# --- coverage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("world", "tasks"), [("base", 100), ("base", 300), ("near", 100)])
def test_intervals_hold_the_truth_in_93_to_97_of_100_runs(world: str, tasks: int) -> None:
    found = coverage(WORLDS[world], tasks, 1000)
    assert ("task" in found) == (world == "near")  # else refused
    for name, count in found.items():
        assert count.runs == 1000
        assert 0.93 <= count.held / 1000 <= 0.97, (name, count)


def test_the_value_of_a_task_from_a_thin_log_is_refused_or_has_an_interval_that_holds() -> None:
    """An effective sample size of a dozen tasks: what happens below what is asked for by default."""
    assert refusals(WORLDS["base"], 100) == refusals(WORLDS["base"], 300) == {"task"}
    assert refusals(WORLDS["base"], 1000) == set()
    count = coverage(WORLDS["base"], 100, 1000, every=True)["task"]
    assert 0.93 <= count.held / 1000 <= 0.97, count


def test_skewed_quantiles_by_hand() -> None:
    even = np.array([1.0, -1.0, 1.0, -1.0, 0.0])
    assert skewed_quantiles(even) == (-t_quantile(4), t_quantile(4))
    assert skewed_quantiles(np.zeros(5)) == (-t_quantile(4), t_quantile(4))
    rest = np.array([4.0, -1.0, -1.0, -1.0, -1.0])  # mean square 4, mean cube 12: skewness 1.5
    a, t = 1.5 / math.sqrt(5), t_quantile(4)
    low, high = skewed_quantiles(rest)
    # T + a T²/3 + a² T³/27 + a/6 is ±t there
    assert low + a * low**2 / 3 + a**2 * low**3 / 27 + a / 6 == pytest.approx(-t)
    assert high + a * high**2 / 3 + a**2 * high**3 / 27 + a / 6 == pytest.approx(t)
    assert -low > t > high
    assert skewed_quantiles(-rest) == pytest.approx((-high, -low))


def test_the_expected_effective_size_does_not_hang_on_what_was_drawn() -> None:
    # π = (.6, .4) on p = (.2, .8): E[w²] = .36/.2 + .16/.8 = 2
    assert expected_effective(np.ones(10), np.full(10, 2.0)) == pytest.approx(5.0)
    assert expected_effective(np.zeros(3), np.zeros(3)) == 0.0
    rng = np.random.default_rng(0)
    weights = np.where(rng.random(100_000) < 0.2, 3.0, 0.5)
    assert effective(weights) / 100_000 == pytest.approx(0.5, rel=0.02)


def test_intervals_of_decisions_taken_for_independent_would_be_too_narrow() -> None:
    rng = np.random.default_rng(5)
    names = np.repeat(np.arange(200), 5)
    rewards = np.repeat(rng.standard_normal(200), 5)
    ones = np.ones(1000)
    by_task, alone = ips(names, ones, rewards), ips(np.arange(1000), ones, rewards)
    assert (by_task.high - by_task.low) / (alone.high - alone.low) == pytest.approx(math.sqrt(5), rel=0.05)


def test_small_pieces() -> None:
    assert effective(np.zeros(3)) == 0.0
    assert effective(np.array([1.0, 1.0, 0.0])) == 2.0
    assert t_quantile(10) == pytest.approx(2.228, abs=0.002)
    assert floored(np.array([1.0, 0.0]), 0.01).tolist() == pytest.approx([0.995, 0.005])
