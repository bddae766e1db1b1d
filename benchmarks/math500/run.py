"""A solver and its reviewer at work on a mathematical problem; the reference answer grades the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steproute.benchmarks.math500.answers import Answers
from steproute.benchmarks.math500.problems import Problem, load_problems
from steproute.benchmarks.options import RunOptions
from steproute.benchmarks.protocol import Benchmark
from steproute.benchmarks.seat import Played, Seat
from steproute.errors import ConfigError
from steproute.ledger import Evidence

SOLVER = "You solve mathematical problems step by step. End with the final answer in \\boxed{}."
REVIEWER = (
    "You check mathematical problems by solving them anew, by another way where there is one. "
    "End with the final answer in \\boxed{}."
)
AGREE = 2
"""Attempts with the same answer that end a problem."""


@dataclass
class Options(RunOptions):
    """The settings of a run."""

    data: str | None = None
    """File or hub name; None = the sample that is shipped."""
    split: str = "test"
    attempts: int = 3
    """Calls per problem at most."""
    max_tokens: int = 2048
    temperature: float = 0.0

    def check(self) -> None:
        """See `RunOptions.check`."""
        super().check()
        for name in ("attempts", "max_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: seen {getattr(self, name)}; allowed: a whole number of 1 or more")


@dataclass
class _Answer:
    text: str
    times: int = 1


class Math500(Benchmark):
    """Problems with a short answer each."""

    name = "math500"
    frameworks = ("plain",)

    def __init__(self, options: Options):
        self.options: Options = options
        self._problems: Mapping[str, Problem] = {}

    def tasks(self) -> list[str]:
        """All problems, in the order of the file."""
        self.answers = Answers()
        self._problems = load_problems(self.options.data, self.options.split)
        return list(self._problems)

    def play(self, seat: Seat) -> Played:
        """Attempts until two agree or the tries are used up; the most frequent answer counts, the later of two."""
        problem = self._problems[seat.id]
        seat.describe(problem.problem, "math", dimension=problem.subject, source=self.name)
        found: list[_Answer] = []
        for attempt in range(self.options.attempts):
            first = attempt == 0
            messages = [
                {"role": "system", "content": SOLVER if first else REVIEWER},
                {"role": "user", "content": problem.problem},
            ]
            reply = seat.call(
                "solver" if first else "reviewer",
                messages,
                max_tokens=self.options.max_tokens,
                temperature=self.options.temperature,
            )
            latest = self._take(found, reply.content)
            seat.report(_evidence(found, latest))
            if latest is not None and latest.times >= AGREE:
                break
        best = max(reversed(found), key=lambda answer: answer.times, default=None)
        right = best is not None and self.answers.same(problem.answer, best.text)
        return seat.played(
            right,
            visible_ok=best is not None and best.times >= AGREE,
            answer=None if best is None else best.text[:200],
            answers=[[answer.text[:200], answer.times] for answer in found],
        )

    def _take(self, found: list[_Answer], reply: str) -> _Answer | None:
        """The answer of a reply, counted with the equal ones before it."""
        text = self.answers.read(reply)
        if text is None:
            return None
        for answer in found:
            if answer.text == text or self.answers.same(answer.text, text):
                answer.times += 1
                return answer
        found.append(_Answer(text))
        return found[-1]


def _evidence(found: list[_Answer], latest: _Answer | None) -> list[Evidence]:
    """Evidence of the sources `form` and `consistency`: the share of the attempts before that agree with the latest."""
    if latest is None:
        return [Evidence(source="form", score=0, detail="no answer found")]
    before = sum(answer.times for answer in found) - 1
    share = (latest.times - 1) / before if before else 0.0
    return [Evidence(source="form", score=1), Evidence(source="consistency", score=share, count=before)]
