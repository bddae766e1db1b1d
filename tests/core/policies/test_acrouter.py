from __future__ import annotations

import numpy as np
import pytest
from doubles import router

from steproute import Budget, ConfigError, Evidence, Limit, Model, Outcome, Task
from steproute.embed import HashEmbedder
from steproute.memory import ExactMemory, Experience, Neighbour
from steproute.policies import StepContext, make_policy
from steproute.policies.acrouter import ACRouter, neighbour_vote

MODELS = [Model(name, price="free") for name in ("a", "b", "c")]


def settings(**more: object) -> ACRouter.Config:
    return ACRouter.Config(**{"epsilon": 0.0, **more})


def past(text: str, model: str, score: float, dimension: str = "", usd: float = 0.0) -> Experience:
    return Experience(HashEmbedder().embed([text])[0], model, score, {"usd": usd}, {"dimension": dimension})


def filled(*experiences: Experience) -> ExactMemory:
    memory = ExactMemory(256)
    for experience in experiences:
        memory.add(experience)
    return memory


def test_neighbours_speak_for_their_models_by_likeness():
    found = [
        Neighbour(Experience(np.ones(2, np.float32), "a", 1.0), 0.5),
        Neighbour(Experience(np.ones(2, np.float32), "b", 0.0), 1.0),
        Neighbour(Experience(np.ones(2, np.float32), "gone", 1.0), 1.0),
        Neighbour(Experience(np.ones(2, np.float32), "b", 1.0), -0.3),
    ]
    shares = neighbour_vote(found, ["a", "b", "c"], np.array([0.4, 0.4, 0.4]), np.array([0.1, 0.0, 0.0]), 0.2)
    estimates = np.array([(0.4 + 0.5 * 0.9) / 1.5, (0.4 + 0.0) / 2.0, 0.4])
    expected = np.exp(estimates / 0.2)
    assert shares == pytest.approx(expected / expected.sum())


def test_the_memory_finds_the_model_that_solved_the_like_of_it():
    policy = ACRouter(
        settings(policy_weight=0, dimension_weight=0),
        memory=filled(
            *[past("merge overlapping intervals in a list", "b", 1.0)] * 4,
            *[past("merge overlapping intervals in a list", "a", 0.0)] * 4,
            *[past("read a date from a log line", "a", 1.0)] * 4,
            *[past("read a date from a log line", "b", 0.0)] * 4,
        ),
    )
    steps = router(MODELS, policy=policy)
    assert steps.decide("1", text="merge the overlapping intervals").model.name == "b"
    assert steps.decide("2", text="read the date in a log line").model.name == "a"


def test_without_text_the_memory_abstains_and_the_others_decide():
    policy = ACRouter(settings(policy_weight=0), memory=filled(*[past("x y z", "c", 1.0, "sql")] * 6))
    decision = router(MODELS, policy=policy).decide(Task(id="t", dimension="sql"))
    assert decision.model.name == "c"
    assert "memory" in decision.reason
    assert set(decision.score_of("c").terms) == {"policy", "dimension"}


def test_votes_are_weighted_and_told_apart_in_the_terms():
    class AlwaysA:
        def vote(self, context: StepContext) -> np.ndarray:
            return np.array([float(name == "a") for name in context.names])

    memory = filled(*[past("sort numbers", "b", 1.0, "algo")] * 8)
    light = ACRouter(settings(policy_weight=0.5), memory=memory, voter=AlwaysA())
    heavy = ACRouter(settings(policy_weight=5), memory=memory, voter=AlwaysA())
    task = {"text": "sort numbers"}
    one = router(MODELS, policy=light).decide(Task(id="t", dimension="algo"), **task)
    two = router(MODELS, policy=heavy).decide(Task(id="t", dimension="algo"), **task)
    assert (one.model.name, two.model.name) == ("b", "a")
    terms = two.score_of("a").terms
    assert terms["policy"] == 5
    assert terms["dimension"] == 0
    assert 0 < terms["memory"] < 1
    assert two.score_of("a").score == pytest.approx(sum(terms.values()))


def test_a_verified_step_is_written_back():
    policy = ACRouter(settings())
    steps = router(MODELS, policy=policy)
    decision = steps.decide(Task(id="t", dimension="sql"), role="coder", text="join two tables")
    evidence = [Evidence(source="syntax", score=1.0), Evidence(source="examples", score=0.5, count=4)]
    steps.observe(decision, Outcome(usd=0.25), output="select", evidence=evidence)
    (kept,) = list(policy.memory)
    assert (kept.model, kept.score) == (decision.model.name, 0.75)
    assert kept.cost["usd"] == 0.25
    assert kept.trace == {
        "task": "t",
        "step": 0,
        "role": "coder",
        "dimension": "sql",
        "usd_weight": 0.1,
        "propensity": 1.0,
        "verified": {"syntax": 1.0, "examples": 0.5},
    }
    assert "join" not in str(kept.trace)


def test_money_counts_against_the_score():
    # a call of b costs $0.50
    memory = filled(*[past("a question", "a", 0.9, "d", usd=0.0)] * 9, *[past("a question", "b", 1.0, "d")] * 9)
    dear = [Model("a", price="free"), Model("b", price={"input": 5000, "output": 0})]
    for usd_weight, wanted in ((0.0, "b"), (1.0, "a")):
        policy = ACRouter(settings(policy_weight=0, usd_weight=usd_weight), memory=memory)
        steps = router(dear, policy=policy)
        assert steps.decide(Task(id="t", dimension="d"), text="a question", prompt_tokens=100).model.name == wanted


def test_the_budgets_value_of_a_dollar_counts():
    memory = filled(*[past("a question", "a", 0.9, "d")] * 9, *[past("a question", "b", 1.0, "d")] * 9)
    dear = [Model("a", price="free"), Model("b", price={"input": 5000, "output": 0})]
    for value, wanted in ((0.001, "b"), (1.0, "a")):
        policy = ACRouter(settings(policy_weight=0), memory=memory)
        steps = router(dear, policy=policy, budget=Budget(usd=Limit(value=value)))
        assert steps.decide(Task(id="t", dimension="d"), text="a question", prompt_tokens=100).model.name == wanted


def test_published_means_are_a_prior():
    policy = ACRouter(settings(policy_weight=0))
    policy.set_prior(("sql",), {"a": 0.2, "b": 0.5, "c": 0.9})
    steps = router(MODELS, policy=policy)
    assert steps.decide(Task(id="1", dimension="sql")).model.name == "c"
    assert policy.means.counted("sql", "a") == (20, 0.2)


def test_it_learns_which_model_is_good_where_from_bandit_feedback_alone():
    policy = ACRouter(ACRouter.Config(seed=1))
    steps = router(MODELS, policy=policy, seed=1)
    best = {"merge intervals in a sorted list": "a", "scrape the title of a web page": "b", "integrate a function": "c"}
    texts = list(best)
    right = []
    for i in range(240):
        text = texts[i % 3]
        decision = steps.decide(Task(id=str(i), dimension="all"), text=text)
        score = 0.9 if decision.model.name == best[text] else 0.2
        steps.observe(decision, Outcome(), output=str(i), evidence=[Evidence(source="tests", score=score)])
        steps.finish(str(i))
        right.append(decision.model.name == best[text])
    assert sum(right[-60:]) >= 55
    alone = [policy.classifier.probabilities("all", policy.texts(text), ["a", "b", "c"]) for text in texts]
    assert [int(np.argmax(shares)) for shares in alone] == [0, 1, 2]


def test_epsilon_decays_with_every_step_learnt_from():
    policy = ACRouter(ACRouter.Config(epsilon=0.5, epsilon_decay=0.5, epsilon_min=0.2))
    steps = router(MODELS, policy=policy)
    seen = []
    for i in range(3):
        decision = steps.decide(str(i), text="same")
        seen.append(policy.epsilon)
        steps.observe(decision, Outcome(), output="x", evidence=[Evidence(source="tests", score=1.0)])
    assert seen == [0.5, 0.25, 0.2]


def test_a_memory_that_holds_experiences_counts_as_learnt():
    memory = filled(*[past("sort numbers", "b", 1.0, "algo")] * 3)
    policy = ACRouter(ACRouter.Config(epsilon=0.5, epsilon_decay=0.5, epsilon_min=0.01), memory=memory)
    assert policy.epsilon == 0.0625
    assert policy.classifier.seen == 3
    assert policy.means.counted("algo", "b") == (3, 1.0)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match=r"ExactMemory holds vectors of dimension 8.*'hash-256' has dimension 256"):
        ACRouter(memory=ExactMemory(8))
    with pytest.raises(ConfigError, match="memory: seen 'lance'; allowed: exact, chroma:FOLDER"):
        make_policy({"name": "acrouter", "memory": "lance"})
    with pytest.raises(ConfigError, match="did you mean 'epsilon'"):
        make_policy({"name": "acrouter", "epsilom": 0.2})


def test_an_llm_may_vote_in_place_of_the_classifier():
    with pytest.raises(ConfigError, match="policy llm: backend"):
        make_policy({"name": "acrouter", "llm": {}})
    from steproute.policies.llm import LLMRouter

    asked = LLMRouter(ask=lambda prompt: "c")
    policy = ACRouter(settings(dimension_weight=0, memory_weight=0), voter=asked)
    assert router(MODELS, policy=policy).decide("t", text="anything").model.name == "c"
    assert asked.asked == 1
