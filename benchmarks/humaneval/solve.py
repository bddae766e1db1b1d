"""One problem, one routed team: the ledger, the tester's word to the router, and the log of what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from steproute.benchmarks.humaneval import team
from steproute.benchmarks.humaneval.problems import Problem
from steproute.benchmarks.humaneval.team import VisibleReport
from steproute.benchmarks.humaneval.tester import Tester, evidence_of
from steproute.benchmarks.humaneval.tree import Node
from steproute.benchmarks.seat import fingerprint
from steproute.decision import Decision
from steproute.ledger import Ledger, Step, Task
from steproute.router import Router


@dataclass
class Attempt:
    """One LLM call of the team and what came of it."""

    decision: Decision
    step: Step
    report: VisibleReport
    hidden: bool
    """Whether this attempt's code passes the hidden test."""
    q: Mapping[str, float] | None
    """Q* of every choice before the call, where a recording knows it."""

    @property
    def regret(self) -> float | None:
        """V* − Q* of the model chosen."""
        return None if self.q is None else max(self.q.values()) - self.q[self.decision.model.name]


@dataclass
class Solving:
    """A team at work on a problem. A framework calls `test` with every reply; None ends the chat."""

    problem: Problem
    router: Router
    tester: Tester
    price_of_second: float
    node: Node
    """Where the team stands; grows as it goes, or walks the recorded tree."""
    attempts: list[Attempt] = field(default_factory=list)
    stop_regret: float | None = None
    """V* − Q* of ending where the team ended; None without a recording."""
    stop: Decision | None = None
    """The decision to end, where the policy made it."""

    def __post_init__(self) -> None:
        self._recorded = bool(self.node.edges)
        self.task = Task(
            id=self.problem.id,
            goal=team.problem_message(self.problem.prompt),
            domain="code",
            dimension="function",
            source="humaneval",
        )
        self.ledger = Ledger(task=self.task)

    def q(self) -> dict[str, float] | None:
        """Q* of every choice here and now; None for live models, whose other answers nobody knows."""
        return self.node.q(self.price_of_second) if self._recorded else None

    def test(self, reply: str) -> str | None:
        """Judge a reply by what a user can see, tell the router, and say what goes into the chat; None ends it."""
        report = self.tester.visible(self.problem, reply)
        self.router.report(self.task.id, evidence_of(report))
        step = self.ledger.steps[-1]
        decision = next(item for item in reversed(self.router.decisions(self.task.id)) if item.id == step.id)
        q = self.q()
        edge = self.node.edges.get(step.model)
        self.node = edge.child if edge is not None else self.node.after(report)
        self.node.hidden = self.tester.hidden(self.problem, self.node.answer)
        hidden = self.tester.hidden(self.problem, report.code)
        self.attempts.append(Attempt(decision, step, report, hidden, q))
        if self.node.final or self._ends_here(report):
            values = self.q()
            self.stop_regret = None if values is None else max(values.values()) - values["stop"]
            return None
        return team.report_message(report)

    def _ends_here(self, report: VisibleReport) -> bool:
        """A policy with a view on stopping decides; otherwise a visible pass ends the task, as most teams have it."""
        if not getattr(self.router.policy, "stops", False):
            return report.ok
        decision = self.router.decide(self.ledger, role="fixer", prompt_tokens=self.prompt_tokens(), can_stop=True)
        self.stop = decision if decision.stop else None
        return decision.stop

    def prompt_tokens(self) -> int:
        """Tokens of the next prompt at 4 characters a token, as every plugin counts them before a call."""
        return sum(len(message["content"]) for message in self.node.messages(self.problem)) // 4

    def rows(self, policy: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The lines of `steps.jsonl` and `tasks.jsonl`."""
        steps = []
        for attempt in self.attempts:
            outcome = attempt.step.outcome
            steps.append(
                {
                    "policy": policy,
                    "task": self.problem.id,
                    "step": attempt.decision.step,
                    "attempt": attempt.decision.attempt,
                    "role": attempt.decision.role,
                    "model": attempt.step.model,
                    "decision": attempt.decision.as_dict(),
                    "outcome": {
                        "usd": outcome.usd,
                        "seconds": outcome.seconds,
                        "prompt_tokens": outcome.prompt_tokens,
                        "completion_tokens": outcome.completion_tokens,
                        "energy_j": outcome.energy_j,
                        "energy_source": outcome.energy_source,
                        "error": outcome.error,
                    },
                    "visible": {
                        "passed": attempt.report.passed,
                        "total": attempt.report.total,
                        "ok": attempt.report.ok,
                        "error": attempt.report.error,
                    },
                    "hidden": attempt.hidden,
                    "evidence": [item.model_dump() for item in outcome.evidence],
                    "output_id": fingerprint(attempt.step.output),
                    "g_after": attempt.step.g,
                    "q": attempt.q,
                    "regret": attempt.regret,
                }
            )
        task = self._task_row(policy, steps)
        if self.stop is not None:
            steps.append(self._stop_row(policy, self.stop))
        return steps, task

    def _stop_row(self, policy: str, stop: Decision) -> dict[str, Any]:
        """A line for the decision to end the task, so that a report can say why it ended."""
        return {
            "policy": policy,
            "task": self.problem.id,
            "step": stop.step,
            "attempt": stop.attempt,
            "role": stop.role,
            "model": None,
            "decision": stop.as_dict(),
            "outcome": None,
            "visible": None,
            "hidden": self.node.hidden,
            "q": self.q(),
            "regret": self.stop_regret,
        }

    def _task_row(self, policy: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
        regrets = [row["regret"] for row in steps if row["regret"] is not None]
        if self.stop_regret is not None:
            regrets.append(self.stop_regret)
        joules = [row["outcome"]["energy_j"] for row in steps]
        passed = bool(steps) and self.node.hidden
        return {
            "policy": policy,
            "task": self.problem.id,
            "passed": passed,
            "visible_ok": any(row["visible"]["ok"] for row in steps),
            "calls": len(steps),
            "seconds": sum(row["outcome"]["seconds"] for row in steps),
            "tokens": sum(row["outcome"]["prompt_tokens"] + row["outcome"]["completion_tokens"] for row in steps),
            "usd": sum(row["outcome"]["usd"] or 0.0 for row in steps),
            "energy_j": None if not joules or None in joules else sum(joules),
            "models": [row["model"] for row in steps],
            "regret": sum(regrets) / len(regrets) if regrets else None,
            "choices": len(regrets),
            "regime_path": [row["decision"]["progress"]["regime"] for row in steps],
            "about": {"domain": self.task.domain, "dimension": self.task.dimension, "source": self.task.source},
        }
