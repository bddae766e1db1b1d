from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from doubles import router
from predict_doubles import MODELS, feedback, make_context, samples

from steproute import ConfigError, Evidence, Outcome, Task
from steproute.policies import make_policy
from steproute.predict import dual_path, trainer
from steproute.predict.buffer import MemoryBuffer
from steproute.predict.dual_path import DualPathConfig, DualPathEstimator
from steproute.predict.trainer import Trainer, TrainerConfig
from steproute.predict.trees import DualPath, TreesConfig

pytest.importorskip("xgboost", reason="needs the extra trees")

QUICK = {"rounds": 10, "min_rows": 20, "min_tasks": 5, "background": False}


def estimator(**more: object) -> DualPathEstimator:
    return DualPathEstimator(DualPathConfig(**{**QUICK, **more}))


def teach(learner: DualPathEstimator, n: int, start: int = 0) -> None:
    """Large models gain .5, small ones nothing; two steps a task."""
    for i in range(start, start + n):
        context = make_context(f"text {i % 7}", task=f"t{i // 2}")
        learner.predict(context)
        learner.learn(feedback(context, i % 2, 0.5 * (i % 2)))


def test_the_prior_predicts_until_there_is_enough():
    learner = estimator()
    context = make_context("text")
    assert learner.predict(context)[0] == pytest.approx(learner.prior.predict(context)[0])
    teach(learner, 19)
    assert not learner.mature
    teach(learner, 1, start=19)
    assert learner.mature
    mean, spread = learner.predict(make_context("text 3"))
    assert mean[1] > mean[0] + 0.2
    assert (spread > 0).all()


def test_few_tasks_are_not_enough_however_many_rows():
    learner = estimator()
    for _ in range(60):
        learner.learn(feedback(make_context("x", task="only one"), 0, 0.1))
    assert not learner.mature


def test_refits_come_with_new_rows():
    learner = estimator(refit_share=0.5)
    teach(learner, 45)
    assert learner.trainer.fits == 3  # at 20, 30 and 45 rows
    assert learner.trainer.fitted.rows == 45


def test_the_sample_is_what_was_known_before_the_choice():
    learner = estimator()
    context = make_context("text", g=0.4)
    learner.predict(context)
    from steproute import Step

    context.ledger.steps.append(Step(model="large", output="later"))
    learner.learn(feedback(context, 1, 0.2, reliability=0.5))
    (row,) = learner.trainer.buffer.rows()
    assert row.state.last_model == ""
    assert (row.model, row.gain, row.weight) == ("large", 0.2, 0.5)
    assert row.state.numbers[0] == pytest.approx(0.4)


def test_a_failed_fit_keeps_the_last_good_one_and_is_counted(monkeypatch, caplog):
    learner = estimator(refit_share=0.5)
    teach(learner, 20)
    good = learner.trainer.fitted

    def broken(*args: object, **more: object) -> DualPath:
        raise MemoryError("no room")

    monkeypatch.setattr(trainer.DualPath, "fit", broken)
    teach(learner, 15, start=20)
    assert learner.trainer.fitted is good
    assert (learner.trainer.fits, learner.trainer.failures) == (1, 1)
    assert "MemoryError: no room" in caplog.text
    monkeypatch.undo()
    teach(learner, 15, start=35)
    assert learner.trainer.fits == 2


def test_a_decision_never_waits_for_a_fit(monkeypatch):
    learner = estimator(background=True, refit_share=0.5)
    teach(learner, 20)
    assert learner.trainer.wait(60)
    good = learner.trainer.fitted
    running, go = threading.Event(), threading.Event()
    fit = DualPath.fit

    def slow(*args: object, **more: object) -> DualPath:
        running.set()
        assert go.wait(60)
        return fit(*args, **more)

    monkeypatch.setattr(trainer.DualPath, "fit", slow)
    teach(learner, 10, start=20)
    assert running.wait(60)
    learner.predict(make_context("text"))  # while the fit is held
    teach(learner, 30, start=30)  # rows go on coming in; no second fit starts
    assert learner.trainer.fitted is good
    assert not learner.trainer.wait(0)
    go.set()
    assert learner.trainer.wait(60)
    assert learner.trainer.fitted.rows == 30


def test_a_filled_buffer_is_fitted_at_the_start():
    buffer = MemoryBuffer()
    for row in samples(60, lambda *_: 0.3, dim=256):
        buffer.append(row)
    assert DualPathEstimator(DualPathConfig(**QUICK), buffer=buffer).mature
    kept = Trainer(buffer, TreesConfig(rounds=5), TrainerConfig(min_rows=61, background=False))
    assert kept.fitted is None


def test_snapshot_and_restore():
    learner = estimator()
    assert learner.snapshot() is None
    teach(learner, 30)
    other = estimator()
    other.restore(learner.snapshot())
    context = make_context("text 2", task="new")
    assert other.predict(context)[0] == pytest.approx(learner.predict(make_context("text 2", task="new"))[0])
    with pytest.raises(ConfigError, match=r"dimension 256.*'hash-64' has dimension 64"):
        estimator(embedder="hash:64").restore(learner.snapshot())


def test_what_does_not_fit_is_refused():
    buffer = MemoryBuffer()
    buffer.append(samples(1, lambda *_: 0.1, dim=16)[0])
    with pytest.raises(ConfigError, match=r"buffer holds embeddings of dimension 16.*'hash-256' has dimension 256"):
        DualPathEstimator(buffer=buffer)
    learner = estimator()
    for gain, reliability in ((float("nan"), 1.0), (1.5, 1.0), (0.1, 0.0), (0.1, float("nan"))):
        with pytest.raises(ValueError, match="out of range"):
            learner.learn(feedback(make_context(), 0, gain, reliability))
    assert len(learner.trainer.buffer) == 0


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ImportError, match=r"steproute\[trees\]"):
        DualPathEstimator()
    with pytest.raises(ImportError, match=r"steproute\[trees\]"):
        make_policy("progrouter:meta")


def test_the_policy_brings_its_predictor():
    assert make_policy("progrouter:prior").estimator is None
    policy = make_policy({"name": "progrouter:structured", "predictor_settings": {"rounds": 7}})
    assert isinstance(policy.estimator, DualPathEstimator)
    assert policy.estimator.config.path == "structured"
    assert policy.estimator.trainer.trees.rounds == 7
    assert policy.epsilon == 1.0
    assert make_policy("progrouter:prior").epsilon == 0.0
    with pytest.raises(ConfigError, match="did you mean 'rounds'"):
        make_policy({"name": "progrouter:meta", "predictor_settings": {"round": 7}})


def test_through_the_router_the_better_model_is_found():
    policy = make_policy({"name": "progrouter:meta", "epsilon_decay": 0.95, "predictor_settings": {**QUICK, "seed": 1}})
    steps = router(MODELS, policy=policy, seed=3)
    assert steps.estimator is policy.estimator
    chosen = []
    for i in range(90):
        decision = steps.decide(Task(id=str(i)), "coder", text="sort a list")
        score = 0.9 if decision.model.name == "small" else 0.1  # against the priors
        steps.observe(decision, Outcome(), output=str(i), evidence=[Evidence(source="tests", score=score, count=5)])
        steps.finish(str(i))
        chosen.append(decision.model.name)
    assert policy.estimator.mature
    assert chosen[-20:].count("small") >= 18
    assert np.isfinite([c.gain for c in decision.candidates]).all()


def test_the_text_is_embedded_once_per_step(monkeypatch):
    learner = estimator()
    calls = []
    embed = learner.texts.embedder.embed
    monkeypatch.setattr(learner.texts.embedder, "embed", lambda texts: calls.append(texts) or embed(texts))
    monkeypatch.setattr(dual_path, "step_facts", lambda context: calls.append("facts") or real(context))
    from steproute.predict.features import step_facts as real

    context = make_context("text")
    learner.predict(context)
    learner.learn(feedback(context, 0, 0.1))
    assert len([call for call in calls if call == "facts"]) == 1
    assert len(calls) == 2
