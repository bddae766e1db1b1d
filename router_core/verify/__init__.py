"""Is a piece of model-written code right? Extraction, examples, a sandbox, verdicts."""

from steproute.verify.cache import VerdictCache
from steproute.verify.checks import ExampleFailure, ExamplesResult, check_examples, check_tests
from steproute.verify.code import CodeScore, CodeVerifier
from steproute.verify.examples import Example, find_examples
from steproute.verify.extract import extract_code
from steproute.verify.inputs import check_inputs
from steproute.verify.limits import SandboxLimits
from steproute.verify.literals import NotALiteral
from steproute.verify.probe import SandboxUnavailable
from steproute.verify.sandbox import CallResult, Sandbox, Session
from steproute.verify.verdict import BadTestError, Verdict

__all__ = [
    "BadTestError",
    "CallResult",
    "CodeScore",
    "CodeVerifier",
    "Example",
    "ExampleFailure",
    "ExamplesResult",
    "NotALiteral",
    "Sandbox",
    "SandboxLimits",
    "SandboxUnavailable",
    "Session",
    "Verdict",
    "VerdictCache",
    "check_examples",
    "check_inputs",
    "check_tests",
    "extract_code",
    "find_examples",
]
