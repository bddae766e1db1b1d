"""Writes a run directory like the main job's: decisions by the real router, outcomes made up from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steproute.budget import Budget, Limit
from steproute.ledger import Evidence, Ledger, Outcome, Task
from steproute.models import Model, Price, Profile
from steproute.report.summary import summarise
from steproute.router import Router

PRICE_OF_SECOND = 0.005
MAX_ATTEMPTS = 3
POLICIES = (
    "progrouter",
    "fixed:smollm2-135m",
    "fixed:qwen2.5-coder-0.5b",
    "fixed:qwen2.5-coder-1.5b",
    "random",
    "cheapest",
    "naive-ratio",
    "oracle",
)
SIZES = {"smollm2-135m": 0.135, "qwen2.5-coder-0.5b": 0.5, "qwen2.5-coder-1.5b": 1.5}
SOLVES = {"smollm2-135m": 0.1, "qwen2.5-coder-0.5b": 0.42, "qwen2.5-coder-1.5b": 0.62}


def models() -> list[Model]:
    speeds = {"smollm2-135m": (186, 74), "qwen2.5-coder-0.5b": (82, 23), "qwen2.5-coder-1.5b": (53, 10.5)}
    return [
        Model(
            name,
            price=Price(input=round(size / 10, 4), output=round(size / 5, 4)),
            quality=0.3 + size / 4,
            size_b=size,
            profile=Profile(prefill_tokens_per_s=speeds[name][0], decode_tokens_per_s=speeds[name][1], power_w=15),
        )
        for name, size in SIZES.items()
    ]


def write_run(folder: Path, policies: Sequence[str] = POLICIES, count: int = 12) -> Path:
    """Make the four files for `count` tasks; the same arguments give the same run but for decision ids and times."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [f"HumanEval/{i * 4}" for i in range(count)]
    steps: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for policy in policies:
        budget = Budget(seconds=Limit(limit=60, hard=False), energy_j=Limit(limit=900, hard=False, target=250))
        spec = {"name": policy, "V": 2050} if policy == "progrouter" else policy
        router = Router(models(), budget, spec, seed=0, on_error="raise")
        for task in tasks:
            done = _play(router, policy, task)
            steps += done
            rows.append(_task_row(policy, task, done))
    config = {
        "benchmark": "humaneval",
        "framework": "ag2",
        "backend": "cassette",
        "policies": list(policies),
        "seed": 0,
        "price_of_second": PRICE_OF_SECOND,
        "models": [
            {
                "name": model.name,
                "size_b": SIZES[model.name],
                "family": "qwen2.5-coder" if "qwen" in model.name else "smollm2",
                "price": {"input": round(SIZES[model.name] / 10, 4), "output": round(SIZES[model.name] / 5, 4)},
            }
            for model in models()
        ],
        "tasks": tasks,
        "versions": {"steproute": "0.1.0", "ag2": "1.2.1", "python": "3.11.2"},
        "git_commit": "125108a4c0ffee0000000000000000000000beef",
        "created": "2026-11-30T03:06:41+00:00",
    }
    (folder / "config.json").write_text(json.dumps(config))
    summary = summarise(rows, PRICE_OF_SECOND)
    for row in summary:
        mine = [step["regret"] for step in steps if step["policy"] == row["policy"]]
        row["step_regret"] = sum(mine) / len(mine)
        row["energy_source"] = "estimate from the model's profile"
    (folder / "summary.json").write_text(json.dumps(summary))
    write_lines(folder / "tasks.jsonl", rows)
    write_lines(folder / "steps.jsonl", steps)
    return folder


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _play(router: Router, policy: str, task: str) -> list[dict[str, Any]]:
    draw = random.Random(task)  # the same luck for every policy
    hard = draw.uniform(-0.3, 0.3)
    luck = [draw.random() for _ in range(MAX_ATTEMPTS)]
    examples = draw.choice([0, 2, 3, 4])
    steps: list[dict[str, Any]] = []
    ledger = Ledger(task=Task(id=task, goal=task, domain="code"))
    for attempt in range(MAX_ATTEMPTS):
        q = {name: _worth(name, attempt, hard, luck) for name in SIZES} | {"stop": 0.0}
        decision = router.decide(
            ledger,
            "coder" if attempt == 0 else "fixer",
            prompt_tokens=180 + 160 * attempt,
            extra={"q": q},
        )
        name = decision.model.name
        solved = _solves(name, attempt, hard, luck)
        shown = examples if solved or draw.random() < 0.2 else int(examples * luck[attempt])
        error = "" if luck[attempt] < 0.93 else "SyntaxError: unexpected indent (line 4)"
        written = int(40 + 140 * luck[attempt])
        outcome = Outcome(
            prompt_tokens=180 + 160 * attempt,
            completion_tokens=written,
            seconds=decision.model.profile.seconds(180 + 160 * attempt, written),
        )
        evidence = [Evidence(source="syntax", score=float(not error))]
        if not error:
            evidence.append(Evidence(source="examples", score=shown / examples if examples else 1.0, count=examples))
        after = router.observe(decision, outcome, evidence=evidence)
        best = max(q[model] for model in SIZES)
        steps.append(
            {
                "policy": policy,
                "task": task,
                "step": decision.step,
                "attempt": decision.attempt,
                "role": decision.role,
                "model": name,
                "decision": decision.as_dict(),
                "outcome": {
                    **outcome.model_dump(include={"usd", "seconds", "prompt_tokens", "completion_tokens", "error"}),
                    "energy_j": outcome.energy_j,
                },
                "visible": {
                    "passed": 0 if error else shown,
                    "total": examples,
                    "ok": not error and shown == examples,
                    "error": error,
                },
                "hidden": solved and not error,
                "q": q,
                "regret": round(best - q[name], 4),
                "progress_after": after.as_dict(),
            }
        )
        if not error and shown == examples:
            break
    router.finish(task, success=steps[-1]["hidden"])
    return steps


def _solves(name: str, attempt: int, hard: float, luck: Sequence[float]) -> bool:
    return luck[attempt] < SOLVES[name] - hard + 0.1 * attempt


def _worth(name: str, attempt: int, hard: float, luck: Sequence[float]) -> float:
    """Value of a call when every later one is chosen perfectly."""
    later = 0.0
    if not _solves(name, attempt, hard, luck) and attempt + 1 < MAX_ATTEMPTS:
        later = max(_worth(other, attempt + 1, hard, luck) for other in SIZES)
    return round(_solves(name, attempt, hard, luck) + max(later, 0.0) - PRICE_OF_SECOND * 10 * SIZES[name], 4)


def _task_row(policy: str, task: str, steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    spent = [step["outcome"] for step in steps]
    return {
        "policy": policy,
        "task": task,
        "passed": steps[-1]["hidden"],
        "visible_ok": steps[-1]["visible"]["ok"],
        "calls": len(steps),
        "seconds": sum(item["seconds"] for item in spent),
        "tokens": sum(item["prompt_tokens"] + item["completion_tokens"] for item in spent),
        "usd": sum(item["usd"] for item in spent),
        "energy_j": sum(item["energy_j"] for item in spent),
        "models": [step["model"] for step in steps],
        "regret": sum(step["regret"] for step in steps),
        "regime_path": [step["decision"]["progress"]["regime"] for step in steps],
    }
