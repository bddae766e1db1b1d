"""How likely a conversation with tools is to end well, from the kinds of calls it has made so far."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from steproute.ledger import Ledger, Step
from steproute.progress.score import Regime
from steproute.progress.views import Memory, Signals, ToolsView

_LOOKUP = re.compile(r"(?:get|read|fetch|show|view|list|find|check|lookup)_?|think|calculat", re.IGNORECASE)
_HANDOVER = re.compile(r"transfer_?to|escalat|hand_?over|human", re.IGNORECASE)


@dataclass(frozen=True)
class Outlook:
    """P(success) = σ(bias + handed_over·[the case was handed to a person] + demanding·ln(1 + demanding calls)).

    Demanding are calls that neither look up a record, nor think or calculate, nor hand over: searches and changes. The
    defaults were fitted on 100 recorded τ-bench airline runs (25 tasks × 4, one model) after 10 turns each.
    """

    bias: float = 0.067
    handed_over: float = 2.172
    demanding: float = -0.841

    def __call__(self, handed_over: bool, demanding: int) -> float:
        """The probability."""
        return 1 / (
            1 + math.exp(-(self.bias + self.handed_over * handed_over + self.demanding * math.log1p(demanding)))
        )


def kinds(step: Step) -> tuple[int, int]:
    """How many calls of a step hand the case over, and how many are demanding."""
    handed = sum(bool(_HANDOVER.search(call.name)) for call in step.tool_calls)
    looked = sum(bool(_LOOKUP.match(call.name)) and not _HANDOVER.search(call.name) for call in step.tool_calls)
    return handed, len(step.tool_calls) - handed - looked


@dataclass(frozen=True)
class CalibratedToolsView:
    """The tools view with r replaced by the chance of success, so that g orders tasks by how they will end.

    A forecast, not a wage: what a task demands lowers it whoever does the work. It tells hard tasks from easy ones; what a
    single step moved is what `ToolsView` says.
    """

    domain: str = "tools"
    outlook: Outlook = Outlook()

    def read(self, ledger: Ledger, step: Step, memory: Memory) -> Signals:
        """See `View.read`."""
        seen = _TOOLS.read(ledger, step, memory)
        handed, demanding = (a + b for a, b in zip(memory.counts or (0, 0), kinds(step), strict=True))
        memory.counts = (handed, demanding)
        if seen.regime is Regime.COMPLETE:
            return seen
        failed = step.outcome.error is not None or any(call.ok is False for call in step.tool_calls)
        return Signals(
            Regime.RECOVERABLE if failed else Regime.PARTIAL,
            self.outlook(handed > 0, demanding),
            0.0 if failed else 0.5,
        )


_TOOLS = ToolsView()
