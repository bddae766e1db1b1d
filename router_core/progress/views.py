"""One class per domain reads a step into the sub-scores of progress."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from steproute.errors import ConfigError
from steproute.ledger import Ledger, Step
from steproute.progress.score import Regime


@dataclass(frozen=True, slots=True)
class Signals:
    """What one step says: coarse regime, share done r and quality of the latest change e, both in [0, 1]."""

    regime: Regime
    r: float
    e: float

    @property
    def level(self) -> float:
        """One number that rises with regime and r, in [0, 4]; the trend d is taken from it."""
        return float(self.regime) + self.r


@dataclass(slots=True)
class Memory:
    """What a view carries from step to step; bounded, so that a long ledger stays cheap."""

    last: Signals = Signals(Regime.INVALID, 0.0, 0.0)
    seen: tuple[int, ...] = ()
    """Fingerprints of the latest outputs and errors, oldest first."""
    given: int | None = None
    """Fingerprint of the step being read, where its text was not kept."""
    counts: tuple[int, ...] = ()
    """What a view has counted so far."""

    def is_new(self, text: str, keep: int = 64) -> bool:
        """Whether this text, spacing aside, was not among the latest ones; remembers it."""
        key = fingerprint(text) if self.given is None else self.given
        known = key in self.seen
        if known:
            self.seen = tuple(item for item in self.seen if item != key)
        self.seen = (*self.seen[1 - keep :], key)
        return not known

    def copy(self) -> Memory:
        """An independent copy."""
        return Memory(self.last, self.seen, counts=self.counts)


def fingerprint(text: str) -> int:
    """What stands for a text, spacing aside: a signed number of 64 bits."""
    words = " ".join(text.split()).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "big", signed=True)


class View(Protocol):
    """Reads steps of one domain. Pure but for the memory it is handed."""

    @property
    def domain(self) -> str:
        """Name of the domain."""
        ...

    def read(self, ledger: Ledger, step: Step, memory: Memory) -> Signals:
        """Signals after `step`, given what `memory` keeps of the steps before it."""
        ...


def subtask_share(ledger: Ledger) -> float | None:
    """Share of subtasks done; None when there are none."""
    if not ledger.subtasks:
        return None
    return sum(item.status == "done" for item in ledger.subtasks) / len(ledger.subtasks)


def change_quality(before: Signals, regime: Regime, r: float, new: bool) -> float:
    """e: 1 when the state rose, .5 for a new attempt that did not, 0 for a repeat or a fall."""
    level = float(regime) + r
    if level > before.level + 1e-9:
        return 1.0
    if level < before.level - 1e-9 or not new:
        return 0.0
    return 0.5


@dataclass(frozen=True)
class GenericView:
    """Works on any ledger: subtasks, evidence of any source, errors of calls and tools.

    `thresholds` are the mean evidence scores at which a step counts as recoverable, partial and complete.
    """

    domain: str = "generic"
    thresholds: tuple[float, float, float] = (0.2, 0.5, 0.95)

    def __post_init__(self) -> None:
        low, middle, high = self.thresholds
        if not 0 <= low < middle < high <= 1:
            raise ConfigError(
                f"thresholds: seen {self.thresholds}; needed in rising order: 0 <= recoverable < partial < complete <= 1"
            )

    def read(self, ledger: Ledger, step: Step, memory: Memory) -> Signals:
        """See `View.read`."""
        new = memory.is_new(step.output or step.outcome.error or "")
        share = subtask_share(ledger)
        evidence = [item for item in step.outcome.evidence if item.count > 0]
        tool_failed = any(call.ok is False for call in step.tool_calls)
        if step.outcome.error is not None:
            regime, r = Regime(min(memory.last.regime, Regime.RECOVERABLE)), memory.last.r
        elif evidence:
            mean = sum(item.score for item in evidence) / len(evidence)
            low, middle, high = self.thresholds
            regime = Regime((mean >= low) + (mean >= middle) + (mean >= high))
            r = mean if share is None else (mean + share) / 2
        elif tool_failed:
            regime, r = Regime.RECOVERABLE, memory.last.r
        elif share is not None:
            regime, r = Regime.PARTIAL, share
        else:  # text alone is no progress: the state stays, only an empty start becomes workable
            regime, r = Regime(max(memory.last.regime, Regime.RECOVERABLE)), memory.last.r
        if share is not None and share < 1:
            regime = Regime(min(regime, Regime.PARTIAL))
        elif share == 1 and not evidence and not tool_failed and step.outcome.error is None:
            regime = Regime.COMPLETE
        return Signals(regime, r, change_quality(memory.last, regime, r, new))


@dataclass(frozen=True)
class CodeView:
    """Code: does it parse, does it run, how many visible tests pass.

    Reads evidence of the sources `syntax`, `execution` and `examples` (or `tests`). Examples with count 0 mean there
    was nothing to test: the step is then partial, never complete.
    """

    domain: str = "code"

    def read(self, ledger: Ledger, step: Step, memory: Memory) -> Signals:
        """See `View.read`."""
        found = {item.source: item for item in step.outcome.evidence}
        new = memory.is_new(step.output or step.outcome.error or "")
        share = subtask_share(ledger)
        tests = found.get("tests") or found.get("examples")
        if step.outcome.error is not None or not found:
            regime, r = memory.last.regime, memory.last.r
        elif "syntax" in found and found["syntax"].score < 1:
            regime, r = Regime.INVALID, 0.0
        elif "execution" in found and found["execution"].score < 1:
            regime, r = Regime.RECOVERABLE, 0.0
        elif tests is None or tests.count == 0:
            regime, r = Regime.PARTIAL, 0.5
        elif tests.score >= 1:
            regime, r = Regime.COMPLETE, 1.0
        else:
            regime, r = (Regime.PARTIAL if tests.score > 0 else Regime.RECOVERABLE), tests.score
        if share is not None:
            r = (r + share) / 2
            if share < 1:
                regime = Regime(min(regime, Regime.PARTIAL))
        return Signals(regime, r, change_quality(memory.last, regime, r, new))


@dataclass(frozen=True)
class ToolsView:
    """Conversations with tools: a new call that works moves the task, an error or a repeated call does not.

    Reads `tool_calls`; evidence of the source `goal` (what a host knows of the end state) and subtasks decide
    completeness, since a conversation's tool results never show that everything was done.
    """

    domain: str = "tools"
    rise: float = 0.25
    """Share of what is missing that one new, successful call is taken to add."""

    def read(self, ledger: Ledger, step: Step, memory: Memory) -> Signals:
        """See `View.read`."""
        last = memory.last
        share = subtask_share(ledger)
        goal = next(
            (item for item in reversed(step.outcome.evidence) if item.source == "goal" and item.count > 0), None
        )
        new = memory.is_new(step.output or step.outcome.error or "")
        fresh = [call for call in step.tool_calls if memory.is_new(call.fingerprint or call.name) and call.ok]
        failed = [call for call in step.tool_calls if call.ok is False]
        r = last.r
        if step.outcome.error is not None:
            regime = Regime(min(last.regime, Regime.RECOVERABLE))
        elif failed and not fresh:
            regime, r = Regime.RECOVERABLE, r * (1 - self.rise)
        elif fresh:
            regime, r = Regime.PARTIAL, 1 - (1 - r) * (1 - self.rise) ** len(fresh)
        else:  # words, or calls whose results are not known yet or were known before
            regime = Regime(max(last.regime, Regime.RECOVERABLE))
        if share is not None:
            r = (r + share) / 2
        if goal is not None:
            r = goal.score
        if (goal is not None and goal.score >= 1) or (goal is None and share == 1 and not failed):
            regime = Regime.COMPLETE
        elif regime is Regime.COMPLETE:
            regime = Regime.PARTIAL
        return Signals(regime, r, change_quality(last, regime, r, bool(fresh) or (new and not step.tool_calls)))


@dataclass(frozen=True)
class SweView:
    """Changes to a repository: is there a patch, does it parse, do the target tests pass, does anything else break.

    Reads evidence of the sources `patch` (a change is there), `syntax`, `tests` (target tests) and `regressions` (tests
    that passed before), `own_tests` (tests the agent chose to run, which never complete a task), and `command` (return
    codes), which alone shows no progress.
    """

    domain: str = "swe"

    def read(self, ledger: Ledger, step: Step, memory: Memory) -> Signals:
        """See `View.read`."""
        last = memory.last
        found = {item.source: item for item in step.outcome.evidence if item.count > 0}
        new = memory.is_new(step.output or step.outcome.error or "")
        tests, kept = found.get("tests"), found.get("regressions")
        regime, r = Regime(max(last.regime, Regime.RECOVERABLE)), last.r
        if step.outcome.error is not None:
            regime = last.regime
        elif "syntax" in found and found["syntax"].score < 1:
            regime, r = Regime.RECOVERABLE, 0.0
        elif tests is not None:
            r = tests.score * (kept.score if kept is not None else 1.0)
            right = tests.score >= 1 and (kept is None or kept.score >= 1)
            regime = Regime.COMPLETE if right else Regime.PARTIAL if r > 0 else Regime.RECOVERABLE
        elif "patch" in found:
            there = found["patch"].score > 0
            regime = Regime.PARTIAL if there else Regime.RECOVERABLE
            r = max(last.r, 0.3) if there else 0.0
            if there and "own_tests" in found:
                r = 0.3 + 0.5 * found["own_tests"].score
            if kept is not None:
                r *= kept.score
        if regime is Regime.COMPLETE and tests is None:  # what was complete was changed since
            regime = Regime.PARTIAL if new and "patch" in found else regime
        command = found.get("command")
        moved = new and (command is None or command.score > 0)
        return Signals(regime, r, change_quality(last, regime, r, moved))
