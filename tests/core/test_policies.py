from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute import ConfigError, Ledger, Limit, Model, Regime, Task
from steproute.draws import Draws
from steproute.policies import (
    BudgetState,
    Candidate,
    Policy,
    PolicyConfig,
    Scores,
    StepContext,
    make_policy,
    policy_names,
)
from steproute.policies.progrouter import ProgRouter
from steproute.policies.simple import Cheapest, Fixed, NaiveRatio, Oracle, Random, Strongest
from steproute.progress import Progress

amount = st.floats(0, 1e4)


def context(
    candidates: list[Candidate], g: float = 0.3, budget: BudgetState | None = None, **extra: object
) -> StepContext:
    ledger = Ledger(task=Task(id="t"))
    return StepContext(
        task=ledger.task,
        role="coder",
        step=0,
        candidates=candidates,
        progress=Progress(g, Regime.RECOVERABLE, 0.5, 0.0, 0.0),
        budget=budget or BudgetState({}, {}, {}, {}),
        ledger=ledger,
        draws=Draws(0),
        extra=extra,
    )


def candidate(name: str = "m", gain: float = 0.0, **cost: float) -> Candidate:
    return Candidate(Model(name, price="free"), dict(cost), dict(cost), gain)


# --- progrouter ----------------------------------------------------------------------------------------------------


@given(
    g=st.floats(0, 1),
    gain=st.floats(-1, 1),
    V=st.floats(0.1, 1e4),
    energy=amount,
    seconds=amount,
    energy_spent=amount,
    seconds_spent=amount,
    energy_limit=st.none() | st.floats(0.1, 1e4),
    seconds_limit=st.none() | st.floats(0.1, 1e4),
    target=st.none() | st.floats(0.1, 1e4),
    queue=amount,
)
def test_progrouter_is_the_papers_score_term_by_term(
    g, gain, V, energy, seconds, energy_spent, seconds_spent, energy_limit, seconds_limit, target, queue
):
    """V·(1−g)·ŷ − Q·(E−Ẽ) − exp((Γ+ΣΓ)/Γ_w)·Γ − exp((E+ΣE)/E_w)·E; what is not set is dropped."""
    limits = {
        "energy_j": Limit(limit=energy_limit, target=target, hard=False),
        "seconds": Limit(limit=seconds_limit, hard=False),
    }
    spent = {"energy_j": energy_spent, "seconds": seconds_spent}
    state = BudgetState(limits, spent, {"energy_j": 999.0, "seconds": 999.0}, {"energy_j": queue} if target else {})
    scores = ProgRouter(ProgRouter.Config(V=V)).score(
        context([candidate(gain=gain, energy_j=energy, seconds=seconds)], g, state)
    )
    expected = {"V(1-g)y": V * (1 - g) * gain}
    if target is not None:
        expected["-Q(E-target)"] = -queue * (energy - target)
    if seconds_limit is not None:
        expected["-time"] = -math.exp(min((seconds + seconds_spent) / seconds_limit, 50)) * seconds
    if energy_limit is not None:
        expected["-energy"] = -math.exp(min((energy + energy_spent) / energy_limit, 50)) * energy
    assert scores.terms[0] == pytest.approx(expected)
    assert scores.values[0] == pytest.approx(sum(expected.values()))
    assert scores.propensities is None


def test_progrouter_without_limits_is_gain_alone():
    scores = ProgRouter().score(context([candidate(gain=0.4, energy_j=1e9, seconds=1e9)], g=0.5))
    assert scores.terms == [{"V(1-g)y": pytest.approx(20.0)}]


def test_progrouter_takes_other_resources_for_energy_and_time():
    state = BudgetState({"usd": Limit(limit=2.0, target=1.0, hard=False)}, {"usd": 1.0}, {}, {"usd": 0.5})
    policy = ProgRouter(ProgRouter.Config(energy="usd", V=10))
    terms = policy.score(context([candidate(gain=1.0, usd=1.0)], g=0.0, budget=state)).terms[0]
    assert terms == pytest.approx({"V(1-g)y": 10, "-Q(E-target)": 0, "-energy": -math.exp(1.0)})


def test_progrouter_ablations_drop_their_term():
    state = BudgetState({"energy_j": Limit(limit=2.0, target=1.0, hard=False)}, {}, {}, {"energy_j": 5.0})
    one = [candidate(gain=1.0, energy_j=3.0)]
    no_queue = ProgRouter(ProgRouter.Config(queue_penalty=False)).score(context(one, budget=state))
    no_budget = ProgRouter(ProgRouter.Config(budget_penalty=False)).score(context(one, budget=state))
    assert set(no_queue.terms[0]) == {"V(1-g)y", "-energy"}
    assert set(no_budget.terms[0]) == {"V(1-g)y", "-Q(E-target)"}


def test_progrouter_does_not_take_an_unknown_cost_for_none():
    state = BudgetState({"energy_j": Limit(limit=10.0, hard=False)}, {}, {}, {})
    known, unknown = candidate("known", energy_j=4.0), candidate("unknown")
    scores = ProgRouter().score(context([known, unknown], budget=state))
    assert scores.values[0] == scores.values[1]


def test_progrouter_explores_less_and_less():
    policy = ProgRouter(ProgRouter.Config(epsilon=0.4, epsilon_decay=0.5, epsilon_min=0.15))
    scores = policy.score(context([candidate("a", gain=0.1), candidate("b", gain=0.9)]))
    assert scores.propensities == pytest.approx([0.2, 0.8])
    for expected in (0.2, 0.15, 0.15):
        policy.learn(object())
        assert policy.epsilon == expected


# --- baselines -----------------------------------------------------------------------------------------------------


def test_fixed_takes_its_model_or_the_strongest_that_can():
    policy = make_policy("fixed:b")
    assert isinstance(policy, Fixed)
    assert policy.name == "fixed:b"
    assert list(policy.score(context([candidate("a"), candidate("b")])).values) == [0, 1]
    others = [
        Candidate(Model("x", price="free", size_b=1), {}, {}),
        Candidate(Model("y", price="free", size_b=9), {}, {}),
    ]
    scores = policy.score(context(others))
    assert int(np.argmax(scores.values)) == 1
    assert scores.reason == "b cannot serve this step; the strongest eligible model does"
    with pytest.raises(ConfigError, match=r"^policy fixed: model: unknown name 'b'; allowed: a, c$"):
        policy.check(["a", "c"])


def test_random_gives_every_candidate_the_same_chance():
    assert Random().score(context([candidate(name) for name in "abcd"])).propensities == pytest.approx([0.25] * 4)


def test_cheapest_compares_the_first_resource_that_differs():
    def cheapest(*candidates: Candidate) -> str:
        scores = Cheapest().score(context(list(candidates)))
        return candidates[int(np.argmax(scores.values))].name

    assert cheapest(candidate("a", usd=2, seconds=1), candidate("b", usd=1, seconds=9)) == "b"
    assert cheapest(candidate("a", usd=0, seconds=1), candidate("b", usd=0, seconds=9)) == "a"
    assert cheapest(candidate("a", tokens=5), candidate("b", tokens=4)) == "b"
    assert cheapest(candidate("unknown"), candidate("b", usd=1), candidate("c", usd=3)) == "b"
    assert cheapest(candidate("a"), candidate("b")) == "a"


def test_strongest_goes_by_the_prior():
    models = [
        Model("a", price="free", size_b=1),
        Model("b", price="free", quality=0.9),
        Model("c", price="free", size_b=70),
    ]
    scores = Strongest().score(context([Candidate(model, {}, {}) for model in models]))
    assert int(np.argmax(scores.values)) == 1
    assert scores.terms[1] == {"prior": 0.9}


def test_naive_ratio_divides_gain_by_cost():
    candidates = [candidate("a", gain=0.2, usd=0.1, seconds=1), candidate("b", gain=0.6, usd=0.4, seconds=1)]
    assert NaiveRatio().score(context(candidates)).values == pytest.approx([2.0, 1.5])
    by_time = NaiveRatio(NaiveRatio.Config(resource="seconds")).score(context(candidates))
    assert by_time.values == pytest.approx([0.2, 0.6])
    assert by_time.terms[1] == {"gain": 0.6, "cost": 1.0}
    free_one = [candidate("free", gain=0.1, usd=0.0), *candidates]
    assert int(np.argmax(NaiveRatio().score(context(free_one)).values)) == 0


def test_oracle_needs_the_values_of_all_choices():
    candidates = [candidate("a"), candidate("b")]
    scores = Oracle().score(context(candidates, q={"a": 0.25, "b": 0.5, "stop": 0.75}))
    assert (list(scores.values), scores.stop) == ([0.25, 0.5], 0.75)
    with pytest.raises(ConfigError, match=r"^policy oracle: extra\['q'\] is missing"):
        Oracle().score(context(candidates))
    with pytest.raises(ConfigError, match=r"^policy oracle: extra\['q'\] has no value for b$"):
        Oracle().score(context(candidates, q={"a": 1.0}))


# --- the registry --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("progruter", "policy: unknown name 'progruter'; did you mean 'progrouter'? allowed: "),
        ("", "policy: unknown name ''; allowed: "),
        ({"V": 3}, "policy: name: missing; it is required"),
        ({"name": "progrouter", "v": 3}, "ProgRouter: v: unknown name 'v'; "),
        (
            {"name": "progrouter", "epsilom": 0.1},
            "ProgRouter: epsilom: unknown name 'epsilom'; did you mean 'epsilon'?",
        ),
        ({"name": "progrouter", "V": 0}, "ProgRouter: V: Input should be greater than 0; seen 0"),
        ({"name": "progrouter", "V": float("nan")}, "ProgRouter: V: Input should be a finite number; seen nan"),
        ("fixed", "Fixed: model: missing; it is required"),
        ("random:7", "policy 'random' takes no argument; seen '7' after the colon"),
        ({"name": "random", "seed": 7}, "policy 'random' has no settings; seen 'seed'"),
        (7, "policy: seen 7; allowed: a name, a mapping with `name`, or an object with `name` and `score`"),
        (Random, "policy: seen <class 'steproute.policies.simple.Random'>; allowed: a name"),
        (object(), "policy: seen <object object at"),
    ],
)
def test_wrong_policies_are_refused_by_name(spec, error):
    with pytest.raises(ConfigError) as seen:
        make_policy(spec)
    assert str(seen.value).startswith(error)


def test_policies_by_name_mapping_and_object():
    assert make_policy("naive-ratio").name == "naive-ratio"
    policy = make_policy({"name": "progrouter", "V": 7, "epsilon": 0.0})
    assert isinstance(policy, ProgRouter)
    assert policy.config.V == 7
    assert make_policy(policy) is policy
    assert {"fixed", "random", "cheapest", "strongest", "progrouter", "naive-ratio", "oracle"} <= set(policy_names())


def test_a_policy_of_ones_own_is_ten_lines():
    class Shortest:
        name = "shortest"

        class Config(PolicyConfig):
            weight: float = 1.0

        def __init__(self, config: Config):
            self.config = config

        def score(self, context: StepContext) -> Scores:
            return Scores(np.array([-self.config.weight * len(name) for name in context.names]))

    policy = Shortest(Shortest.Config(weight=2))
    assert isinstance(policy, Policy)
    assert list(policy.score(context([candidate("ab"), candidate("a")])).values) == [-4, -2]
    with pytest.raises(ConfigError, match="wieght: unknown name 'wieght'; did you mean 'weight'"):
        Shortest.Config(wieght=2)  # type: ignore[call-arg]


def test_costs_of_candidates_where_some_are_unknown():
    step = context([candidate("a", usd=1.0), candidate("b"), candidate("c", usd=3.0)])
    assert list(step.costs("usd")) == [1, 3, 3]
    assert list(step.costs("seconds")) == [0, 0, 0]
