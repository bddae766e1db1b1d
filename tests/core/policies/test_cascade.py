from __future__ import annotations

import pytest
from doubles import free, priced, router

from steproute import (
    Budget,
    ConfigError,
    Decision,
    Evidence,
    Ledger,
    Model,
    Outcome,
    Price,
    Router,
    Step,
    Subtask,
    Task,
)
from steproute.policies import make_policy

LADDER = [priced("large", 0.4), priced("small", 0.1), priced("middle", 0.2)]


def cascade(models: list[Model] | None = None, **settings: object) -> Router:
    return router(models or LADDER, policy={"name": "cascade", **settings})


def play(steps: Router, scores: list[float], role: str = "", task: str = "t") -> list[str]:
    """One step per score; the model of each."""
    names = []
    for score in scores:
        decision = steps.decide(task, role=role, prompt_tokens=1000)
        names.append(decision.model.name)
        outcome = Outcome(prompt_tokens=1000)
        steps.observe(decision, outcome, output=str(len(names)), evidence=[Evidence(source="judge", score=score)])
    return names


def ask(steps: Router, task: str = "t", **more: object) -> Decision:
    return steps.decide(task, prompt_tokens=1000, **more)  # type: ignore[arg-type]


def test_it_climbs_on_stagnation_and_stays_while_there_is_progress():
    assert play(cascade(), [0.0, 0.0, 0.0, 0.0]) == ["small", "middle", "large", "large"]
    assert play(cascade(), [0.3, 0.6, 0.9, 0.9, 0.9]) == ["small", "small", "small", "small", "middle"]
    assert play(cascade(), [0.6, 0.4, 0.7, 0.8]) == ["small", "small", "middle", "middle"]


def test_patience_waits_for_several_failures_in_a_row():
    assert play(cascade(patience=2), [0.0] * 5) == ["small", "small", "middle", "middle", "large"]
    assert play(cascade(patience=2), [0.3, 0.3, 0.6, 0.6, 0.6, 0.6]) == ["small"] * 5 + ["middle"]


def test_unsolved_climbs_after_every_step_that_left_the_task_incomplete():
    assert play(cascade(failing="unsolved"), [0.3, 0.6, 0.9]) == ["small", "middle", "large"]
    assert play(cascade(failing="unsolved"), [1.0, 1.0]) == ["small", "small"]


def test_tasks_do_not_mix():
    steps = cascade()
    assert play(steps, [0.0, 0.0], task="first") == ["small", "middle"]
    assert play(steps, [0.0], task="second") == ["small"]
    assert ask(steps, "first").model.name == "large"


def test_a_role_may_have_a_cascade_of_its_own():
    steps = cascade(per_role=True)
    assert play(steps, [0.0, 0.0], role="coder") == ["small", "middle"]
    assert play(steps, [0.0], role="planner") == ["small"]
    assert play(steps, [0.0], role="coder") == ["large"]


def test_it_goes_on_from_a_ledger_that_another_process_wrote():
    ledger = Ledger(task=Task(id="t"), steps=[Step(id="s0", model="middle", output="x", g=0.05)])
    ledger.steps[0].outcome.evidence.append(Evidence(source="judge", score=0))
    steps = cascade()
    decision = steps.decide(Ledger.from_json(ledger.to_json()), prompt_tokens=1000)
    assert (decision.model.name, decision.reason) == ("large", "middle made no progress; large is next")


def test_models_weaker_than_a_cheaper_one_are_a_last_resort():
    models = [
        Model("a", price=Price(input=1, output=0), quality=0.5),
        Model("b", price=Price(input=2, output=0), quality=0.4),
        Model("c", price=Price(input=3, output=0), quality=0.8),
    ]
    assert play(cascade(models), [0.0, 0.0, 0.0]) == ["a", "c", "c"]
    assert cascade(models).decide("t", exclude=["a", "c"], prompt_tokens=1000).model.name == "b"


def test_an_order_of_ones_own():
    assert play(cascade(order=["middle", "small"]), [0.0, 0.0, 0.0]) == ["middle", "small", "small"]
    assert cascade(order=["middle"]).decide("t", exclude=["middle"], prompt_tokens=1000).model.name == "small"
    with pytest.raises(ConfigError, match=r"policy cascade: order: unknown name 'midle'; did you mean 'middle'\?"):
        cascade(order=["midle"])
    with pytest.raises(ConfigError, match="policy cascade: order: 'small' is given twice"):
        cascade(order=["small", "small"])


def test_a_failed_call_moves_on_without_leaving_the_rung_for_good():
    steps = cascade()
    decision = ask(steps)
    steps.observe(decision, Outcome(error="timeout"))
    assert ask(steps).model.name == "middle"
    assert ask(steps, "other").model.name == "small"


def test_a_model_that_does_not_fit_any_more_gives_way_to_a_cheaper_one():
    steps = router(LADDER, policy="cascade", budget=Budget(usd=0.5))
    assert play(steps, [0.0, 0.0, 0.0]) == ["small", "middle", "middle"]


def test_arms_come_and_go():
    steps = cascade()
    assert play(steps, [0.0, 0.0]) == ["small", "middle"]
    steps.pool.retire("middle")
    assert ask(steps).model.name == "large"
    steps = cascade()
    play(steps, [0.0])
    steps.pool.add(priced("between", 0.15))
    assert ask(steps).model.name == "between"


def test_it_ends_a_solved_task_and_a_ladder_that_is_used_up_where_the_host_allows():
    steps = cascade()
    play(steps, [1.0])
    assert ask(steps, step="x", can_stop=True).stop
    assert not ask(steps, step="y").stop
    steps = cascade()
    play(steps, [0.0, 0.0])
    assert not ask(steps, step="x", can_stop=True).stop
    steps = cascade()
    play(steps, [0.0, 0.0, 0.0])
    assert ask(steps, step="x", can_stop=True).stop


def test_a_typo_is_named():
    with pytest.raises(ConfigError, match="Cascade: patiense: unknown name 'patiense'; did you mean 'patience'"):
        make_policy({"name": "cascade", "patiense": 2})


def test_equal_prices_leave_the_order_of_the_pool():
    assert play(router(free("x", "y"), policy="cascade"), [0.0, 0.0]) == ["x", "y"]


def test_checks_that_all_passed_end_the_task_even_where_a_view_says_no_more_than_partial():
    def after(*evidence: Evidence, done: bool = True) -> bool:
        steps = cascade()
        task = Task(id="t", domain="code")
        ledger = Ledger(task=task, subtasks=[Subtask(id="1", status="done" if done else "todo")])
        first = steps.decide(ledger, prompt_tokens=1000)
        steps.observe(first, Outcome(), output="x", evidence=evidence)
        return steps.decide(ledger, step="x", prompt_tokens=1000, can_stop=True).stop

    parses, nothing = Evidence(source="syntax", score=1), Evidence(source="examples", score=0, count=0)
    assert after(parses, nothing)
    assert not after(parses, nothing, done=False)
    assert not after(parses, Evidence(source="examples", score=0.5, count=2))
    assert not after(nothing)


def test_a_host_that_gives_no_model_twice_walks_up_the_ladder_and_ends():
    steps = cascade()
    used: list[str] = []
    for _ in LADDER:
        decision = steps.decide("t", exclude=used, prompt_tokens=1000)
        used.append(decision.model.name)
        steps.observe(decision, Outcome(), output=str(used), evidence=[Evidence(source="judge", score=0)])
    assert used == ["small", "middle", "large"]
