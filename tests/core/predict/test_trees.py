from __future__ import annotations

import json

import numpy as np
import pytest
from predict_doubles import samples

from steproute import ConfigError
from steproute.predict.features import Floats32
from steproute.predict.trees import DualPath, TreesConfig, folds_by_task

pytest.importorskip("xgboost", reason="needs the extra trees")


def table_rule(state, model, embedding):
    return 0.6 * (1 - state.numbers[0]) * (1.0 if model == "large" else 0.3)


def text_rule(state, model, embedding):
    return 0.3 * np.sign(embedding[3]) + 0.1


def error(fitted: DualPath, rows) -> dict[str, float]:
    both = fitted.predict_paths(
        [row.state for row in rows],
        [row.model for row in rows],
        np.stack([row.numbers for row in rows]),
        np.stack([row.embedding for row in rows]).astype(np.float32),
    )
    truth = np.array([row.gain for row in rows])
    found: dict[str, Floats32] = {"structured": both[:, 0], "semantic": both[:, 1], "meta": fitted.blend(both)}
    return {name: float(np.abs(guess - truth).mean()) for name, guess in found.items()}


@pytest.mark.parametrize(
    ("rule", "better", "worse"), [(table_rule, "structured", "semantic"), (text_rule, "semantic", "structured")]
)
def test_each_path_sees_its_own_signal_and_the_meta_learner_follows_the_better(rule, better, worse):
    fitted = DualPath.fit(samples(800, rule), TreesConfig())
    errors = error(fitted, samples(200, rule, seed=9))
    assert errors[better] < 0.08
    assert errors[worse] > 3 * errors[better]
    assert errors["meta"] < 1.5 * errors[better]


def test_folds_are_cut_by_task_and_even():
    tasks = [f"t{i // 3}" for i in range(90)]
    fold = folds_by_task(tasks, 3, seed=1)
    assert {fold[3 * i] for i in range(30)} == {0, 1, 2}
    assert all(len(set(fold[3 * i : 3 * i + 3])) == 1 for i in range(30))
    assert np.bincount(fold).tolist() == [30, 30, 30]
    assert not np.array_equal(fold, folds_by_task(tasks, 3, seed=2))
    with pytest.raises(ValueError, match="2 task"):
        folds_by_task(["a", "b", "b"], 3, seed=0)


def test_the_meta_learner_is_fitted_on_predictions_of_unseen_tasks():
    """Rows of a task share a random gain that only the embedding names: leaking folds would trust the semantic path."""
    rng = np.random.default_rng(0)
    rows = samples(400, lambda *_: 0.0, per_task=8)
    shift = rng.uniform(-0.5, 0.5, 50)
    code = rng.standard_normal((50, 16)).astype(np.float16)
    leaky = []
    for i, row in enumerate(rows):
        gain = float(np.clip(table_rule(row.state, row.model, None) + shift[i // 8], -1, 1))
        leaky.append(type(row)(row.task, row.model, row.state, row.numbers, code[i // 8], gain, 1.0))
    fitted = DualPath.fit(leaky, TreesConfig())
    fresh = error(fitted, samples(200, table_rule, seed=5))
    assert fresh["meta"] < fresh["semantic"]


@pytest.mark.parametrize("path", ["structured", "semantic", "average"])
def test_ablations_use_what_they_say(path):
    rows = samples(200, table_rule)
    fitted = DualPath.fit(rows, TreesConfig(path=path, rounds=20))
    assert (fitted.structured is None) == (path == "semantic")
    assert (fitted.semantic is None) == (path == "structured")
    assert fitted.meta is None
    row = rows[0]
    mean, spread = fitted.predict(row.state, [row.model], row.numbers[None], row.embedding.astype(np.float32))
    both = fitted.predict_paths([row.state], [row.model], row.numbers[None], row.embedding[None].astype(np.float32))[0]
    expected = {"structured": both[0], "semantic": both[1], "average": both.mean()}[path]
    assert mean[0] == pytest.approx(expected, abs=1e-6)
    assert spread[0] > 0


def test_predictions_stay_within_what_is_left():
    rows = samples(200, lambda state, model, embedding: 0.9)
    fitted = DualPath.fit(rows, TreesConfig(rounds=30))
    row = next(row for row in rows if row.state.numbers[0] > 0.5)
    mean, _ = fitted.predict(row.state, ["small", "new"], np.stack([row.numbers] * 2), row.embedding.astype(np.float32))
    left = 1 - float(row.state.numbers[0])
    assert mean.tolist() == pytest.approx([left, left])


def test_the_spread_is_what_unseen_tasks_show():
    rng = np.random.default_rng(3)
    rows = samples(900, lambda *_: 0.2 + float(rng.normal(0, 0.1)))
    fitted = DualPath.fit(rows, TreesConfig(rounds=20))
    assert all(0.08 < spread < 0.13 for spread in fitted.spread)


def test_the_same_seed_gives_the_same_trees():
    rows = samples(150, text_rule)
    one, two = (DualPath.fit(rows, TreesConfig(rounds=15), seed=4).to_json() for _ in range(2))
    assert one == two
    assert DualPath.fit(rows, TreesConfig(rounds=15), seed=5).to_json() != one


def test_a_snapshot_predicts_as_the_original():
    rows = samples(150, text_rule)
    fitted = DualPath.fit(rows, TreesConfig(rounds=15))
    again = DualPath.from_json(json.loads(json.dumps(fitted.to_json())))
    assert error(again, rows) == error(fitted, rows)
    assert (again.spread, again.rows, again.vocabulary) == (fitted.spread, fitted.rows, fitted.vocabulary)


def test_a_damaged_snapshot_is_refused_with_its_reason():
    good = DualPath.fit(samples(60, text_rule), TreesConfig(rounds=5)).to_json()
    cut = {**good, "semantic": good["semantic"][:-40]}
    for bad, said in (
        (cut, "checksum"),
        ({**good, "version": 0}, "features of version 0"),
        ({**good, "spread": [0.1]}, "seen 1 values"),
        ({name: value for name, value in good.items() if name != "dim"}, "dim"),
    ):
        with pytest.raises(ConfigError, match=said):
            DualPath.from_json(bad)


def test_samples_that_cannot_be_fitted_are_refused():
    rows = samples(40, text_rule)
    mixed = [*rows, *samples(4, text_rule, dim=8)]
    with pytest.raises(ValueError, match=r"dimensions \[8, 16\]"):
        DualPath.fit(mixed, TreesConfig())
    with pytest.raises(ValueError, match="2 task"):
        DualPath.fit(rows[:8], TreesConfig())
    with pytest.raises(ConfigError, match="did you mean 'rounds'"):
        TreesConfig(round=5)
