"""One reader per published format of outcome tables."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from steproute.benchmarks.coderouterbench.table import OutcomeTable
from steproute.benchmarks.outcomes.cells import Cells
from steproute.benchmarks.rows import need, read_rows
from steproute.errors import ConfigError

Usd = Mapping[str, float]


def read_plain(path: Path, usd: Usd | None = None) -> OutcomeTable:
    """A CSV or JSON Lines file with one row per cell, or one per task.

    One per cell has `task_id`, `model`, `score` and, where known, `cost_usd`, `dimension`, `prompt`. One per task has
    `task_id` (or `prompt`), where known `dimension`, and one column of scores per model; `NAME_usd` is NAME's cost.

    Raises:
        ConfigError: names file, row and field, what was seen and what is allowed.
    """
    cells = Cells(usd)
    for where, row in read_rows(path):
        prompt, dimension = str(row.get("prompt") or ""), str(row.get("dimension") or "")
        task = str(row.get("task_id") or _name(prompt))
        if "model" in row:
            if "score" not in row:
                raise ConfigError(f"{where}: field 'score' is missing")
            paid = row.get("cost_usd")
            cells.add(
                where, task, str(row["model"]), row["score"], paid if paid != "" else None,
                dimension=dimension, prompt=prompt,
            )  # fmt: skip
            continue
        if None in row:
            raise ConfigError(f"{where}: has more columns than the first line names")
        for model in row:
            if model not in ("task_id", "prompt", "dimension") and not model.endswith("_usd"):
                paid = row.get(f"{model}_usd")
                cells.add(
                    where, task, model, row[model], paid if paid != "" else None, dimension=dimension, prompt=prompt
                )
    return cells.table(path.name)


def read_routellm(path: Path, usd: Usd | None = None) -> OutcomeTable:
    """RouteLLM's `mmlu_DOMAIN.csv` files (a folder of them) or `gsm8k_responses.csv`: `prompt` and one column per model.

    Columns that end in `_response` are answers, not scores. Prompts that `contaminated_prompts.jsonl`, in the folder or
    the one above, lists are left out, as RouteLLM does. The files have no costs: give `usd`.

    Raises:
        ConfigError: names file, row and field, what was seen and what is allowed.
    """
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"data: {path} holds no .csv file")
    folder = path if path.is_dir() else path.parent
    lists = (place / "contaminated_prompts.jsonl" for place in (folder, folder.parent))
    listed = next((file for file in lists if file.is_file()), None)
    skip = set() if listed is None else {need(row, where, "eval_prompt", str) for where, row in read_rows(listed)}
    cells = Cells(usd)
    seen: set[str] = set()
    for file in files:
        dimension = file.stem.removeprefix("mmlu_").removesuffix("_responses")
        for where, row in read_rows(file):
            prompt = need(row, where, "prompt", str)
            task = f"{dimension}/{_name(prompt)}"
            if prompt in skip or task in seen:  # MMLU asks a few questions twice
                continue
            seen.add(task)
            for model, score in row.items():
                if model is None:
                    raise ConfigError(f"{where}: has more columns than the first line names")
                if model != "prompt" and not model.endswith("_response"):
                    cells.add(where, task, model, score, dimension=dimension, prompt=prompt)
    return cells.table(path.name)


def read_routerarena(path: Path, usd: Usd | None = None) -> OutcomeTable:
    """RouterArena's `cached_results`: a folder with one JSON Lines file per model.

    Score and cost are those of `evaluation_result`; rows that were not graded are left out. The dimension is the data
    set a task's `global_index` starts with.

    Raises:
        ConfigError: names file, row and field, what was seen and what is allowed.
    """
    cells = Cells(usd)
    for file in _files(path, "*.jsonl"):
        for where, row in read_rows(file):
            graded = row.get("evaluation_result")
            if not isinstance(graded, dict) or graded.get("score") is None:
                continue
            task = need(row, where, "global_index", str)
            cells.add(
                where,
                task,
                str(row.get("llm_selected") or file.stem),
                graded["score"],
                graded.get("inference_cost"),
                dimension=task.rpartition("_")[0],
                prompt=str(row.get("question") or ""),
            )
    return cells.table(path.name)


def read_swebench(path: Path, usd: Usd | None = None) -> OutcomeTable:
    """SWE-bench results per instance: a folder with one folder or file per model.

    Read are `per_instance_details.json` (`resolved`, `cost` per instance), `results/results.json` of the experiments
    (ids under `resolved`) and the harness's own `MODEL.RUN.json` (`submitted_ids`, `resolved_ids`). A list of ids alone
    does not say what was tried: there every instance that the folder speaks of counts as tried, as the leaderboard does.

    Raises:
        ConfigError: names file and field, what was seen and what is allowed.
    """
    found = dict(_submissions(path))
    if not found:
        raise ConfigError(
            f"data: {path} holds no per_instance_details.json, results/results.json or harness report per model"
        )
    everything = list(dict.fromkeys(task for cells in found.values() for task in cells))
    table = Cells(usd)
    for model, outcomes in found.items():
        for task in everything:
            score, paid = outcomes.get(task, (False, None))
            table.add(f"{path.name}/{model} {task}", task, model, score, paid, dimension=task.rpartition("-")[0])
    return table.table(path.name)


_Outcomes = dict[str, tuple[object, object]]


def _submissions(path: Path) -> Iterator[tuple[str, _Outcomes]]:
    for item in sorted(path.iterdir()) if path.is_dir() else []:
        details, results = item / "per_instance_details.json", item / "results" / "results.json"
        if details.is_file():
            rows = _json(details)
            for task, row in rows.items():
                if not isinstance(row, dict) or "resolved" not in row:
                    raise ConfigError(f"{item.name}/{details.name}: {task}: field 'resolved' is missing")
            yield item.name, {task: (row["resolved"], row.get("cost")) for task, row in rows.items()}
        elif results.is_file():
            yield item.name, _listed(_json(results), f"{item.name}/results.json", "resolved")
        elif item.suffix == ".json":
            yield item.name.split(".")[0], _listed(_json(item), item.name, "resolved_ids")


def _listed(report: Mapping[str, Any], where: str, name: str) -> _Outcomes:
    """Outcomes of lists of ids: every id that any list of the report names, and whether it was resolved."""
    resolved = need(report, where, name, list)
    named = {str(task): None for ids in report.values() if isinstance(ids, list) for task in ids}
    return {task: (task in resolved, None) for task in named}


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file.parent.name}/{file.name}: cannot be read as JSON ({error})") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{file.parent.name}/{file.name}: seen {type(found).__name__}; allowed: an object")
    return found


def _files(path: Path, pattern: str) -> list[Path]:
    files = sorted(path.glob(pattern)) if path.is_dir() else []
    if not files:
        raise ConfigError(f"data: {path} is no folder with {pattern} files, one per model")
    return files


def _name(prompt: str) -> str:
    """A task id of a prompt."""
    return hashlib.blake2b(prompt.encode("utf-8", "replace"), digest_size=6).hexdigest() if prompt else ""


csv.field_size_limit(16 << 20)  # answers of models are longer than csv's usual 128 KiB
