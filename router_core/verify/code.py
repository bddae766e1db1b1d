"""Score a reply that should hold code, without knowing the right answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steproute.errors import ConfigError, unknown_name
from steproute.ledger import Evidence
from steproute.verify.cache import VerdictCache
from steproute.verify.checks import ExamplesResult, check_examples
from steproute.verify.extract import extract_code
from steproute.verify.prompts import Request, read_request
from steproute.verify.sandbox import Sandbox

WEIGHTS: Mapping[str, Mapping[str, float]] = {
    "function": {"syntax": 0.15, "execution": 0.25, "examples": 0.60},
    "program": {"syntax": 0.30, "execution": 0.70},
    "fragment": {"syntax": 1.0},
}
"""What each source counts for, by kind of task: a function to write, a program that only has to run, a part of a
larger whole that cannot run alone. The ancestor (ACRouter) weights by task type and publishes no numbers: these are
ours. A source with nothing to check drops out, and the others share its weight."""

_SYNTAX_ERRORS = ("SyntaxError:", "IndentationError:", "TabError:", "ValueError: source code")


@dataclass(frozen=True)
class CodeScore:
    """How good a reply looks."""

    score: float
    """In [0, 1]: the weighted mean of the evidence."""
    evidence: tuple[Evidence, ...]
    """One item per source: `syntax`, `execution`, `examples`; `count` is 0 where there was nothing to check."""
    code: str
    """The code that was judged; empty when the reply holds none."""
    unsafe: bool = False
    """True when it ran in a plain subprocess."""


class CodeVerifier:
    """Judges replies by parsing them, running them in a sandbox, and trying the examples found in the prompt."""

    def __init__(
        self,
        sandbox: Sandbox | None = None,
        cache: VerdictCache | None = None,
        weights: Mapping[str, Mapping[str, float]] = WEIGHTS,
    ) -> None:
        """Make a verifier; it may be shared between threads.

        Args:
            sandbox: where code runs; by default the best there is.
            cache: keeps results of equal code and examples.
            weights: non-negative weight of each source, by kind of task; each kind needs one above 0.

        Raises:
            ConfigError: a weight is negative, or all of a kind are 0.
        """
        for kind, of_kind in weights.items():
            if any(not value >= 0 for value in of_kind.values()) or not any(of_kind.values()):
                raise ConfigError(f"weights.{kind}: must be >= 0 with one above 0; seen {dict(of_kind)}")
        self.sandbox = sandbox or Sandbox()
        self._cache = cache
        self._weights = weights

    def verify(self, prompt: str, reply: str, kind: str = "function") -> CodeScore:
        """Score one reply.

        Args:
            prompt: what the user asked, with whatever examples it holds.
            reply: what the model wrote.
            kind: `function`, `program` or `fragment` (see `WEIGHTS`).

        Raises:
            ConfigError: `kind` is none of the kinds that have weights.
        """
        if kind not in self._weights:
            raise ConfigError(unknown_name("kind", kind, self._weights))
        code = extract_code(reply)
        request = read_request(prompt, code)
        if request.entry_point:
            code = extract_code(reply, request.entry_point)
        if not code:
            return self._scored(kind, "", False, Evidence(source="syntax", score=0, detail="no code"))
        if kind == "fragment":
            with self.sandbox.session() as session:
                error = session.syntax(code).failure
            return self._scored(kind, code, not self.sandbox.safe, _syntax(error))
        result = self._run(code, request, kind)
        return self._scored(kind, code, result.unsafe, *_evidence(result))

    def _run(self, code: str, request: Request, kind: str) -> ExamplesResult:
        examples = request.examples if kind != "program" else ()
        if self._cache is not None:
            return self._cache.examples(code, examples, request.preamble, sandbox=self.sandbox)
        return check_examples(code, examples, request.preamble, sandbox=self.sandbox)

    def _scored(self, kind: str, code: str, unsafe: bool, *evidence: Evidence) -> CodeScore:
        weights = self._weights[kind]
        judged = {item.source: item for item in evidence if item.count and weights.get(item.source)}
        total = sum(weights[source] for source in judged)
        score = sum(weights[source] * item.score for source, item in judged.items()) / total if total else 0.0
        missing = [
            Evidence(source=source, score=0, count=0, detail="nothing to check")
            for source in ("syntax", "execution", "examples")
            if source not in {item.source for item in evidence}
        ]
        return CodeScore(score, (*evidence, *missing), code, unsafe)


def _syntax(error: str) -> Evidence:
    return Evidence(source="syntax", score=0 if error else 1, detail=error[:200])


def _evidence(result: ExamplesResult) -> list[Evidence]:
    """Syntax: it compiles. Execution: share of loading and examples without an exception. Examples: share right."""
    if result.error.startswith(_SYNTAX_ERRORS):
        return [_syntax(result.error)]
    if result.error:
        return [_syntax(""), Evidence(source="execution", score=0, detail=result.error[:200])]
    raised = [failure for failure in result.failures if failure.raised]
    runs = 1 + result.total
    items = [
        _syntax(""),
        Evidence(
            source="execution",
            score=1 - len(raised) / runs,
            count=runs,
            detail=raised[0].got[:200] if raised else "",
        ),
    ]
    if result.total:
        wrong = [failure for failure in result.failures if not failure.raised]
        detail = f"{wrong[0].call} gives {wrong[0].got}, expected {wrong[0].expected}"[:200] if wrong else ""
        share = result.passed / result.total
        items.append(Evidence(source="examples", score=share, count=result.total, detail=detail))
    return items
