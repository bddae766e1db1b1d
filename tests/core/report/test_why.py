"""The page explains a choice in the right words: hand-made decisions with known answers, one task each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from core.report.browser import Browser, Tab
from core.report.synthetic import write_lines

from steproute.report import write_report

MODELS = [{"name": "small", "size_b": 0.5}, {"name": "large", "size_b": 7.0}, {"name": "huge", "size_b": 70.0}]
NO_TERMS: dict[str, float] = {}


def scored(model: str, score: float | None, terms: dict[str, float] = NO_TERMS, **more: Any) -> dict[str, Any]:
    return {"model": model, "score": score, "terms": terms, "cost": {}, "propensity": 0.0, "cause": "", **more}


def step(
    candidates: list[dict[str, Any]],
    served: str,
    *,
    policy: str = "mine",
    row: dict[str, Any] | None = None,
    **decision: Any,
) -> dict[str, Any]:
    full = {"candidates": candidates, "propensity": 1.0, "reason": "", **decision}
    return {
        "policy": policy,
        "step": "0",
        "attempt": 1,
        "role": "coder",
        "model": served,
        "decision": full,
        **(row or {}),
    }


STEPS = {
    "sum": step(
        [
            scored("small", 9.0, {"V(1-g)y": 10.0, "-time": -1.0}, gain=0.1, gain_sd=0.05, cost={"seconds": 2.0}),
            scored("large", 12.0, {"V(1-g)y": 18.0, "-time": -6.0}, gain=0.18, gain_sd=0.02, cost={"seconds": 9.5}),
        ],
        "large",
    ),
    "sure": step(
        [scored("small", 5.0, {"a": 3.0, "-usd": 2.0}), scored("large", 1.0, {"a": 0.5, "-usd": 0.5})], "small"
    ),
    "ratio": step(
        [scored("small", 50.0, {"gain": 0.1, "cost": 0.002}), scored("large", 20.0, {"gain": 0.2, "cost": 0.01})],
        "small",
    ),
    "unknown rule": step(
        [scored("small", 7.0, {"x": 1.0, "y": 2.0}), scored("large", 3.0, {"x": 1.0, "y": 1.0})], "small"
    ),
    "ladder": step([scored("small", 0.0, {"rung": 0.0}), scored("large", -1.0, {"rung": 1.0})], "small"),
    "close": step([scored("small", 0.70012), scored("large", 0.70021)], "large"),
    "fixed": step([scored("small", 1.0), scored("large", 0.0)], "small", policy="fixed:small"),
    "fixed, cannot": step(
        [scored("small", 0.3), scored("huge", 0.9), scored("large", None, cause="no vision")],
        "huge",
        policy="fixed:large",
    ),
    "draw": step([scored(model["name"], 0.0) for model in MODELS], "large", propensity=1 / 3),
    "tie": step([scored("small", 2.0), scored("large", 2.0)], "small"),
    "tie at the top": step([scored("small", 2.0), scored("large", 2.0), scored("huge", 1.0)], "large"),
    "explored": step([scored("small", 2.0, {"a": 2.0}), scored("large", 3.0, {"a": 3.0})], "small", propensity=0.05),
    "by rule": step([scored("small", 2.0), scored("large", 3.0)], "small"),
    "lucky": step([scored("small", 3.0), scored("large", 2.0)], "small", propensity=0.95),
    "only one": step([scored("small", 1.0), scored("huge", None, cause="hard limit usd=0.05 reached")], "small"),
    "fallback": step([scored("small", 1.0), scored("large", 0.4)], "small", fallback=True),
    "stop": step([scored("small", -0.5), scored("large", -0.2)], "large", stop=True),
    "stop, scored": step([scored("small", -0.5), scored("large", -0.2)], "large", stop=True, stop_score=0.1),
    "stop refused": step([scored("small", 0.2), scored("large", 0.4)], "large", stop_score=0.3),
    "other answered": step([scored("small", 0.2), scored("large", 0.4)], "small", model="large"),
    "nothing": step([], "small"),
    "other was best": step(
        [scored("small", 1.0)], "small", row={"q": {"small": 0.4, "large": 0.7, "stop": 0.0}, "regret": 0.3}
    ),
    "stop was best": step([scored("small", 1.0)], "small", row={"q": {"small": 0.4, "large": 0.1, "stop": 0.9}}),
    "was best": step([scored("small", 1.0)], "small", row={"q": {"small": 0.7, "large": 0.7, "stop": 0.0}}),
    "told": step(
        [scored("small", 1.0), scored("large", 0.5)],
        "small",
        progress={"g": 0.713, "regime": "partial", "r": 0.5, "d": -0.25, "e": 1.0},
        reason="my <b>reason</b>",
        row={
            "outcome": {
                "usd": 0.0021,
                "seconds": 3.25,
                "prompt_tokens": 1234,
                "completion_tokens": 56,
                "energy_j": 12000,
            },
            "visible": {"passed": 1, "total": 2, "ok": False, "error": ""},
            "hidden": True,
        },
    ),
}
Open = Callable[[str], Tab]


@pytest.fixture(scope="module")
def opened(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    folder = tmp_path_factory.mktemp("why")
    policies = list(dict.fromkeys(str(item["policy"]) for item in STEPS.values()))
    (folder / "config.json").write_text(json.dumps({"benchmark": "b", "policies": policies, "models": MODELS}))
    write_lines(folder / "steps.jsonl", [{**item, "task": name} for name, item in STEPS.items()])
    tab = browser.open(write_report(folder))
    yield tab
    assert tab.complaints() == []
    tab.close()


@pytest.fixture
def case(opened: Tab) -> Open:
    def show(name: str) -> Tab:
        opened.choose("#pick-policy", STEPS[name]["policy"])
        opened.choose("#pick-task", name)
        assert f" for {name}." in opened.text("#task .outcome > p")
        return opened

    return show


WORDS = {
    "sum": "large got the call because it scored highest: 12, ahead of small with 9. "
    "What decided it: the worth of the predicted gain, which put it 8 ahead of small "
    "(a predicted gain of 0.18 against 0.1). The time pressure (−5) spoke for small, but not enough. "
    "Without the worth of the predicted gain, small would have scored higher.",
    "sure": "small got the call because it scored highest: 5, ahead of large with 1. "
    "What decided it: the a, which put it 2.5 ahead of large. The price of money (+1.5) helped too.",
    "ratio": "small got the call because it scored highest: 50, ahead of large with 20. What decided it: its expected "
    "cost is 5 times lower than that of large, although its predicted gain is 2 times lower.",
    "unknown rule": "small got the call because it scored highest: 7, ahead of large with 3.",
    "ladder": "small got the call because it scored highest: 0, ahead of large with −1.",
    "close": "large got the call because it scored highest: 0.7002, ahead of small with 0.7001.",
    "fixed": "This policy always takes small; it weighs nothing.",
    "fixed, cannot": "The model this policy is fixed to could not serve the step, so huge stood in.",
    "draw": "All 3 models scored the same, so the choice was a draw: large came up, with a probability of 33 %.",
    "tie": "Both models scored the same, so the first of them, small, got the call.",
    "tie at the top": "2 models shared the highest score, 2; large is the one that got the call.",
    "explored": "small was drawn at random, with a probability of 5 %, although large was ahead by score: 3 against 2. "
    "What put it ahead: the a, which put it 1 ahead of small.",
    "by rule": "small got the call by a rule of the policy, although large was ahead by score: 3 against 2.",
    "lucky": "small got the call because it scored highest: 3, ahead of large with 2. "
    "The policy draws at times; this model came up with a probability of 95 %.",
    "only one": "small was the only model that could serve this step.",
    "fallback": "The router failed inside at this step, so the default model small stood in; the host never noticed.",
    "stop": "The policy ended the task here: it held that no further call was worth its cost. "
    "The best call, to large, scored −0.2.",
    "stop, scored": "The policy ended the task here: it held that no further call was worth its cost. "
    "Ending scored 0.1; the best call, to large, scored −0.2.",
    "stop refused": "large got the call because it scored highest: 0.4, ahead of small with 0.2. "
    "The policy could have ended the task instead; that scored 0.3.",
    "other answered": "large got the call because it scored highest: 0.4, ahead of small with 0.2. "
    "In the end small answered in its place; the cost is that of small.",
    "nothing": "small served this step; its score was not recorded.",
}


@pytest.mark.parametrize("name", WORDS)
def test_each_kind_of_choice_is_explained(case: Open, name: str) -> None:
    assert " ".join(case(name).texts(".why p:not(.small)")) == WORDS[name]


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("sum", "score 12 = 18 worth of the predicted gain − 6 time pressure"),
        ("ratio", "score 50 = 0.1 predicted gain ÷ 0.002 expected cost"),
        ("unknown rule", "score 7 made from 1 x, 2 y"),
        ("ladder", "score 0 made from 0 place on the ladder"),
        ("close", "score 0.7, with no further breakdown"),
    ],
)
def test_the_best_score_is_spelled_out_first(case: Open, name: str, formula: str) -> None:
    assert case(name).texts(".formula")[0] == formula


def test_candidates_show_gain_cost_and_probability(case: Open) -> None:
    tab = case("sum")
    assert tab.texts(".candidate .small") == [
        "predicted gain 0.18 ± 0.02 · expected 9.5 s · probability 0 %",
        "predicted gain 0.1 ± 0.05 · expected 2 s · probability 0 %",
    ]
    assert tab.texts(".candidate .tag") == ["chosen"]
    assert tab.texts(".candidate.taken .model") == ["large"]


def test_a_model_left_out_shows_its_cause(case: Open) -> None:
    assert case("only one").texts(".candidate.out p") == ["huge", "Left out: hard limit usd=0.05 reached."]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "other was best",
            "large would have been best, with a true value of 0.7; this choice was worth 0.4, a regret of 0.3.",
        ),
        (
            "stop was best",
            "ending the task here would have been best, with a true value of 0.9; this choice was worth 0.4, a regret of 0.5.",
        ),
        ("was best", "the best choice there was, with a true value of 0.7."),
    ],
)
def test_hindsight_compares_with_the_recording(case: Open, name: str, words: str) -> None:
    assert case(name).texts(".step .lines dd") == [words]


def test_state_cost_and_verdicts_are_told(case: Open) -> None:
    tab = case("told")
    assert tab.texts(".step .lines dd") == [
        "partial (part of it works), progress g 0.713 from r 0.5, d −0.25, e 1",
        "3.25 s, $0.0021, 12 kJ, 1,234 prompt and 56 completion tokens",
    ]
    assert tab.texts(".step summary .tag") == ["✗ visible: examples 1 of 2", "✓ hidden: would pass"]
    assert tab.text(".why .small") == "The policy's own words: “my <b>reason</b>”."


def test_a_stop_is_no_call(case: Open) -> None:
    tab = case("stop")
    assert tab.text("#task .outcome > p").startswith("mine made 0 calls for stop.")
    assert tab.texts(".step summary .model") == ["task ended"]
    assert tab.texts(".candidate.taken") == []
