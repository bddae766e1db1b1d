"""Result files `results/bench/DATASET/SPLIT/MODEL/YYYYMMDD_HHMMSS.json`: what each model answered, scored and cost.

A router's run is written as the results of one more model, whose records are those of the models it chose: the
benchmark's own loader and tables then show it beside the others.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steproute.errors import ConfigError
from steproute.ledger import Evidence, Outcome, Task
from steproute.router import Router

_STAMP = re.compile(r"(\d{8}_\d{6})\.json$")


@dataclass(frozen=True)
class ResultFile:
    """One model's results on one split of one data set."""

    dataset: str
    split: str
    model: str
    records: Mapping[int, Mapping[str, Any]]
    """By `index`."""


def load_results(folder: Path, models: Sequence[str] = ()) -> list[ResultFile]:
    """The latest file of each data set, split and model; demonstrations are left out, as the benchmark does.

    Args:
        folder: `results/bench`.
        models: only these; none = all.

    Raises:
        ConfigError: no result file is found, or one lacks a field; names it.
    """
    latest: dict[tuple[str, str, str], tuple[str, Mapping[int, Mapping[str, Any]]]] = {}
    for path in sorted(folder.rglob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            key = (str(data["dataset_name"]), str(data["split"]), str(data["model_name"]))
            if data.get("demo") or (models and key[2] not in models):
                continue
            records = {int(record["index"]): record for record in data["records"]}
        except OSError as error:
            raise ConfigError(f"results: {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"results: {path} is no result file ({type(error).__name__}: {error})") from None
        found = _STAMP.search(path.name)
        stamp = found.group(1) if found else ""
        if key not in latest or stamp >= latest[key][0]:
            latest[key] = (stamp, records)
    if not latest:
        raise ConfigError(f"results: {folder} holds no result file of the models asked for")
    return [ResultFile(*key, records) for key, (_, records) in sorted(latest.items())]


def route(results: Sequence[ResultFile], router: Router, seed: int = 0) -> list[ResultFile]:
    """Let the router choose a model for every prompt that all its models have answered.

    It sees the prompt, and afterwards the score and the cost of the one it chose: bandit feedback. The prompts of all
    data sets come in one order, drawn by the seed.

    Args:
        results: of the models in the router's pool; others are passed over.
        router: its pool's names are the benchmark's.
        seed: of the order.

    Raises:
        ConfigError: there is no prompt that all models have answered.
    """
    tables: dict[tuple[str, str], dict[str, Mapping[int, Mapping[str, Any]]]] = {}
    for item in results:
        if item.model in router.pool:
            tables.setdefault((item.dataset, item.split), {})[item.model] = item.records
    whole = set(router.pool.names)
    tasks = [
        (key, index)
        for key, by_model in tables.items()
        if set(by_model) == whole
        for index in sorted(set.intersection(*(set(records) for records in by_model.values())))
    ]
    if not tasks:
        raise ConfigError(f"results: no prompt has been answered by all of {', '.join(sorted(whole))}")
    chosen: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for position in np.random.default_rng(seed).permutation(len(tasks)):
        key, index = tasks[position]
        record = _choose(router, key, index, tables[key])
        chosen.setdefault(key, {})[index] = record
    return [ResultFile(*key, "", dict(sorted(records.items()))) for key, records in sorted(chosen.items())]


def _choose(
    router: Router, key: tuple[str, str], index: int, by_model: Mapping[str, Mapping[int, Mapping[str, Any]]]
) -> dict[str, Any]:
    prompt = str(next(iter(by_model.values()))[index].get("prompt") or "")
    task = Task(id="/".join((*key, str(index))), goal=prompt, dimension=key[0], source="llmrouterbench")
    decision = router.decide(task, "answer", text=prompt)
    record = dict(by_model[decision.model.name][index])
    score = min(max(float(record.get("score") or 0.0), 0.0), 1.0)
    outcome = Outcome(
        prompt_tokens=int(record.get("prompt_tokens") or 0),
        completion_tokens=int(record.get("completion_tokens") or 0),
        usd=float(record.get("cost") or 0.0),
    )
    router.observe(decision, outcome, evidence=[Evidence(source="score", score=score)])
    router.finish(task.id, reward=score)
    return {**record, "routed_model": decision.model.name}


def write_results(folder: Path, name: str, routed: Sequence[ResultFile], stamp: str | None = None) -> list[Path]:
    """Write a router's results; nothing is overwritten.

    Args:
        folder: `results/bench`.
        name: the model name to appear under.
        routed: from `route`.
        stamp: time in the file's name, `YYYYMMDD_HHMMSS`; None = now.

    Raises:
        ConfigError: the file is there already.
    """
    stamp = stamp or time.strftime("%Y%m%d_%H%M%S")
    paths = [folder / item.dataset / item.split / name / f"{stamp}.json" for item in routed]
    for path in paths:
        if path.exists():
            raise ConfigError(f"out: {path} is there already")
    for path, item in zip(paths, routed, strict=True):
        records = list(item.records.values())
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {
            "dataset_name": item.dataset,
            "split": item.split,
            "model_name": name,
            "demo": False,
            "performance": sum(float(record.get("score") or 0.0) for record in records) / len(records),
            "time_taken": 0.0,
            **{field: sum(int(record.get(field) or 0) for record in records) for field in _TOKENS},
            "cost": sum(float(record.get("cost") or 0.0) for record in records),
            "counts": len(records),
            "records": records,
        }
        path.write_text(json.dumps(whole, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return paths


_TOKENS = ("prompt_tokens", "completion_tokens")
