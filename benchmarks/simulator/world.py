"""The hidden truth of the simulated workload: what tasks are made of, what models can do, what a call does and costs.

It copies the shape of the workload ProgRouter describes (arXiv 2608.25992, section 3): a coordinator hands parts of a
task to workers; a failed part needs a recovery call with a longer context; a model's failed attempt left in the context
makes the next one harder; a weak model is cheap per call and not per task. Which *cause* a failure has and which *kind*
of problem a part is are said in the coordinator's summary and nowhere in the numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from steproute.models import Model, Profile

KINDS = ("algorithm", "parsing", "interface", "numeric")
CAUSES = ("logic", "format", "environment")
MAX_CALLS = 14
ROUTINE, HARD, HARD_SHARE = (-1.4, 0.4), (0.5, 0.3), 0.35
"""Mean and standard deviation of the difficulty of a part, and the share of hard ones; a skill of that size solves half."""
COORDINATOR_J, COORDINATOR_S = 260.0, 0.9
"""What the coordinator takes per worker call; the board's meter sees both."""


@dataclass(frozen=True)
class Arm:
    """A worker model: its size in billions, joules per token, and what it is good at."""

    name: str
    size_b: float
    decode_j: float
    decode_tokens_per_s: float
    strong_in: tuple[str, ...]

    @property
    def model(self) -> Model:
        """As the router knows it: size, speed and energy, nothing of its abilities."""
        profile = Profile(
            prefill_tokens_per_s=40_000 / self.size_b**0.8,
            decode_tokens_per_s=self.decode_tokens_per_s,
            latency_s=0.2,
            prefill_j_per_token=0.012 * self.size_b**0.8,
            decode_j_per_token=self.decode_j,
        )
        return Model(self.name, price="free", size_b=self.size_b, profile=profile, family=self.name.split("-")[0])


ARMS = (
    Arm("alpha-0.5b", 0.5, 0.35, 320.0, ("algorithm", "numeric")),
    Arm("alpha-3b", 3.0, 0.9, 190.0, ("algorithm", "numeric")),
    Arm("beta-4b", 4.0, 1.1, 160.0, ("parsing", "interface")),
    Arm("alpha-14b", 14.0, 2.8, 75.0, ("algorithm", "numeric")),
    Arm("beta-27b", 27.0, 5.0, 42.0, ("parsing", "interface")),
    Arm("alpha-32b", 32.0, 5.8, 36.0, ("algorithm", "numeric")),
)
PROFILES = {arm.name: arm.model.profile for arm in ARMS}


@dataclass
class Part:
    """One part of a task with its hidden state."""

    kind: str
    difficulty: float
    tests: int
    """Visible tests."""
    done: bool = False
    wrong: bool = False
    """Passes the visible tests and is wrong all the same."""
    cause: str = ""
    """Why the latest attempt failed."""
    failures: list[str] = field(default_factory=list)
    """Authors of failed attempts that are still in the context."""


@dataclass
class Job:
    """One simulated task."""

    name: str
    difficulty: float
    parts: list[Part]
    calls: int = 0
    broken: int = 0
    """How many finished parts were broken again."""
    integrated: bool = False

    @property
    def current(self) -> Part | None:
        """The first open part; None when all are done."""
        return next((part for part in self.parts if not part.done), None)

    @property
    def tests(self) -> int:
        """Visible tests of all parts, and one of the whole."""
        return sum(part.tests for part in self.parts) + 1

    @property
    def over(self) -> bool:
        """Nothing more will be called."""
        return self.integrated or self.calls >= MAX_CALLS

    @property
    def success(self) -> bool:
        """The hidden tests pass."""
        return self.integrated and not any(part.wrong for part in self.parts)


@dataclass(frozen=True)
class Effect:
    """What one call did: the share of all visible tests that pass, whether it parses and runs, and what it took."""

    tests: float
    parses: bool
    runs: bool
    prompt_tokens: int
    completion_tokens: int
    energy_j: float
    seconds: float


class World:
    """Draws tasks and the effects of calls. The same seed, task and call number give the same draws to every policy."""

    def __init__(self, seed: int):
        """Draw what the models can do under this seed."""
        self.seed = seed
        rng = np.random.default_rng([seed, 1])
        self.ability = {
            arm.name: {
                kind: 1.15 * math.log10(arm.size_b / 7.0)
                + (0.45 if kind in arm.strong_in else -0.25)
                + rng.normal(0, 0.15)
                for kind in KINDS
            }
            for arm in ARMS
        }

    def job(self, index: int) -> Job:
        """Draw a task of two to five parts: most are routine, some block the task until a strong model takes them."""
        rng = np.random.default_rng([self.seed, 2, index])
        level = float(rng.normal(0, 0.3))
        parts = []
        for _ in range(int(rng.integers(2, 6))):
            base = rng.normal(*HARD) if rng.random() < HARD_SHARE else rng.normal(*ROUTINE)
            parts.append(Part(str(rng.choice(KINDS)), level + float(base), int(rng.integers(2, 6))))
        return Job(f"s{self.seed}-t{index}", level - 0.6, parts)

    def call(self, job: Job, index: int, arm: str) -> Effect:
        """Let a model work on the current part, or on putting the parts together; changes the job."""
        rng = np.random.default_rng([self.seed, 3, index, job.calls])
        luck, bad, silent, hurt, which, length = rng.random(6)
        prompt = self.prompt_tokens(job)
        completion = int(180 + 240 * length)
        job.calls += 1
        part = job.current
        if part is None:
            effect = self._integrate(job, arm, luck, which)
        else:
            effect = self._work(job, part, arm, (luck, bad, silent, hurt, which))
        share, parses, runs = effect
        passed = sum(item.tests for item in job.parts if item.done) + job.integrated
        if part is not None and not part.done:
            passed += int(share * part.tests)
        profile = PROFILES[arm]
        energy = (profile.energy_j(prompt, completion) or 0.0) + COORDINATOR_J + 0.06 * prompt
        seconds = profile.seconds(prompt, completion) + COORDINATOR_S
        return Effect(passed / job.tests, parses, runs, prompt, completion, energy, seconds)

    def prompt_tokens(self, job: Job) -> int:
        """The context grows with every call."""
        return 500 + 320 * job.calls

    def chance(self, part: Part, arm: str) -> float:
        """Probability that a model solves a part now."""
        skill = self.ability[arm]
        edge = skill[part.kind] - part.difficulty
        if part.cause == "format":
            edge += 1.6  # the solution is right, only its form is not
        elif part.cause == "environment":
            edge = skill["interface"] - part.difficulty + 0.3  # what is asked for now is another skill
        weak = sum(self.ability[author][part.kind] < skill[part.kind] for author in part.failures[-3:])
        return 1 / (1 + math.exp(-2.2 * (edge - 0.3 * weak)))

    def _work(self, job: Job, part: Part, arm: str, draws: tuple[float, ...]) -> tuple[float, bool, bool]:
        luck, bad, silent, hurt, which = draws
        chance = self.chance(part, arm)
        edge = self.ability[arm][part.kind] - part.difficulty
        if luck < chance:
            part.done, part.cause, part.failures = True, "", []
            part.wrong = silent < 0.16 / (1 + math.exp(1.8 * edge))
            return 1.0, True, True
        part.failures.append(arm)
        part.cause = CAUSES[0 if which < 0.5 else 1 if which < 0.8 else 2]
        if hurt < 0.12 / (1 + math.exp(1.5 * edge)):
            finished = [item for item in job.parts if item.done]
            if finished:
                finished[-1].done, finished[-1].wrong = False, False
                job.broken += 1
        if bad < 0.25 / (1 + math.exp(2.0 * edge)):
            return 0.0, False, False
        if bad < 0.45:
            return 0.0, True, False
        return min(int(part.tests * chance / max(luck, 1e-9)), part.tests - 1) / part.tests, True, True

    def _integrate(self, job: Job, arm: str, luck: float, which: float) -> tuple[float, bool, bool]:
        skill = float(np.mean(list(self.ability[arm].values())))
        if luck < 1 / (1 + math.exp(-2.0 * (skill - job.difficulty + 0.8))):
            job.integrated = True
            return 1.0, True, True
        if which < 0.3:
            job.parts[-1].done = False
            job.parts[-1].cause = "logic"
        return 0.0, True, True
