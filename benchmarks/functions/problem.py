"""A problem that asks for one Python function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steproute.verify import Example, Sandbox, Verdict, VerdictCache, check_inputs
from steproute.verify.inputs import Accept


@dataclass(frozen=True)
class Inputs:
    """Hidden inputs: a result is right when it agrees with the reference's."""

    arguments: Sequence[Sequence[object]]
    reference: str
    """The right solution, whole. Trusted."""
    atol: float = 0.0
    """Absolute tolerance for floats, as the data set states it."""
    accept: Accept | None = None
    """Decides instead of agreement, for problems with several right answers."""
    suffix: str = ""
    """Code put after both, to bring their results into one form."""


@dataclass(frozen=True)
class Problem:
    """One problem. `tests` or `inputs` are hidden: they grade the end and are never shown to an agent."""

    id: str
    task: str
    """The user's message."""
    entry_point: str
    examples: Sequence[Example] = ()
    """All the tests a user would have."""
    preamble: str = ""
    """What the problem gives before the function: imports and other functions."""
    tests: str = ""
    """Python statements that call the function by its name and assert."""
    inputs: Inputs | None = None

    def grade(self, code: str, sandbox: Sandbox, verdicts: VerdictCache) -> Verdict:
        """Whether the code passes everything that is hidden.

        Raises:
            BadTestError: the data set's own test or solution is wrong.
        """
        if self.inputs is None:
            return verdicts.tests(code, self.tests, self.entry_point, self.preamble, sandbox=sandbox)
        hidden = self.inputs
        decides = repr(
            (self.id, self.entry_point, self.preamble, hidden.reference, hidden.atol, hidden.suffix, hidden.arguments)
        )

        def check() -> Verdict:
            return check_inputs(
                code + hidden.suffix if code.strip() else "",
                self.entry_point,
                hidden.arguments,
                hidden.reference + hidden.suffix,
                hidden.atol,
                self.preamble,
                sandbox=sandbox,
                accept=hidden.accept,
            )

        return verdicts.get_or_check(code, decides, sandbox, check)
