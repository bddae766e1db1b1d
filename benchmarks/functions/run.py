"""A coder and a fixer at work on one function: they see the examples; the hidden tests grade the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from steproute.benchmarks.functions.problem import Problem
from steproute.benchmarks.humaneval.team import CODER, FIXER, Failure, VisibleReport, report_message
from steproute.benchmarks.humaneval.tester import evidence_of
from steproute.benchmarks.options import RunOptions
from steproute.benchmarks.protocol import Benchmark, Stage
from steproute.benchmarks.seat import Played, Seat
from steproute.errors import ConfigError
from steproute.verify import Sandbox, SandboxLimits, VerdictCache, extract_code


@dataclass
class FunctionOptions(RunOptions):
    """The settings of a run."""

    attempts: int = 3
    """Calls per problem at most; a pass of the visible examples ends it sooner."""
    max_tokens: int = 1024
    temperature: float = 0.0
    cpu_seconds: int = 30
    """CPU time of one grading, candidate and reference each."""

    def check(self) -> None:
        """See `RunOptions.check`."""
        super().check()
        for name in ("attempts", "max_tokens", "cpu_seconds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: seen {getattr(self, name)}; allowed: a whole number of 1 or more")


class Functions(Benchmark):
    """A set of problems that ask for one function each."""

    frameworks = ("plain",)

    def __init__(self, name: str, options: FunctionOptions, load: Callable[[], Mapping[str, Problem]]):
        """Describe the benchmark; the problems are read when the run starts.

        Args:
            name: as in `steproute run NAME`.
            options: the settings.
            load: reads the problems by id.
        """
        self.name = name
        self.options: FunctionOptions = options
        self._load = load
        self._problems: Mapping[str, Problem] = {}
        seconds = options.cpu_seconds
        self._sandbox = Sandbox()
        self._grader = Sandbox(
            SandboxLimits(
                cpu_seconds=seconds,
                test_cpu_seconds=seconds,
                wall_seconds=4.0 * seconds,
                session_seconds=10.0 * seconds,
            )
        )

    def tasks(self) -> list[str]:
        """All problems, in the order of the file."""
        self._problems = self._load()
        return list(self._problems)

    def prepare(self, stage: Stage) -> None:
        """Verdicts are kept beside the run, so that equal code is run once."""
        self._verdicts = VerdictCache(stage.folder.parent / "verdicts.jsonl")

    def play(self, seat: Seat) -> Played:
        """Attempts until the visible examples pass or the tries are used up."""
        problem = self._problems[seat.id]
        seat.describe(problem.task, "code", dimension="function", source=self.name)
        messages = [{"role": "system", "content": CODER}, {"role": "user", "content": problem.task}]
        report, best = VisibleReport(""), VisibleReport("")
        for attempt in range(self.options.attempts):
            role = "fixer" if attempt else "coder"
            limits = {"max_tokens": self.options.max_tokens, "temperature": self.options.temperature}
            report = self._visible(problem, seat.call(role, messages, **limits).content)  # type: ignore[arg-type]
            seat.report(evidence_of(report))
            if report.code and (report.passed >= best.passed or not best.code):
                best = report
            if report.ok:
                break
            messages = [
                {"role": "system", "content": FIXER},
                {"role": "user", "content": problem.task},
                {"role": "user", "content": report_message(report)},
            ]
        verdict = problem.grade(best.code, self._grader, self._verdicts)
        return seat.played(verdict.passed, visible_ok=report.ok, verdict=verdict.reason, detail=verdict.detail[:300])

    def _visible(self, problem: Problem, reply: str) -> VisibleReport:
        code = extract_code(reply, problem.entry_point)
        if not code:
            return VisibleReport("")
        result = self._verdicts.examples(code, problem.examples, problem.preamble, sandbox=self._sandbox)
        failures = tuple(Failure(item.call, item.expected, item.got) for item in result.failures)
        return VisibleReport(code, result.error, result.passed, failures)
