"""The tester: runs an attempt on the examples a user sees, and, apart from the loop, on the hidden test."""

from __future__ import annotations

from dataclasses import dataclass

from steproute.benchmarks.humaneval.problems import Problem
from steproute.benchmarks.humaneval.team import Failure, VisibleReport
from steproute.ledger import Evidence
from steproute.verify.cache import VerdictCache
from steproute.verify.extract import extract_code
from steproute.verify.sandbox import Sandbox


@dataclass
class Tester:
    """Judges replies; every verdict is kept by the hash of the code, so that equal code is run once."""

    __test__ = False  # not a test case, whatever pytest takes the name for

    sandbox: Sandbox
    verdicts: VerdictCache
    """Verdicts of the hidden tests."""
    examples: VerdictCache
    """Verdicts on the visible examples. A recording brings its own: they are part of its requests, and the text of an
    error depends on the Python version it was made with."""

    def visible(self, problem: Problem, reply: str) -> VisibleReport:
        """What the examples in the docstring say about a reply. Sees nothing of the hidden test."""
        code = extract_code(reply, problem.entry_point)
        if not code:
            return VisibleReport("")
        result = self.examples.examples(code, problem.examples, problem.preamble, sandbox=self.sandbox)
        failures = tuple(Failure(item.call, item.expected, item.got) for item in result.failures)
        return VisibleReport(code, result.error, result.passed, failures)

    def hidden(self, problem: Problem, code: str) -> bool:
        """Whether the code passes the benchmark's own test."""
        if not code:
            return False
        tests = (problem.test, problem.entry_point, problem.preamble)
        return self.verdicts.tests(code, *tests, sandbox=self.sandbox).passed


def evidence_of(report: VisibleReport) -> list[Evidence]:
    """The report as evidence of the sources `syntax`, `execution` and `examples`."""
    if not report.code:
        return [Evidence(source="syntax", score=0, detail="no code")]
    if report.error:
        kind = report.error.partition(":")[0]
        source = "syntax" if kind in ("SyntaxError", "IndentationError", "TabError") else "execution"
        start = [] if source == "syntax" else [Evidence(source="syntax", score=1)]
        return [*start, Evidence(source=source, score=0, detail=kind)]
    share = report.passed / report.total if report.total else 0.5
    return [
        Evidence(source="syntax", score=1),
        Evidence(source="execution", score=1),
        Evidence(source="examples", score=share, count=report.total),
    ]
