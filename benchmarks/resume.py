"""Brings a router back to where it was: what a run has finished is told to it again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from steproute.errors import BudgetExceeded, NoEligibleModel
from steproute.ledger import Evidence, Ledger, Outcome, Task, ToolCall
from steproute.router import Router

logger = logging.getLogger("steproute")


def teach(
    router: Router, steps: Iterable[Mapping[str, Any]], tasks: Mapping[str, Mapping[str, Any]], outcomes: bool
) -> None:
    """Replay the steps of finished tasks: same models, outcomes and evidence, so that the learners and queues know them.

    Random draws are not repeated: a resumed run may explore elsewhere than an unbroken one.

    Args:
        router: of the policy the rows are of.
        steps: lines of `steps.jsonl`.
        tasks: lines of `tasks.jsonl` by task; steps of other tasks are passed over.
        outcomes: also tell the final results.
    """
    by_task: dict[str, list[Mapping[str, Any]]] = {}
    for row in steps:
        if row["task"] in tasks:
            by_task.setdefault(row["task"], []).append(row)
    for name, task in tasks.items():
        ledger = Ledger(task=Task(**{"id": name, **task.get("about", {})}))
        for row in by_task.get(name, ()):
            outcome = row.get("outcome")
            if outcome is None or row["model"] not in router.pool:
                continue
            try:
                decision = router.decide(
                    ledger,
                    row["role"],
                    step=f"{row['step']}#{row['attempt']}",
                    prompt_tokens=outcome["prompt_tokens"],
                    max_tokens=max(1, outcome["completion_tokens"]),
                    pin=row["model"],
                )
            except (BudgetExceeded, NoEligibleModel) as error:  # its estimates differ from those of the first time
                logger.warning("resume: a step of task %s is not told to the router again: %s", name, error)
                continue
            known = {key: value for key, value in outcome.items() if key in Outcome.model_fields}
            router.observe(decision, Outcome(**known), output=row.get("output_id") or "")
            if ledger.steps and outcome["error"] is None:
                ledger.steps[-1].tool_calls = [ToolCall(**call) for call in row.get("tools", ())]
                router.report(name, [Evidence(**item) for item in row.get("evidence", ())])
        known_end = outcomes and "passed" in task
        router.finish(name, success=bool(task["passed"]) if known_end else None)
